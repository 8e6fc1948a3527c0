//! What sysfs says about NPUs, uninterpreted.
//!
//! Three places: `/sys/class/accel` has the nodes of the accel subsystem, each with a link to its PCI device; `/sys/bus/pci`
//! has the PCI devices, also those that no driver serves; `/sys/devices/virtual/kfd` has the topology that ROCR reads. Every
//! function takes the root of the tree, so that tests and containers can show another one.

use std::fs;
use std::path::{Path, PathBuf};

/// AMD's PCI vendor id.
pub const AMD: u16 = 0x1022;

/// An attribute of sysfs that cannot be read or understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The attribute's file.
    pub path: PathBuf,
    /// The system's message, or the text that was found.
    pub reason: String,
}

/// A PCI device of AMD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Domain, bus, device and function: `0000:c6:00.1`. The same at every start, unless hardware is added or removed.
    pub address: String,
    /// Device id.
    pub device: Result<u16, Unreadable>,
    /// Revision.
    pub revision: Result<u8, Unreadable>,
    /// Kernel driver that serves it, e.g. `amdxdna` or `vfio-pci`.
    pub driver: Option<String>,
}

/// A node of the accel subsystem that belongs to a PCI device of AMD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccelNode {
    /// Number in `/dev/accel/accelN`. May change from start to start.
    pub number: usize,
    /// Its PCI device.
    pub pci: PciDevice,
    /// Product name that the kernel driver gives; may be empty.
    pub vbnv: Result<String, Unreadable>,
    /// Firmware version as the kernel driver shows it, when it does.
    pub firmware: Option<String>,
}

