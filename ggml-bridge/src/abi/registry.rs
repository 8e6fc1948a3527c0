//! The registry: what ggml gets from `ggml_backend_init`, with all devices of this process.
//!
//! It is made once and lives as long as the process: ggml keeps the pointers, and may load a backend twice.

use super::guard::guard;
use super::layout::Layout;
use super::types::{RawDevice, RawRegistry, RegistryI};
use super::{Ggml, ggml};
use crate::config::device_type::DeviceType;
use crate::config::log;
use crate::device::backend_device::BackendDevice;
use crate::device::statistics_file::StatisticsFile;
use crate::plan::tally::Tally;
use crate::report::trace_file::{self, TraceFile};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A device and what ggml points to.
#[allow(missing_docs, reason = "what ggml is given")]
pub struct RegisteredDevice {
    pub device: Arc<BackendDevice>,
    pub name: &'static CStr,
    pub description: &'static CStr,
    pub raw: *mut RawDevice,
    pub buffer_type: *mut c_void,
}

// SAFETY: the pointers lead to objects that are never freed or changed after they were made.
unsafe impl Send for RegisteredDevice {}
// SAFETY: as above.
unsafe impl Sync for RegisteredDevice {}

/// All devices of this process.
pub struct Registry {
    raw: *mut RawRegistry,
    devices: Vec<&'static RegisteredDevice>,
    forced_type: Option<DeviceType>,
    statistics: Option<StatisticsFile>,
    backends: AtomicUsize,
    /// Whether it was logged that nothing ran on the array.
    reported: AtomicBool,
}

// SAFETY: `raw` leads to an object that is never freed or changed.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

impl Registry {
    /// The registry, made of `devices` the first time; `register` makes what ggml points to.
    pub fn get_or_make(
        ggml: &Ggml,
        devices: impl FnOnce() -> (Vec<Arc<BackendDevice>>, Option<DeviceType>, Option<StatisticsFile>),
        register: impl Fn(Layout, *mut c_void, Arc<BackendDevice>) -> &'static RegisteredDevice,
    ) -> &'static Self {
        REGISTRY.get_or_init(|| {
            let (devices, forced_type, statistics) = devices();
            let layout = ggml.symbols.layout;
            let iface = RegistryI {
                get_name: Some(registry_name),
                get_device_count: Some(device_count),
                get_device: Some(get_device),
                get_proc_address: None,
            };
            let api_version = layout.api_version();
            let raw = Box::into_raw(Box::new(RawRegistry { api_version, iface, context: null_mut() }));
            let devices = devices.into_iter().map(|device| register(layout, raw.cast(), device)).collect();
            let (backends, reported) = (AtomicUsize::new(0), AtomicBool::new(false));
            Self { raw, devices, forced_type, statistics, backends, reported }
        })
    }

    /// What `ggml_backend_init` returns.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// The types of devices that are not ours.
    fn others() -> Vec<c_int> {
        let ours = |device: *mut c_void| backend_device(device).is_some();
        ggml().map(|g| g.symbols.other_device_types(ours)).unwrap_or_default()
    }

    /// The type of our devices.
    pub fn device_type(&self) -> DeviceType {
        match self.forced_type {
            Some(kind) => kind,
            None => DeviceType::choose(None, &Self::others(), self.smallest_memory()),
        }
    }

    fn smallest_memory(&self) -> u64 {
        self.devices.iter().map(|registered| registered.device.context.hal.memory().total).min().unwrap_or_default()
    }

    /// Whether graphs may still run when `graph_compute` returns.
    ///
    /// Our buffers are host-visible, so after our part of a graph the scheduler lets the CPU backend read them in place. It
    /// waits for us before it does so from 0.26 on, if the CPU's part has no inputs from elsewhere; with a second GPU it can
    /// have such inputs. In the other cases a graph is complete when `graph_compute` returns.
    pub fn asynchronous() -> bool {
        let known = ggml().is_ok_and(|g| g.symbols.layout == Layout::V3);
        known && DeviceType::choose(None, &Self::others(), u64::MAX) == DeviceType::Igpu
    }

    /// Writes statistics, if requested, and says once if all work fell back to the CPU. For the end of a run: the last backend
    /// was freed, or the process ends.
    pub fn report(&self) {
        trace_file::trace().into_iter().for_each(TraceFile::flush);
        let devices: Vec<_> = self.devices.iter().map(|registered| Arc::clone(&registered.device)).collect();
        if let Some(file) = &self.statistics {
            file.write(&devices);
        }
        let mut tally = Tally::default();
        devices.iter().for_each(|device| tally.add(&device.context.statistics.operations()));
        if let Some(warning) = tally.warning()
            && !self.reported.swap(true, Ordering::Relaxed)
        {
            log::notice(&warning);
        }
    }

    /// Releases what the devices cache for later graphs, because the process ends.
    pub fn release(&self) {
        self.devices.iter().for_each(|registered| registered.device.release());
    }
}

/// The registry, if there is one.
pub fn registry() -> Option<&'static Registry> {
    REGISTRY.get()
}

/// Notes that a backend was made.
pub fn backend_made() {
    if let Some(registry) = registry() {
        registry.backends.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that a backend was freed; the last one ends a run.
pub fn backend_freed() {
    if let Some(registry) = registry()
        && registry.backends.fetch_sub(1, Ordering::Relaxed) == 1
    {
        registry.report();
    }
}

/// Our device behind a ggml device, if it is one of ours.
pub fn backend_device(raw: *mut c_void) -> Option<&'static Arc<BackendDevice>> {
    let devices = &registry()?.devices;
    devices.iter().find(|registered| registered.raw.cast() == raw).map(|registered| &registered.device)
}

unsafe extern "C" fn registry_name(_: *mut c_void) -> *const c_char {
    c"HSA".as_ptr()
}

unsafe extern "C" fn device_count(_: *mut c_void) -> usize {
    registry().map_or(0, |r| r.devices.len())
}

unsafe extern "C" fn get_device(_: *mut c_void, index: usize) -> *mut c_void {
    guard("get_device", null_mut(), || {
        registry().and_then(|r| r.devices.get(index)).map_or(null_mut(), |r| r.raw.cast())
    })
}
