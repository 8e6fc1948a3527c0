//! Why an NPU cannot be used, each cause with its fix.

use super::machine::{Identity, Owner};
use crate::sysfs::Unreadable;
use aie_hal::arch::FirmwareVersion;
use aie_hal::settings::AIE_HAL_ARCH_PATH;
use std::path::PathBuf;
use thiserror::Error;

/// Why an NPU cannot be used. As text it is the cause, a semicolon, and how to fix it.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The PCI device at this address has an NPU's id, and there is no kernel module that serves it.
    #[error(
        "the kernel module amdxdna is not loaded, so PCI device {0} has no accel node; load it with \
         `sudo modprobe amdxdna` (Linux 6.14 or newer has it, for older ones AMD publishes it)"
    )]
    ModuleNotLoaded(String),
    /// The module is loaded and has not bound to the device, or has given up on it.
    #[error(
        "the kernel module amdxdna is loaded{}, but did not bind to PCI device {address}; most often its firmware \
         (amdnpu/ of linux-firmware) is missing, or has a protocol version that this kernel does not know: \
         see `sudo dmesg | grep amdxdna`; update linux-firmware and the kernel together",
        version(module)
    )]
    NotProbed {
        /// The PCI address.
        address: String,
        /// The module's version, when it shows one.
        module: Option<String>,
    },
    /// Another kernel driver has the device.
    #[error(
        "PCI device {address} is bound to the kernel driver `{driver}`, not to amdxdna; if nothing needs it there, rebind \
         it: `echo {address} | sudo tee /sys/bus/pci/drivers/{driver}/unbind`, then \
         `echo {address} | sudo tee /sys/bus/pci/drivers_probe`"
    )]
    BoundElsewhere {
        /// The PCI address.
        address: String,
        /// The driver.
        driver: String,
    },
    /// amdxdna has the PCI device at this address and shows no accel node for it.
    #[error(
        "amdxdna serves PCI device {0}, but shows no accel node for it; in a container, share the host's /sys; \
         otherwise `sudo dmesg | grep -e amdxdna -e accel` shows why"
    )]
    NoAccelNode(String),
    /// No arch file names the device.
    #[error(
        "unknown generation: no arch file names PCI device {device:#06x} revision {revision:#04x}; known generations: {known}; \
         a file `NAME.toml` with that id, in a directory that {AIE_HAL_ARCH_PATH} names, enables it"
    )]
    UnknownGeneration {
        /// PCI device id.
        device: u16,
        /// PCI revision.
        revision: u8,
        /// Names of the known generations.
        known: String,
    },
    /// An attribute is missing or malformed. ROCR reads some of them without checking, and then ends the process.
    #[error(
        "cannot read {}: {}; update the kernel driver amdxdna; in a container, share the host's /sys",
        .0.path.display(), .0.reason
    )]
    AttributeUnreadable(Unreadable),
    /// The firmware is older than the arch file allows.
    #[error(
        "firmware {found} is older than {required}, the oldest for generation `{arch}`; update linux-firmware, then load the \
         kernel module amdxdna again or restart"
    )]
    FirmwareTooOld {
        /// Version the device runs.
        found: FirmwareVersion,
        /// Version it needs.
        required: FirmwareVersion,
        /// The generation.
        arch: String,
    },
    /// Sysfs lists this accel node, which does not exist.
    #[error(
        "{} does not exist although the kernel has such a device; in a container, pass it in \
         (`--device={}`); otherwise udev has not created it: `sudo udevadm trigger`",
        .0.display(), .0.display()
    )]
    NodeMissing(PathBuf),
    /// This process may not read and write a node.
    #[error("no permission to read and write {}: {}; {}", node.display(), situation(owner, who), permission_fix(node, owner, who))]
    Forbidden {
        /// The node.
        node: PathBuf,
        /// Who owns it.
        owner: Owner,
        /// The identity of the process.
        who: Identity,
    },
    /// A node cannot be used for another reason.
    #[error("{} cannot be used: {reason}", node.display())]
    NodeUnusable {
        /// The node.
        node: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// The kernel offers no KFD, whose node would be this.
    #[error(
        "{} does not exist, so the kernel offers no KFD; ROCR ends the process in an assert without it, so it is not opened; \
         load the module that has the KFD with `sudo modprobe amdgpu` (it needs AMD graphics, also integrated ones)",
        .0.display()
    )]
    KfdAbsent(PathBuf),
    /// The kernel has a KFD, but this, its node, is not here.
    #[error(
        "{} does not exist although the kernel has a KFD; ROCR ends the process in an assert without it, so it is not opened; \
         in a container, pass it in (`--device={}`); otherwise udev has not created it: `sudo udevadm trigger`",
        .0.display(), .0.display()
    )]
    KfdNodeMissing(PathBuf),
    /// The KFD's topology, in this folder, has no CPU, so ROCR would have no CPU agent.
    #[error(
        "the KFD's topology in {} names no node with CPU cores; ROCR ends the process in an assert without one, so it is not \
         opened; in a container, share the host's /sys; otherwise load the kernel module amdgpu again",
        .0.display()
    )]
    KfdWithoutCpu(PathBuf),
    /// ROCR uses one NPU only, and another comes first.
    #[error(
        "ROCR 7 opens only the lowest accel node that answers, which is {}, so it does not see {}; use that device, or unbind \
         it from amdxdna", first.display(), node.display()
    )]
    NotTheFirst {
        /// The node that ROCR opens.
        first: PathBuf,
        /// This NPU's node.
        node: PathBuf,
    },
}

