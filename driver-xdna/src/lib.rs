//! The driver for real NPUs.
//!
//! What it does today: it finds the NPUs of a machine in sysfs and lists each with its generation, a stable URI and the
//! reason why it cannot be opened. What it does not do yet: open one. Dispatching goes through AMD's ROCR library and comes
//! with its own package of FFI types beside this one. Until then every device is listed as disabled, so that a machine with an
//! NPU gets a clear answer instead of silence, and a machine without one gets an empty list.

pub mod agent;
pub mod interface;
pub mod sysfs;

use aie_hal::{ArchRegistry, Device, DeviceUri, Driver, DriverError, Listing};
use std::path::PathBuf;
use std::sync::Arc;
use sysfs::AccelNode;

/// Why no device can be opened by this build.
const NOT_YET: &str =
    "this build finds real NPUs but cannot dispatch to them yet; use the simulated device `mock:aie2p`";

/// Finds NPUs of the amdxdna kernel driver. Thread-safe; holds no device open.
#[derive(Debug)]
pub struct XdnaDriver {
    root: PathBuf,
    arches: ArchRegistry,
}

impl XdnaDriver {
    /// Looks at this machine's `/sys`, with the generations in `arches`.
    pub fn new(arches: ArchRegistry) -> Self {
        Self::with_sysfs("/sys", arches)
    }

    /// Looks at another sysfs tree.
    pub fn with_sysfs(root: impl Into<PathBuf>, arches: ArchRegistry) -> Self {
        Self { root: root.into(), arches }
    }

    fn listing(&self, node: &AccelNode) -> Result<Listing, DriverError> {
        let uri = DeviceUri::parse(&format!("xdna://{}", node.pci_address))?;
        let arch = self.arches.by_pci(node.device, node.revision);
        let (name, disabled) = match &arch {
            Some(arch) => (format!("{} NPU", arch.title), NOT_YET.to_owned()),
            None => (
                format!("unknown NPU {:04x}:{:02x}", node.device, node.revision),
                format!(
                    "no arch file names PCI device {:04x} revision {:02x}; known generations: {}; add a file for it to a \
                     directory in AIE_HAL_ARCH_PATH",
                    node.device,
                    node.revision,
                    self.arches.names().collect::<Vec<_>>().join(", ")
                ),
            ),
        };
        Ok(Listing { uri, name, arch: arch.map(|a| a.name.clone()), disabled: Some(disabled) })
    }
}

impl Driver for XdnaDriver {
    fn scheme(&self) -> &'static str {
        "xdna"
    }

    fn enumerate(&self) -> Result<Vec<Listing>, DriverError> {
        sysfs::accel_nodes(&self.root).iter().map(|node| self.listing(node)).collect()
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        let listings = self.enumerate()?;
        if listings.is_empty() {
            return Err(DriverError::NoSuchDevice {
                uri: uri.to_string(),
                reason: format!(
                    "no NPU of the amdxdna kernel driver in {}; check that the amdxdna module is loaded",
                    self.root.join("class/accel").display()
                ),
                available: "none".to_owned(),
            });
        }
        let by_path = |(index, listing): &(usize, &Listing)| {
            let path = uri.path();
            path.is_empty() || path == "*" || path == index.to_string() || path.eq_ignore_ascii_case(listing.uri.path())
        };
        match listings.iter().enumerate().find(by_path) {
            Some((_, listing)) => Err(DriverError::Unusable {
                uri: uri.to_string(),
                reason: listing.disabled.clone().unwrap_or_else(|| NOT_YET.to_owned()),
            }),
            None => Err(DriverError::NoSuchDevice {
                uri: uri.to_string(),
                reason: "expected an ordinal (`xdna:0`) or a PCI address (`xdna://pci-0000:c6:00.1`)".to_owned(),
                available: listings.iter().map(|l| l.uri.to_string()).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn add_node(root: &Path, ordinal: usize, address: &str, vendor: &str, device: &str, revision: &str) {
        let pci = root.join("devices").join(address);
        fs::create_dir_all(&pci).unwrap();
        fs::write(pci.join("vendor"), vendor).unwrap();
        fs::write(pci.join("device"), device).unwrap();
        fs::write(pci.join("revision"), revision).unwrap();
        let node = root.join(format!("class/accel/accel{ordinal}"));
        fs::create_dir_all(&node).unwrap();
        std::os::unix::fs::symlink(&pci, node.join("device")).unwrap();
    }

    fn driver(root: &Path) -> XdnaDriver {
        XdnaDriver::with_sysfs(root, ArchRegistry::builtin())
    }

    #[test]
    fn a_machine_without_an_npu_lists_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(driver(root.path()).enumerate().unwrap(), []);
        let error = driver(root.path()).open(&DeviceUri::parse("xdna").unwrap()).unwrap_err();
        assert!(error.to_string().contains("amdxdna module"), "{error}");
    }

    #[test]
    fn known_npus_are_listed_disabled_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        add_node(root.path(), 0, "0000:c6:00.1", "0x1022\n", "0x17f0\n", "0x10\n");
        let list = driver(root.path()).enumerate().unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].uri.to_string(), "xdna://pci-0000:c6:00.1");
        assert_eq!(list[0].arch.as_deref(), Some("aie2p"));
        assert_eq!(list[0].disabled.as_deref(), Some(NOT_YET));
        for uri in ["xdna", "xdna:0", "xdna://pci-0000:c6:00.1"] {
            let error = driver(root.path()).open(&DeviceUri::parse(uri).unwrap()).unwrap_err();
            assert!(matches!(&error, DriverError::Unusable { reason, .. } if reason == NOT_YET), "{uri}: {error}");
        }
        let error = driver(root.path()).open(&DeviceUri::parse("xdna:7").unwrap()).unwrap_err();
        assert!(error.to_string().contains("xdna://pci-0000:c6:00.1"), "{error}");
    }

    #[test]
    fn an_unknown_generation_says_what_would_enable_it() {
        let root = tempfile::tempdir().unwrap();
        add_node(root.path(), 0, "0000:01:00.0", "0x1022\n", "0x17f9\n", "0x00\n");
        let list = driver(root.path()).enumerate().unwrap();
        assert_eq!(list[0].arch, None);
        assert!(list[0].disabled.as_ref().unwrap().contains("AIE_HAL_ARCH_PATH"), "{:?}", list[0]);
    }

    #[test]
    fn other_vendors_and_broken_nodes_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        add_node(root.path(), 0, "0000:02:00.0", "0x8086\n", "0x7d1d\n", "0x04\n");
        add_node(root.path(), 1, "0000:03:00.0", "0x1022\n", "what\n", "0x10\n");
        assert_eq!(driver(root.path()).enumerate().unwrap(), []);
    }
}
