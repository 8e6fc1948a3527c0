//! Finding the NPUs of a machine and, for each that cannot be used, every reason with its fix.
//!
//! Opening a node sets up state in the kernel, and ROCR cannot be asked at all: on a machine that is not set up it ends the process
//! in an assert. So this checks what the chosen [`Route`] needs, before anything is opened: sysfs, the device nodes and their
//! permissions; for ROCR also the KFD. It never opens a node, never loads the runtime, never fails; each device has a list of all
//! its [`Obstacle`]s, so that a user need not fix one to learn of the next.

#[cfg(test)]
pub(crate) mod fake_machine;
pub mod machine;
pub mod obstacle;

pub use machine::{Machine, Process};
pub use obstacle::{LOCK_MORE, Obstacle, Warning};

use crate::route::Route;
use crate::sysfs::{self, AccelNode, Module, PciDevice, Unreadable};
use aie_hal::arch::{Arch, FirmwareVersion};
use aie_hal::{ArchRegistry, DeviceListing, DeviceUri, DriverError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Scheme of the URIs of NPUs.
pub const SCHEME: &str = "xdna";

const AMDXDNA: &str = "amdxdna";

/// Device ids that the amdxdna kernel driver's table of PCI ids names beside those of arch files. They make a device known as
/// an NPU, of a generation that is not known, even where no kernel driver serves it.
const OTHER_NPUS: [u16; 6] = [0x17f1, 0x17f2, 0x17f3, 0x1b0a, 0x1b0b, 0x1b0c];

/// An NPU, usable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNpu {
    /// Place in the list: `xdna:0` is the first. Those with an accel node come first, by its number.
    pub ordinal: usize,
    /// `pci-` and the PCI address: the same at every start.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Its generation, when known.
    pub arch: Option<Arc<Arch>>,
    /// Its accel node, when the kernel has one; it may not exist in a container.
    pub node: Option<PathBuf>,
    /// Firmware version as the kernel driver shows it.
    pub firmware: Option<String>,
    /// Why it cannot be used; empty when it can, as far as can be seen from outside.
    pub obstacles: Vec<Obstacle>,
}

impl FoundNpu {
    /// The URI that names it at every start.
    ///
    /// # Errors
    /// [`DriverError::InvalidUri`] when the PCI address cannot stand in a URI.
    pub fn uri(&self) -> Result<DeviceUri, DriverError> {
        DeviceUri::parse(&format!("{SCHEME}://{}", self.id))
    }

