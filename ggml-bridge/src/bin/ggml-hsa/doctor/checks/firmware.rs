//! Firmware files of NPUs that the kernel driver does not serve: without its file the driver gives up on a device.

use super::super::finding::Finding;
use super::super::machine::Machine;
use aie_driver_xdna::sysfs;

/// Folders that the kernel loads firmware from.
const FOLDERS: [&str; 3] = ["/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware"];

/// Whether the firmware of each NPU without a driver is installed.
pub fn files(machine: &Machine) -> Vec<Finding> {
    let survey = machine.survey();
    let unserved = |address: &str| {
        survey.npus.iter().any(|npu| npu.node.is_none() && npu.id.strip_prefix("pci-") == Some(address))
    };
    let devices = sysfs::pci_devices(&machine.file("/sys"));
    let mut findings = Vec::new();
    for pci in devices.iter().filter(|pci| unserved(&pci.address)) {
        let (Ok(device), Ok(revision)) = (&pci.device, &pci.revision) else { continue };
        let folder = format!("amdnpu/{device:04x}_{revision:02x}");
        let files: Vec<String> = FOLDERS.iter().flat_map(|root| machine.names(format!("{root}/{folder}"))).collect();
        findings.push(match files.is_empty() {
            true => Finding::error(
                "firmware",
                format!("there is no firmware for PCI device {}: no {folder} in /lib/firmware", pci.address),
                "update linux-firmware (Ubuntu: `sudo apt install --only-upgrade linux-firmware`; Fedora: \
                 `sudo dnf upgrade linux-firmware`), then `sudo modprobe -r amdxdna; sudo modprobe amdxdna`",
            ),
            false => Finding::ok("firmware", format!("{folder} is installed for PCI device {}", pci.address)),
        });
    }
    findings
}