impl Obstacle {
    /// The cause, and how to fix it where that is known.
    pub fn cause_and_fix(&self) -> (String, Option<String>) {
        split(&self.to_string())
    }
}

impl Warning {
    /// What may become a problem, and how to fix it where that is known.
    pub fn cause_and_fix(&self) -> (String, Option<String>) {
        split(&self.to_string())
    }
}

fn split(text: &str) -> (String, Option<String>) {
    match text.split_once("; ") {
        Some((cause, fix)) => (cause.to_owned(), Some(fix.to_owned())),
        None => (text.to_owned(), None),
    }
}

/// What lets a user lock more memory: the one remedy that every message about it has.
pub const LOCK_MORE: &str = "`printf '* - memlock unlimited\\n' | sudo tee /etc/security/limits.d/70-npu.conf`, then log out and in again; \
                             for a service of systemd `LimitMEMLOCK=infinity`; in a container `--ulimit memlock=-1`";

/// What may become a problem. As text it is the cause, a semicolon, and how to fix it.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// RLIMIT_MEMLOCK is small.
    #[error(
        "this process may lock {limit} bytes of memory (`ulimit -l`), less than {wanted}, and runtimes that pin a program's own \
         memory for the NPU can run out of it; {}",
        LOCK_MORE
    )]
    LockableMemory {
        /// The soft limit in bytes.
        limit: u64,
        /// Size of the device heap in bytes.
        wanted: u64,
    },
    /// The firmware's version is not four numbers, so it was not compared.
    #[error("PCI device {address}: the firmware's version was not checked: {reason}")]
    FirmwareUnreadable {
        /// The PCI address.
        address: String,
        /// What is wrong with the text.
        reason: String,
    },
}

fn version(module: &Option<String>) -> String {
    module.as_ref().map_or_else(String::new, |version| format!(" (version {version})"))
}

fn situation(owner: &Owner, who: &Identity) -> String {
    format!(
        "it belongs to user `{}` and group `{}` with mode {:04o}, and user `{}` is in groups {}",
        owner.user,
        owner.group,
        owner.mode,
        who.user,
        if who.groups.is_empty() { "none".to_owned() } else { who.groups.join(", ") }
    )
}

/// The group that distributions give to device nodes of this kind.
const DEVICE_GROUP: &str = "render";

fn permission_fix(node: &std::path::Path, owner: &Owner, who: &Identity) -> String {
    let group = &owner.group;
    let group_may = owner.mode & 0o060 == 0o060;
    if group_may && group != "root" {
        if who.groups.contains(group) {
            return "the process is in that group, so something else denies access: a security module or the container's rules"
                .to_owned();
        }
        if owner.member {
            return format!("the account is in group `{group}` since this login: log out and in again");
        }
        return format!("`sudo usermod -aG {group} {}`, then log out and in again", who.user);
    }
    // Joining a group would not help, or would be joining `root`: the node itself is set up wrong.
    let name = node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let matches = match name.strip_prefix("accel") {
        Some(_) => "SUBSYSTEM==\"accel\", KERNEL==\"accel*\"".to_owned(),
        None => format!("KERNEL==\"{name}\""),
    };
    format!(
        "put the line `{matches}, GROUP=\"{DEVICE_GROUP}\", MODE=\"0660\"` into /etc/udev/rules.d/70-npu.rules, run \
         `sudo udevadm control --reload && sudo udevadm trigger`, then `sudo usermod -aG {DEVICE_GROUP} {}`, and log out and \
         in again",
        who.user
    )
}
