//! The driver for real NPUs.
//!
//! What it does today: it finds the NPUs of a machine in sysfs and lists each with its generation, a stable URI and the
//! reason why it cannot be opened. What it does not do yet: open one. Dispatching goes through AMD's ROCR library and comes
//! with its own package of FFI types beside this one. Until then every device is listed as disabled, so that a machine with an
//! NPU gets a clear answer instead of silence, and a machine without one gets an empty list.

pub mod agent;
pub mod discovery;
pub mod interface;
pub mod library;
pub mod selection;
pub mod sysfs;

use aie_hal::{ArchRegistry, Device, DeviceUri, Driver, DriverError, Listing};
use discovery::{Machine, SCHEME};
use selection::{Inventory, Params, VISIBLE_DEVICES_VARIABLE};
use std::sync::Arc;

/// Why no device can be opened by this build.
const NOT_YET: &str =
    "this build finds real NPUs but cannot dispatch to them yet; use the simulated device `mock:aie2p`";

/// Finds NPUs of the amdxdna kernel driver. Thread-safe; holds no device open.
#[derive(Debug)]
pub struct XdnaDriver {
    machine: Machine,
    arches: ArchRegistry,
    visible: Option<String>,
}

impl XdnaDriver {
    /// Looks at this machine, with the generations in `arches`. `AIE_HAL_VISIBLE_DEVICES` is read now.
    pub fn new(arches: ArchRegistry) -> Self {
        let visible = std::env::var_os(VISIBLE_DEVICES_VARIABLE).map(|value| value.to_string_lossy().into_owned());
        Self { machine: Machine::this(), arches, visible }
    }

    fn inventory(&self) -> Result<Inventory, DriverError> {
        Inventory::new(discovery::survey(&self.machine, &self.arches).npus, self.visible.as_deref())
    }
}

impl Driver for XdnaDriver {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn enumerate(&self) -> Result<Vec<Listing>, DriverError> {
        let mut listings = self.inventory()?.listings()?;
        for listing in &mut listings {
            listing.disabled.get_or_insert_with(|| NOT_YET.to_owned());
        }
        Ok(listings)
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        Params::of(uri)?;
        self.inventory()?.select(uri)?;
        Err(DriverError::Unusable { uri: uri.to_string(), reason: NOT_YET.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use discovery::made_up::Tree;

    fn driver(tree: &Tree) -> XdnaDriver {
        XdnaDriver { machine: tree.machine(), arches: ArchRegistry::builtin(), visible: None }
    }

    #[test]
    fn a_machine_without_an_npu_lists_nothing() {
        let tree = Tree::new();
        assert_eq!(driver(&tree).enumerate().unwrap(), []);
        let error = driver(&tree).open(&DeviceUri::parse("xdna").unwrap()).unwrap_err();
        assert!(matches!(error, DriverError::NoSuchDevice { .. }), "{error}");
    }

    #[test]
    fn usable_npus_are_listed_disabled_until_they_can_be_opened() {
        let tree = Tree::new();
        tree.add_npu(0, "0000:c6:00.1", "0x17f0", "0x10");
        let list = driver(&tree).enumerate().unwrap();
        assert_eq!(list[0].uri.to_string(), "xdna://pci-0000:c6:00.1");
        assert_eq!(list[0].disabled.as_deref(), Some(NOT_YET));
        for uri in ["xdna", "xdna:0", "xdna://pci-0000:c6:00.1"] {
            let error = driver(&tree).open(&DeviceUri::parse(uri).unwrap()).unwrap_err();
            assert!(matches!(&error, DriverError::Unusable { reason, .. } if reason == NOT_YET), "{uri}: {error}");
        }
    }
}