fn text(path: &Path) -> Result<String, Unreadable> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(Unreadable { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// A hexadecimal attribute of at most 16 bits.
fn hexadecimal(path: &Path) -> Result<u16, Unreadable> {
    let text = text(path)?;
    u16::from_str_radix(text.trim_start_matches("0x"), 16)
        .map_err(|_| Unreadable { path: path.to_owned(), reason: format!("it holds {text:?}, not a number") })
}

/// The PCI device that `folder` describes, or is a link to. `None` when it is not AMD's, or not a PCI device.
fn pci_device(folder: &Path) -> Option<PciDevice> {
    if hexadecimal(&folder.join("vendor")) != Ok(AMD) {
        return None;
    }
    let revision = folder.join("revision");
    let driver = fs::read_link(folder.join("driver")).ok();
    Some(PciDevice {
        address: fs::canonicalize(folder).ok()?.file_name()?.to_str()?.to_owned(),
        device: hexadecimal(&folder.join("device")),
        revision: hexadecimal(&revision).and_then(|value| {
            u8::try_from(value)
                .map_err(|_| Unreadable { path: revision, reason: format!("it holds {value:#x}, more than a byte") })
        }),
        driver: driver.and_then(|target| Some(target.file_name()?.to_str()?.to_owned())),
    })
}

fn entries(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn accel_node(path: &Path) -> Option<AccelNode> {
    let number = path.file_name()?.to_str()?.strip_prefix("accel")?.parse().ok()?;
    let folder = path.join("device");
    Some(AccelNode {
        number,
        pci: pci_device(&folder)?,
        vbnv: text(&folder.join("vbnv")),
        firmware: text(&folder.join("fw_version")).ok().filter(|version| !version.is_empty()),
    })
}

/// AMD's accel nodes, by number. A tree without any, or without the class, gives an empty list; nodes of other vendors are
/// left out.
pub fn accel_nodes(root: &Path) -> Vec<AccelNode> {
    let mut nodes: Vec<AccelNode> = entries(root.join("class/accel")).filter_map(|path| accel_node(&path)).collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// AMD's PCI devices, by address.
pub fn pci_devices(root: &Path) -> Vec<PciDevice> {
    let mut devices: Vec<PciDevice> =
        entries(root.join("bus/pci/devices")).filter_map(|path| pci_device(&path)).collect();
    devices.sort_by(|a, b| a.address.cmp(&b.address));
    devices
}

/// The amdxdna kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its version, or else the digest of its source; `None` when it is built into the kernel or shows neither.
    pub version: Option<String>,
}

/// The amdxdna kernel module, when it is loaded.
pub fn module(root: &Path) -> Option<Module> {
    let folder = root.join("module/amdxdna");
    let attribute = |name: &str| text(&folder.join(name)).ok().filter(|version| !version.is_empty());
    folder.is_dir().then(|| Module { version: attribute("version").or_else(|| attribute("srcversion")) })
}

/// Where ROCR reads the topology of the KFD.
pub fn kfd_topology(root: &Path) -> PathBuf {
    root.join("devices/virtual/kfd/kfd/topology/nodes")
}

/// How many nodes of the KFD's topology have CPU cores; `None` when there is no topology.
pub fn kfd_cpu_nodes(root: &Path) -> Option<usize> {
    let nodes = kfd_topology(root);
    let has_cores = |properties: &str| {
        properties.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("cpu_cores_count")
                && words.next().and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0)
        })
    };
    nodes.is_dir().then(|| {
        entries(nodes).filter_map(|node| text(&node.join("properties")).ok()).filter(|text| has_cores(text)).count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::fake_machine::FakeMachine;

    #[test]
    fn nodes_come_in_the_order_of_their_numbers() {
        let tree = FakeMachine::new();
        tree.add_npu(10, "0000:c7:00.1", "0x17f0", "0x11");
        tree.add_npu(2, "0000:c6:00.1", "0x17f0", "0x10");
        let nodes = accel_nodes(&tree.sysfs());
        assert_eq!(nodes.iter().map(|node| node.number).collect::<Vec<_>>(), [2, 10]);
        let pci = PciDevice {
            address: "0000:c6:00.1".into(),
            device: Ok(0x17f0),
            revision: Ok(0x10),
            driver: Some("amdxdna".into()),
        };
        assert_eq!(nodes[0].pci, pci);
        assert_eq!((nodes[0].vbnv.as_deref(), nodes[0].firmware.as_deref()), (Ok("NPU Strix"), Some("1.1.2.64")));
        assert_eq!(pci_devices(&tree.sysfs())[0], pci);
    }

    #[test]
    fn other_vendors_and_other_entries_are_left_out() {
        let tree = FakeMachine::new();
        tree.add_npu(0, "0000:00:0b.0", "0x7d1d", "0x04");
        tree.write("devices/pci0000:00/0000:00:0b.0/vendor", "0x8086\n");
        tree.write("class/accel/version", "1\n");
        assert_eq!(accel_nodes(&tree.sysfs()), []);
        assert_eq!(pci_devices(&tree.sysfs()), []);
    }

    #[test]
    fn an_attribute_that_cannot_be_read_is_reported() {
        let tree = FakeMachine::new();
        tree.add_npu(0, "0000:c6:00.1", "what", "0x100");
        tree.remove("devices/pci0000:00/0000:c6:00.1/vbnv");
        let node = accel_nodes(&tree.sysfs()).remove(0);
        assert_eq!(node.pci.device.unwrap_err().reason, "it holds \"what\", not a number");
        assert_eq!(node.pci.revision.unwrap_err().reason, "it holds 0x100, more than a byte");
        let vbnv = node.vbnv.unwrap_err();
        assert!(vbnv.path.ends_with("accel0/device/vbnv") && vbnv.reason.contains("No such file"), "{vbnv:?}");
    }

    #[test]
    fn the_module_says_its_version_when_it_has_one() {
        let tree = FakeMachine::new();
        assert_eq!(module(&tree.sysfs()), Some(Module { version: None }));
        tree.write("module/amdxdna/srcversion", "0123ABCD\n");
        assert_eq!(module(&tree.sysfs()), Some(Module { version: Some("0123ABCD".into()) }));
        tree.write("module/amdxdna/version", "2.23.0\n");
        assert_eq!(module(&tree.sysfs()), Some(Module { version: Some("2.23.0".into()) }));
        tree.remove("module/amdxdna");
        assert_eq!(module(&tree.sysfs()), None);
    }

    #[test]
    fn nodes_with_cpu_cores_are_counted() {
        let tree = FakeMachine::new();
        assert_eq!(kfd_cpu_nodes(&tree.sysfs()), Some(1));
        tree.write("devices/virtual/kfd/kfd/topology/nodes/1/properties", "cpu_cores_count 0\nsimd_count 16\n");
        tree.write("devices/virtual/kfd/kfd/topology/nodes/2/properties", "");
        assert_eq!(kfd_cpu_nodes(&tree.sysfs()), Some(1));
        tree.remove("devices/virtual/kfd");
        assert_eq!(kfd_cpu_nodes(&tree.sysfs()), None);
    }
}