    /// Whether no obstacle is known.
    pub fn usable(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// All reasons why it cannot be used, as one text; `None` when there are none.
    pub fn disabled(&self) -> Option<String> {
        match self.obstacles.as_slice() {
            [] => None,
            [only] => Some(only.to_string()),
            several => {
                let numbered = several.iter().enumerate().map(|(index, reason)| format!("({}) {reason}", index + 1));
                Some(numbered.collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// Its line of a device listing.
    ///
    /// # Errors
    /// As [`FoundNpu::uri`].
    pub fn listing(&self) -> Result<DeviceListing, DriverError> {
        Ok(DeviceListing {
            uri: self.uri()?,
            name: self.name.clone(),
            arch: self.arch.as_ref().map(|arch| arch.name.clone()),
            disabled: self.disabled(),
        })
    }
}

/// What [`survey`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The NPUs.
    pub npus: Vec<FoundNpu>,
    /// Obstacles of every NPU. Each NPU's own list has these too.
    pub machine: Vec<Obstacle>,
    /// What may become a problem.
    pub warnings: Vec<Warning>,
    /// Version of the amdxdna kernel module, when it is loaded and shows one.
    pub module_version: Option<String>,
}

/// What can be said of the kernel's KFD without opening it.
fn kfd_obstacles(machine: &Machine) -> Vec<Obstacle> {
    let node = machine.kfd();
    let cpus = sysfs::kfd_cpu_nodes(&machine.sysfs);
    let mut obstacles = Vec::new();
    match node_obstacle(machine, &node) {
        Some(Obstacle::NodeMissing(node)) if cpus.is_some() => obstacles.push(Obstacle::KfdNodeMissing(node)),
        // Without a node, the missing topology is no second cause.
        Some(Obstacle::NodeMissing(node)) => return vec![Obstacle::KfdAbsent(node)],
        other => obstacles.extend(other),
    }
    if cpus.unwrap_or(0) == 0 {
        obstacles.push(Obstacle::KfdWithoutCpu(sysfs::kfd_topology(&machine.sysfs)));
    }
    obstacles
}

/// Why this process could not open `node` for reading and writing.
fn node_obstacle(machine: &Machine, node: &Path) -> Option<Obstacle> {
    let error = machine.process.may_use(node).err()?;
    let unusable = |error: io::Error| Obstacle::NodeUnusable { node: node.to_owned(), reason: error.to_string() };
    Some(match error.kind() {
        io::ErrorKind::NotFound => Obstacle::NodeMissing(node.to_owned()),
        io::ErrorKind::PermissionDenied => match machine.process.owner(node) {
            Ok(owner) => Obstacle::Forbidden { node: node.to_owned(), owner, who: machine.process.identity() },
            Err(_) => unusable(error),
        },
        _ => unusable(error),
    })
}

/// What is in common to an NPU with and without an accel node: name, generation, and obstacles from its ids.
fn npu_of(pci: &PciDevice, arches: &ArchRegistry) -> FoundNpu {
    let mut obstacles: Vec<Obstacle> = unreadable(&pci.device).into_iter().chain(unreadable(&pci.revision)).collect();
    let mut arch = None;
    let mut name = "unknown NPU".to_owned();
    if let (&Ok(device), &Ok(revision)) = (&pci.device, &pci.revision) {
        arch = arches.by_pci(device, revision);
        name = match &arch {
            Some(arch) => format!("{} NPU", arch.title),
            None => {
                let known = arches.names().collect::<Vec<_>>().join(", ");
                obstacles.push(Obstacle::UnknownGeneration { device, revision, known });
                format!("unknown NPU {device:04x}:{revision:02x}")
            }
        };
    }
    if let Some(driver) = pci.driver.as_deref().filter(|driver| *driver != AMDXDNA) {
        obstacles.push(Obstacle::BoundElsewhere { address: pci.address.clone(), driver: driver.to_owned() });
    }
    FoundNpu { ordinal: 0, id: format!("pci-{}", pci.address), name, arch, node: None, firmware: None, obstacles }
}

fn unreadable<T>(value: &Result<T, Unreadable>) -> Option<Obstacle> {
    value.as_ref().err().map(|attribute| Obstacle::AttributeUnreadable(attribute.clone()))
}

/// An NPU with an accel node.
fn served(
    accel: &AccelNode,
    machine: &Machine,
    arches: &ArchRegistry,
    route: Route,
    warnings: &mut Vec<Warning>,
) -> FoundNpu {
    let mut npu = npu_of(&accel.pci, arches);
    if let Some(product) = accel.vbnv.as_ref().ok().filter(|product| !product.is_empty()) {
        npu.name = format!("{} ({product})", npu.name);
    }
    if route == Route::Rocr {
        // ROCR reads it without looking.
        npu.obstacles.extend(unreadable(&accel.vbnv));
    }
    if let (Some(arch), Some(text)) = (&npu.arch, &accel.firmware) {
        match (text.parse::<FirmwareVersion>(), arch.min_firmware) {
            (Ok(found), Some(required)) if found < required => {
                npu.obstacles.push(Obstacle::FirmwareTooOld { found, required, arch: arch.name.clone() });
            }
            (Err(reason), Some(_)) => {
                warnings.push(Warning::FirmwareUnreadable {
                    address: accel.pci.address.clone(),
                    reason: reason.to_string(),
                });
            }
            _ => {}
        }
    }
    let node = machine.accel(accel.number);
    npu.obstacles.extend(node_obstacle(machine, &node));
    npu.firmware = accel.firmware.clone();
    npu.node = Some(node);
    npu
}

/// An NPU without an accel node.
fn unserved(pci: &PciDevice, module: Option<&Module>, arches: &ArchRegistry) -> FoundNpu {
    let mut npu = npu_of(pci, arches);
    let address = pci.address.clone();
    match (pci.driver.as_deref(), module) {
        (Some(AMDXDNA), _) => npu.obstacles.push(Obstacle::NoAccelNode(address)),
        // Its own obstacle already.
        (Some(_), _) => {}
        (None, None) => npu.obstacles.push(Obstacle::ModuleNotLoaded(address)),
        (None, Some(module)) => npu.obstacles.push(Obstacle::NotProbed { address, module: module.version.clone() }),
    }
    npu
}

fn is_npu(pci: &PciDevice, arches: &ArchRegistry) -> bool {
    pci.driver.as_deref() == Some(AMDXDNA)
        || pci.device.as_ref().is_ok_and(|&device| {
            let revision = pci.revision.as_ref().copied().unwrap_or_default();
            OTHER_NPUS.contains(&device) || arches.by_pci(device, revision).is_some() || names_device(arches, device)
        })
}

/// Whether a generation has this device id, with whatever revision.
fn names_device(arches: &ArchRegistry, device: u16) -> bool {
    arches.names().filter_map(|name| arches.get(name)).any(|arch| arch.pci.iter().any(|id| id.device == device))
}

/// ROCR tries the accel nodes in turn and keeps the first that it can open and that answers as amdxdna's do. All others are
/// out of its reach.
fn bar_all_but_the_first(npus: &mut [FoundNpu]) {
    let opens = |npu: &FoundNpu| {
        !npu.obstacles.iter().any(|obstacle| {
            matches!(
                obstacle,
                Obstacle::NodeMissing(_)
                    | Obstacle::Forbidden { .. }
                    | Obstacle::NodeUnusable { .. }
                    | Obstacle::BoundElsewhere { .. }
            )
        })
    };
    let Some(first) = npus.iter().filter(|npu| opens(npu)).find_map(|npu| npu.node.clone()) else { return };
    for npu in npus {
        if let Some(node) = npu.node.clone().filter(|node| *node != first) {
            npu.obstacles.push(Obstacle::NotTheFirst { first: first.clone(), node });
        }
    }
}

/// Surveys `machine` for NPUs reached by `route`. Nothing is opened or changed.
pub fn survey(machine: &Machine, arches: &ArchRegistry, route: Route) -> Survey {
    let module = sysfs::module(&machine.sysfs);
    let nodes = sysfs::accel_nodes(&machine.sysfs);
    let mut warnings = Vec::new();
    let mut npus: Vec<FoundNpu> =
        nodes.iter().map(|accel| served(accel, machine, arches, route, &mut warnings)).collect();
    if route == Route::Rocr {
        bar_all_but_the_first(&mut npus);
    }
    let without_node = sysfs::pci_devices(&machine.sysfs);
    npus.extend(
        without_node
            .iter()
            .filter(|pci| nodes.iter().all(|accel| accel.pci.address != pci.address) && is_npu(pci, arches))
            .map(|pci| unserved(pci, module.as_ref(), arches)),
    );
    let kfd = match route {
        Route::Direct => Vec::new(),
        Route::Rocr => kfd_obstacles(machine),
    };
    for (ordinal, npu) in npus.iter_mut().enumerate() {
        npu.ordinal = ordinal;
        npu.obstacles.extend(kfd.iter().cloned());
    }
    warnings.extend(lockable_memory(machine, &npus));
    Survey { npus, machine: kfd, warnings, module_version: module.and_then(|module| module.version) }
}

fn lockable_memory(machine: &Machine, npus: &[FoundNpu]) -> Option<Warning> {
    let limit = machine.process.lockable_bytes()?;
    let heaps = npus.iter().filter_map(|npu| npu.arch.as_ref()).map(|arch| arch.limits.device_heap_bytes as u64);
    let wanted = heaps.max()?;
    (limit < wanted).then_some(Warning::LockableMemory { limit, wanted })
}

#[cfg(test)]
mod tests;
