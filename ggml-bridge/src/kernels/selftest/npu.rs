//! The NPU of a self-test, and everything else that its outcome depends on.

use aie_driver_xdna::discovery::FoundNpu;
use aie_driver_xdna::route::Route;
use aie_driver_xdna::{SCHEME, XdnaDriver, sysfs};
use aie_hal::{ArchRegistry, Device, DeviceUri, Driver, DriverError};
use aie_jit_native::SOURCE_DIGEST;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// What may change the outcome of a self-test. When any of it has changed, an older outcome says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Generation.
    pub arch: String,
    /// Product.
    pub npu: String,
    /// Version of its firmware; empty where the kernel does not say.
    pub firmware: String,
    /// The kernel, and its driver where that has a version of its own.
    pub driver: String,
    /// Digest of what native kernels are made from.
    pub kernels: String,
}

/// An NPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Npu {
    /// The same at every start.
    pub id: String,
    /// What outcomes on it depend on.
    pub conditions: Conditions,
    /// The kernel's name for the time since the machine was started.
    pub boot: String,
    uri: DeviceUri,
}

impl Npu {
    /// The NPU behind an open device.
    ///
    /// # Errors
    /// As the driver's inventory; [`DriverError::NoSuchDevice`] when it has gone since.
    pub fn of(device: &dyn Device, arches: &ArchRegistry) -> Result<Self, DriverError> {
        let info = device.info();
        let inventory = XdnaDriver::new(arches.clone()).inventory(Route::Direct)?;
        let found = inventory.npus.iter().find(|npu| npu.id == info.uri.path());
        let found = found.ok_or_else(|| DriverError::NoSuchDevice {
            uri: info.uri.to_string(),
            reason: "it is no longer there".into(),
            available: inventory.npus.iter().map(|npu| format!("{SCHEME}://{}", npu.id)).collect::<Vec<_>>().join(", "),
        })?;
        Self::found(found, &info.arch)
    }

    /// An NPU of generation `arch` that was found, and need not be open.
    ///
    /// # Errors
    /// As [`Npu::new`].
    pub fn found(found: &FoundNpu, arch: &str) -> Result<Self, DriverError> {
        let conditions = Conditions {
            arch: arch.to_owned(),
            npu: found.name.clone(),
            firmware: found.firmware.clone().unwrap_or_default(),
            driver: driver(),
            kernels: SOURCE_DIGEST.into(),
        };
        Self::new(&found.id, conditions)
    }

    /// The NPU that has this id.
    ///
    /// # Errors
    /// [`DriverError::InvalidUri`] when the id cannot stand in a URI.
    pub fn new(id: &str, conditions: Conditions) -> Result<Self, DriverError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Ok(Self { id: id.to_owned(), conditions, boot, uri: DeviceUri::parse(&format!("{SCHEME}://{id}"))? })
    }

    /// Opens it for a trial: straight through the kernel driver, whatever way the program goes, and shared with nobody.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open(&self, arches: &ArchRegistry) -> Result<Arc<dyn Device>, DriverError> {
        let devices = XdnaDriver::new(arches.clone()).apart().open(&self.uri)?;
        let none = || DriverError::Runtime { reason: format!("{} opens no device", self.uri), remedy: None };
        devices.into_iter().next().ok_or_else(none)
    }
}

/// The kernel's release, and the version of a driver that came otherwise.
fn driver() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let module = sysfs::module(Path::new("/sys")).and_then(|module| module.version);
    let module = module.map_or_else(String::new, |version| format!(", amdxdna {version}"));
    format!("Linux {}{module}", release.trim())
}
