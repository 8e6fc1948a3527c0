//! A machine in order, in a folder, to be broken.

use super::super::machine::Machine;
use super::super::opening::Opening;
use aie_driver_xdna::discovery::Process;
use aie_driver_xdna::discovery::machine::{Identity, Owner};
use aie_hal::error::Remedy;
use aie_hal::{ArchRegistry, Environment};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Address of the NPU.
const ADDRESS: &str = "0000:c6:00.1";
pub const DEVICE: &str = "/sys/devices/pci0000:00/0000:c6:00.1";
pub const LIBRARY: &str = "/opt/ggml-hsa/lib/libggml-hsa.so";
pub const GGML: &str = "/usr/lib/x86_64-linux-gnu/libggml-base.so.0.27.0";
pub const LOADER: &str = "/usr/lib/x86_64-linux-gnu/libggml.so.0.27.0";
/// The ELF machine of this processor: x86-64 or AArch64.
pub const HERE: u8 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
/// The functions of a backend that matter here.
pub const BACKEND: &[&str] = &["ggml_backend_init"];
/// What opening the NPU gives: nothing, or `idle` or `rejected` with the name of a remedy, and a reason.
const OPENING: &str = "/opening";
/// Those that the table has.
const REMEDIES: [Remedy; 4] = [Remedy::AnotherUri, Remedy::ReleasedByOthers, Remedy::NewerKernelDriver, Remedy::Iommu];

/// Who uses the machine.
#[derive(Debug, Clone)]
struct User {
    /// What access(2) rejects, with the owner where that is known.
    rejected: BTreeMap<PathBuf, Option<Owner>>,
    lockable: Option<u64>,
    groups: Vec<String>,
}

impl Process for User {
    fn may_use(&self, node: &Path) -> io::Result<()> {
        match self.rejected.contains_key(node) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => fs::metadata(node).map(drop),
        }
    }

    fn owner(&self, node: &Path) -> io::Result<Owner> {
        self.rejected.get(node).cloned().flatten().ok_or(io::ErrorKind::NotFound.into())
    }

    fn identity(&self) -> Identity {
        Identity { user: "$USER".into(), groups: self.groups.clone() }
    }

    fn lockable_bytes(&self) -> Option<u64> {
        self.lockable
    }
}

/// The machine, its user and the environment.
pub struct Rig {
    root: TempDir,
    user: User,
    variables: BTreeMap<String, String>,
}

impl Rig {
    /// An NPU with its driver, firmware, IOMMU, an installed library, and llama.cpp.
    pub fn new() -> Self {
        let user = User { rejected: BTreeMap::new(), lockable: None, groups: vec!["render".into()] };
        let mut rig = Self { root: TempDir::new().unwrap(), user, variables: BTreeMap::new() };
        rig.write("/proc/sys/kernel/osrelease", "6.18.12-amd64\n");
        rig.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet\n");
        rig.folder("/sys/module/amdxdna");
        rig.folder("/sys/class/iommu/ivhd0");
        for (name, text) in [("vendor", "0x1022"), ("device", "0x17f0"), ("revision", "0x10")] {
            rig.write(&format!("{DEVICE}/{name}"), text);
        }
        rig.write(&format!("{DEVICE}/iommu_group/type"), "DMA-FQ\n");
        rig.link(&format!("/sys/bus/pci/devices/{ADDRESS}"), DEVICE);
        rig.write("/lib/firmware/amdnpu/17f0_10/npu.sbin.zst", "");
        rig.serve();
        rig.write("/usr/bin/llama-cli", "");
        rig.ggml(&["ggml_backend_tensor_set_2d", "ggml_backend_buft_alloc_buffer_n"]);
        rig.elf(LOADER, 62, &["GGML_BACKEND_PATH"]);
        rig.elf(LIBRARY, HERE, BACKEND);
        rig.folder("/opt/ggml-hsa/bin");
        rig.folder("/home/ada");
        rig.set("PATH", "/usr/bin:/bin");
        rig.set("HOME", "/home/ada");
        rig
    }

