//! NPUs as the kernel shows them below `/sys/class/accel` (the accel subsystem's class, PCI attributes of the parent device).

use std::fs;
use std::path::Path;

/// AMD's PCI vendor id.
const AMD: u16 = 0x1022;

/// One accel node of an AMD PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccelNode {
    /// Number in `/dev/accel/accelN`.
    pub ordinal: usize,
    /// `pci-` and the PCI address, stable across reboots.
    pub pci_address: String,
    /// PCI device id.
    pub device: u16,
    /// PCI revision.
    pub revision: u8,
}

fn hexadecimal(path: &Path) -> Option<u16> {
    let text = fs::read_to_string(path).ok()?;
    u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

fn accel_node(path: &Path) -> Option<AccelNode> {
    let ordinal = path.file_name()?.to_str()?.strip_prefix("accel")?.parse().ok()?;
    let pci = path.join("device");
    if hexadecimal(&pci.join("vendor"))? != AMD {
        return None;
    }
    let device = hexadecimal(&pci.join("device"))?;
    let revision = u8::try_from(hexadecimal(&pci.join("revision"))?).ok()?;
    let address = fs::canonicalize(&pci).ok()?;
    let pci_address = format!("pci-{}", address.file_name()?.to_str()?);
    Some(AccelNode { ordinal, pci_address, device, revision })
}

/// AMD accel nodes below the sysfs tree `root`, by ordinal. A tree without any, or without the class, gives an empty list;
/// nodes that cannot be read are left out.
pub fn accel_nodes(root: &Path) -> Vec<AccelNode> {
    let Ok(entries) = fs::read_dir(root.join("class/accel")) else { return Vec::new() };
    let mut nodes: Vec<AccelNode> = entries.flatten().filter_map(|entry| accel_node(&entry.path())).collect();
    nodes.sort_by_key(|node| node.ordinal);
    nodes
}
