//! Firmware files of NPUs that the kernel driver does not serve: without its file the driver gives up on a device, and so does the
//! driver of an older kernel with a file that is too new for it.

use super::super::finding::Finding;
use super::super::machine::Machine;
use aie_driver_xdna::sysfs;
use std::fs;
use std::path::PathBuf;

/// Folders that the kernel loads firmware from.
const FOLDERS: [&str; 3] = ["/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware"];

/// PCI device of XDNA 2.
const NPU4: u16 = 0x17f0;
/// The first firmware of XDNA 2 with protocol 7, by the number in its file name, and the first kernel whose driver speaks it. Source:
/// what owners reported of linux-firmware updates, by kernel.
const PROTOCOL_7: ([u32; 2], (u32, u32)) = ([1, 1], (7, 0));

/// The finding for a folder whose `npu.sbin`, the file that older kernels load, leads to one that is too new for this kernel.
fn too_new(machine: &Machine, device: u16, folder: &str, files: &[String]) -> Option<Finding> {
    let (firmware, kernel) = PROTOCOL_7;
    let (major, minor) = machine.kernel().filter(|version| *version < kernel && device == NPU4)?;
    let loaded = files.iter().filter(|file| matches!(file.as_str(), "npu.sbin" | "npu.sbin.xz" | "npu.sbin.zst"));
    let target = |file: &String| {
        FOLDERS.iter().find_map(|root| fs::read_link(machine.file(format!("{root}/{folder}/{file}"))).ok())
    };
    let version = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("npu.sbin.")?.to_owned();
        let numbers: Vec<u32> = name.split('.').map_while(|number| number.parse().ok()).collect();
        (numbers[..] >= firmware[..]).then_some(numbers)
    };
    let found = loaded.filter_map(target).find_map(version)?;
    let found: Vec<String> = found.iter().map(u32::to_string).collect();
    let first = format!("{}.{}", kernel.0, kernel.1);
    Some(Finding::error(
        "firmware",
        format!("firmware {} of {folder} is for Linux {first} and newer; this is {major}.{minor}", found.join(".")),
        format!(
            "start a kernel of {first} or newer, or install the linux-firmware of before the update again (npu.sbin.1.0.*), \
             rebuild the initramfs and restart"
        ),
    ))
}

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
            false => match too_new(machine, *device, &folder, &files) {
                Some(finding) => finding,
                None => Finding::ok("firmware", format!("{folder} is installed for PCI device {}", pci.address)),
            },
        });
    }
    findings
}