    pub fn machine(&self) -> Machine {
        let environment = Environment::from_pairs(self.variables.clone());
        let user = Arc::new(self.user.clone());
        let mut machine = Machine::new(self.root.path().to_owned(), user, environment, ArchRegistry::builtin());
        machine.programs = Some("/opt/ggml-hsa/bin".into());
        machine.open = Some(open);
        machine
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub fn folder(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }

    /// A symbolic link within the machine.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(self.path(target), path).unwrap();
    }

    /// A link as the kernel shows open files, whose target is not below the root.
    pub fn open_file(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.into(), value.into());
    }

    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// The kernel's options.
    pub fn boot(&self, options: &str) {
        self.write("/proc/cmdline", format!("BOOT_IMAGE=/vmlinuz root=UUID=1 quiet {options}\n"));
    }

    /// Binds the NPU to a driver.
    pub fn bind(&self, driver: &str) {
        self.folder(&format!("/sys/bus/pci/drivers/{driver}"));
        self.link(&format!("{DEVICE}/driver"), &format!("/sys/bus/pci/drivers/{driver}"));
    }

    /// amdxdna serves the NPU.
    pub fn serve(&self) {
        self.folder("/sys/module/amdxdna");
        self.bind("amdxdna");
        self.write(&format!("{DEVICE}/vbnv"), "NPU Strix\n");
        self.write(&format!("{DEVICE}/fw_version"), "1.1.2.64\n");
        let accel = format!("{DEVICE}/accel/accel0");
        self.folder(&accel);
        self.link(&format!("{accel}/device"), DEVICE);
        self.link("/sys/class/accel/accel0", &accel);
        self.write("/dev/accel/accel0", "");
    }

    /// No driver serves the NPU.
    pub fn unserve(&self) {
        for path in [&format!("{DEVICE}/driver"), "/sys/class/accel/accel0", "/dev/accel/accel0"] {
            self.remove(path);
        }
    }

    /// Without the driver's module.
    pub fn unload(&self) {
        self.unserve();
        self.remove("/sys/module/amdxdna");
    }

    /// The process may not use a path.
    pub fn forbid(&mut self, path: &str, group: &str, mode: u32, member: bool) {
        let owner = Owner { user: "root".into(), group: group.into(), mode, member };
        self.user.rejected.insert(self.path(path), Some(owner));
    }

    pub fn allow_all(&mut self) {
        self.user.rejected.clear();
    }

    pub fn groups(&mut self, groups: &[&str]) {
        self.user.groups = groups.iter().map(|group| (*group).to_owned()).collect();
    }

    pub fn lockable(&mut self, bytes: Option<u64>) {
        self.user.lockable = bytes;
    }

    /// An ELF file with these strings.
    pub fn elf(&self, path: &str, machine: u8, strings: &[&str]) {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        bytes.extend([machine, 0, 0]);
        strings.iter().for_each(|text| bytes.extend([text.as_bytes(), b"\0"].concat()));
        self.write(path, bytes);
    }

    /// A libggml-base with these functions beside those that all have.
    pub fn ggml(&self, functions: &[&str]) {
        self.elf(GGML, 62, &[&["ggml_backend_buffer_init"], functions].concat());
    }

    /// What opening the NPU gives.
    pub fn opening(&self, text: &str) {
        self.write(OPENING, text);
    }

    /// The NPU works.
    pub fn opens(&self) {
        self.remove(OPENING);
    }
}

/// Plays what opening gives.
fn open(machine: &Machine) -> Vec<Opening> {
    let uri = "xdna://pci-0000:c6:00.1".to_owned();
    let text = machine.text(OPENING).unwrap_or_default();
    vec![match text.split_once(": ") {
        None => Opening::Offered { uri, copied: Some("this is a test".to_owned()) },
        Some((idle, reason)) if idle.starts_with("idle") => {
            Opening::Idle { uri, reason: reason.to_owned(), has_unused: idle.ends_with("unused") }
        }
        Some((rejected, reason)) => {
            let named = |remedy: &Remedy| rejected.ends_with(&format!("{remedy:?}"));
            Opening::Rejected { uri, reason: reason.to_owned(), remedy: REMEDIES.into_iter().find(named) }
        }
    }]
}
