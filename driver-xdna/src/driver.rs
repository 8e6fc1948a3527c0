//! The driver: which NPUs a program can see, and opening them on one of the routes.

use crate::device::XdnaDevice;
use crate::direct;
use crate::discovery::{self, Machine, SCHEME, Warning};
use crate::limits;
use crate::route::Route;
use crate::runtime::Runtime;
use crate::selection::{Inventory, Params};
use crate::settings::AIE_HAL_VISIBLE_DEVICES;
use aie_hal::{ArchRegistry, Device, DeviceListing, DeviceUri, Driver, DriverError, Environment};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Finds NPUs of the amdxdna kernel driver. Thread-safe; holds no device open.
#[derive(Debug)]
pub struct XdnaDriver {
    machine: Machine,
    arches: ArchRegistry,
    visible: Option<String>,
    route: Route,
    /// What [`Route::Rocr`] uses.
    runtime: Option<Arc<dyn Runtime>>,
    sharing: Sharing,
}

/// Why a URI cannot have `runtime=rocr`.
const NO_RUNTIME: &str = "this program does not use AMD's runtime; an NPU needs none: remove `runtime=rocr` and `libhsa`, or add the \
                          runtime to the driver (`XdnaDriver::with_runtime`, crate `aie-driver-rocr`)";

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
            runtime: None,
            sharing: Sharing::Shared,
        }
    }

    /// Adds the runtime that [`Route::Rocr`] uses; without one such a URI is an error.
    #[must_use]
    pub fn with_runtime(self, runtime: impl Runtime + 'static) -> Self {
        Self { runtime: Some(Arc::new(runtime)), ..self }
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
        let unusable = |reason: String| DriverError::Unusable { uri: uri.to_string(), reason, remedy: None };
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let logical = params.logical.map_or(0..params.devices, |number| number..number + 1);
        for npu in &selected {
            let arch = npu.arch.as_ref().ok_or_else(|| unusable(npu.disabled().unwrap_or_default()))?;
            let opened = match route {
                Route::Direct => {
                    let node = npu.node.as_ref();
                    let node = node.ok_or_else(|| unusable("the kernel has no accel node for it".to_owned()))?;
                    let open = match self.sharing {
                        Sharing::Shared => direct::opened,
                        Sharing::Apart => direct::opened_apart,
                        Sharing::Looking => direct::looked_at,
                    };
                    open(node, arch, limits::time_limit()).map_err(|cause| {
                        let (reason, remedy) = (cause.to_string(), cause.remedy());
                        DriverError::Unusable { uri: uri.to_string(), reason, remedy }
                    })?
                }
                Route::Rocr => {
                    let missing = || DriverError::Runtime { reason: NO_RUNTIME.to_owned(), remedy: None };
                    let runtime = self.runtime.as_ref().ok_or_else(missing)?;
                    let library = params.libhsa.as_ref().map(|(_, path)| path.as_path());
                    let offered = runtime.npu(library, npu.ordinal, arch)?;
                    offered.ok_or_else(|| unusable("the runtime has no agent for it".to_owned()))?
                }
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
    use crate::discovery::fake_machine::FakeMachine;

    fn driver(tree: &FakeMachine) -> XdnaDriver {
        XdnaDriver {
            machine: tree.machine(),
            arches: ArchRegistry::builtin(),
            visible: None,
            route: Route::Direct,
            runtime: None,
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
    fn a_driver_without_the_runtime_says_what_to_do() {
        let tree = FakeMachine::new();
        tree.add_npu(0, "0000:c6:00.1", "0x17f0", "0x10");
        for uri in ["xdna:0?runtime=rocr", "xdna:0?libhsa=/opt/rocm/lib"] {
            let error = driver(&tree).open(&DeviceUri::parse(uri).unwrap()).unwrap_err();
            let DriverError::Runtime { reason, .. } = &error else { panic!("{error}") };
            assert!(["remove `runtime=rocr`", "with_runtime"].iter().all(|part| reason.contains(part)), "{reason}");
        }
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
