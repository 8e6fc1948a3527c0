//! The driver for real NPUs, from discovery to completed dispatches: straight to the kernel driver, or through AMD's ROCR.
//!
//! From the top:
//!
//! - [`XdnaDriver`] looks at sysfs and the device nodes ([`discovery`]) before it opens anything. What it lists as usable can be
//!   opened, as far as can be seen from outside.
//! - A logical device, its buffers and queues are the same for every [`route::Route`]. Memory is cut from few large allocations;
//!   the HAL's executor packs what is pending into few chains, and starts them ahead.
//! - An [`agent::Agent`] is one NPU, as what is below offers it: [`direct`] is the kernel driver itself, and the default. For
//!   ROCR, `ert` speaks to releases 7.0 to 7.2, with the `ioctl_interposer` that keeps it off their defects, and
//!   [`kernel_dispatch`] to later ones. [`interface`] detects which a library speaks, [`library`] finds it.
//!
//! ```no_run
//! use aie_driver_xdna::XdnaDriver;
//! use aie_hal::{ArchRegistry, DeviceUri, Driver};
//!
//! let driver = XdnaDriver::new(ArchRegistry::builtin());
//! for listing in driver.enumerate()? {
//!     println!("{}: {}", listing.uri, listing.disabled.unwrap_or_else(|| "usable".into()));
//! }
//! let device = driver.open(&DeviceUri::parse("xdna:0")?)?.remove(0);
//! println!("{} bytes are free", device.memory().free);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What this has run on
//! A simulated kernel device, directly and through AMD's unmodified ROCR 7.2.4; never on an NPU.

mod accel;
pub mod agent;
mod coherence;
mod contexts;
#[cfg(test)]
mod cpu_agent;
mod device;
pub mod direct;
pub mod discovery;
mod ert;
#[cfg(test)]
mod forked;
pub mod interface;
mod ioctl_interposer;
pub mod kernel_dispatch;
pub mod library;
mod memory;
mod npu;
pub mod pinnable;
mod pool;
pub mod route;
mod runtime;
pub mod selection;
pub mod session;
pub mod settings;
pub mod sysfs;

use crate::settings::AIE_HAL_VISIBLE_DEVICES;
use aie_hal::{ArchRegistry, Device, DeviceListing, DeviceUri, Driver, DriverError, Environment};
use device::XdnaDevice;
pub use discovery::SCHEME;
use discovery::{Machine, Warning};
use library::{Named, Source};
use parking_lot::Mutex;
use route::Route;
use runtime::Runtime;
pub use runtime::RuntimeError;
use selection::{Inventory, Params};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Finds NPUs of the amdxdna kernel driver. Thread-safe; holds no device open.
#[derive(Debug)]
pub struct XdnaDriver {
    machine: Machine,
    arches: ArchRegistry,
    visible: Option<String>,
    route: Route,
    libhsa: Option<PathBuf>,
    sharing: Sharing,
}

/// How an NPU is opened on the direct route.
#[derive(Debug, Clone, Copy)]
enum Sharing {
    /// Together with the other devices of the process.
    Shared,
    Apart,
    /// Apart, without heap and contexts as long as nothing needs them.
    Looking,
}

impl XdnaDriver {
    /// Looks at this machine, with the generations in `arches` and of its NPUs those that [`AIE_HAL_VISIBLE_DEVICES`] shows.
    pub fn new(arches: ArchRegistry) -> Self {
        let visible =
            Environment::process().get(&AIE_HAL_VISIBLE_DEVICES).map(|value| value.to_string_lossy().into_owned());
        Self {
            machine: Machine::this(),
            arches,
            visible,
            route: Route::default(),
            libhsa: None,
            sharing: Sharing::Shared,
        }
    }

    /// The runtime library to use where a URI names none (`libhsa=PATH`), whatever the environment says: its file, or a folder
    /// that has it. When it cannot be loaded, opening a device is an error that lists what was tried; there is no fallback.
    #[must_use]
    pub fn with_libhsa(self, path: impl Into<PathBuf>) -> Self {
        Self { libhsa: Some(path.into()), ..self }
    }

    /// The library that the parameters or the program name.
    fn named(&self, params: &Params) -> Option<Named> {
        let of_uri = params.libhsa.as_ref().map(|(_, path)| (Source::Uri, path));
        let named = of_uri.or_else(|| self.libhsa.as_ref().map(|path| (Source::Option, path)));
        named.map(|(source, path)| Named { source, path: path.clone() })
    }

    /// How NPUs are reached when a URI does not say.
    #[must_use]
    pub fn route_by_default(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// Opens an NPU anew for each URI, on the direct route, where others share what is open: its contexts are its own, and an NPU
    /// that is lost there is lost for no other device of the process.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { sharing: Sharing::Apart, ..self }
    }

    /// Opens an NPU only as far as it has to be to say what it is: neither the device heap nor a hardware context is made, and no test
    /// dispatch runs, before a kernel is loaded. On the direct route; each URI opens it anew.
    #[must_use]
    pub fn looking(self) -> Self {
        Self { sharing: Sharing::Looking, ..self }
    }

    /// The NPUs of the machine, usable or not, that a program can see and those that are hidden from it. Nothing is opened.
    ///
    /// # Errors
    /// As [`Inventory::new`].
    pub fn inventory(&self, route: Route) -> Result<Inventory, DriverError> {
        let survey = discovery::survey(&self.machine, &self.arches, route);
        survey.warnings.iter().for_each(warn_once);
        Inventory::new(survey.npus, self.visible.as_deref())
    }
}

/// Logs a warning, each once per process: listing and opening look at the same machine.
fn warn_once(warning: &Warning) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = warning.to_string();
    if LOGGED.lock().insert(text.clone()) {
        tracing::warn!("{text}");
    }
}

impl Driver for XdnaDriver {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError> {
        self.inventory(self.route)?.listings()
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        let mut params = Params::of(uri)?;
        let route = params.route.unwrap_or(self.route);
        // The devices' own URIs say so, whatever the default of the program that uses them.
        params.route = params.route.or((route != Route::default()).then_some(route));
        let inventory = self.inventory(route)?;
        let selected = inventory.select(uri)?;
        let runtime = match route {
            Route::Direct => None,
            Route::Rocr => {
                let opened = Runtime::open(self.named(&params).as_ref());
                Some(opened.map_err(|cause| DriverError::Runtime(cause.to_string()))?)
            }
        };
        let unusable = |reason: String| DriverError::Unusable { uri: uri.to_string(), reason };
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let logical = params.logical.map_or(0..params.devices, |number| number..number + 1);
        for npu in &selected {
            let arch = npu.arch.as_ref().ok_or_else(|| unusable(npu.disabled().unwrap_or_default()))?;
            let opened = match (&runtime, &npu.node) {
                (Some(runtime), _) => {
                    // ROCR opens one node, the lowest; agents of later runtimes come in the order of the nodes.
                    let index = if runtime.agents().len() == 1 { 0 } else { npu.ordinal };
                    runtime.npu(index, arch).ok_or_else(|| unusable("the runtime has no agent for it".to_owned()))?
                }
                (None, Some(node)) => {
                    let open = match self.sharing {
                        Sharing::Shared => direct::opened,
                        Sharing::Apart => direct::opened_apart,
                        Sharing::Looking => direct::looked_at,
                    };
                    open(node, arch, runtime::time_limit()).map_err(|cause| unusable(cause.to_string()))?
                }
                (None, None) => return Err(unusable("the kernel has no accel node for it".to_owned())),
            };
            for number in logical.clone() {
                let uri = params.uri_of(npu, number)?;
                devices.push(Arc::new(XdnaDevice::open(
                    uri,
                    npu.name.clone(),
                    Arc::clone(&opened),
                    params.memory,
                    params.chain,
                )));
            }
        }
        Ok(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use discovery::fake_machine::FakeMachine;

    fn driver(tree: &FakeMachine) -> XdnaDriver {
        XdnaDriver {
            machine: tree.machine(),
            arches: ArchRegistry::builtin(),
            visible: None,
            route: Route::Direct,
            libhsa: None,
            sharing: Sharing::Shared,
        }
    }

    #[test]
    fn a_machine_without_an_npu_lists_nothing() {
        let tree = FakeMachine::new();
        assert_eq!(driver(&tree).enumerate().unwrap(), []);
        let error = driver(&tree).open(&DeviceUri::parse("xdna").unwrap()).unwrap_err();
        assert!(matches!(error, DriverError::NoSuchDevice { .. }), "{error}");
    }

    #[test]
    fn the_uri_names_the_library_before_the_program() {
        let driver = driver(&FakeMachine::new()).with_libhsa("/of/the/program");
        let named = |text: &str| driver.named(&Params::of(&DeviceUri::parse(text).unwrap()).unwrap()).unwrap();
        assert_eq!(named("xdna:0"), Named { source: Source::Option, path: "/of/the/program".into() });
        assert_eq!(named("xdna:0?libhsa=/a%26b"), Named { source: Source::Uri, path: "/a&b".into() });
    }

    #[test]
    fn usable_npus_are_listed() {
        let tree = FakeMachine::new();
        tree.add_npu(0, "0000:c6:00.1", "0x17f0", "0x10");
        let list = driver(&tree).enumerate().unwrap();
        assert_eq!(list[0].uri.to_string(), "xdna://pci-0000:c6:00.1");
        assert_eq!(list[0].disabled, None);
    }

    #[test]
    fn a_disabled_npu_is_rejected_before_the_runtime_is_touched() {
        let tree = FakeMachine::new();
        tree.add_npu(0, "0000:c6:00.1", "0x17f9", "0x00");
        assert!(driver(&tree).enumerate().unwrap()[0].disabled.is_some());
        for uri in ["xdna:0", "xdna://pci-0000:c6:00.1"] {
            let error = driver(&tree).open(&DeviceUri::parse(uri).unwrap()).unwrap_err();
            assert!(
                matches!(&error, DriverError::Unusable { reason, .. } if reason.contains("AIE_HAL_ARCH_PATH")),
                "{error}"
            );
        }
    }
}
