//! Fake machines for tests: trees with the layout of `/sys` and `/dev`, and processes with fake rights.

use super::machine::{Identity, Machine, Owner, Process};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A user who may do what the files allow the test to do, except for the nodes named here.
#[derive(Debug, Clone)]
pub(crate) struct FakeProcess {
    /// Nodes that access(2) rejects, with the error and the owner it is to show.
    pub rejected: BTreeMap<PathBuf, (io::ErrorKind, Option<Owner>)>,
    /// The identity of the process.
    pub identity: Identity,
    /// RLIMIT_MEMLOCK.
    pub lockable_bytes: Option<u64>,
}

impl Process for FakeProcess {
    fn may_use(&self, node: &Path) -> io::Result<()> {
        match self.rejected.get(node) {
            Some((kind, _)) => Err((*kind).into()),
            None => fs::metadata(node).map(drop),
        }
    }

    fn owner(&self, node: &Path) -> io::Result<Owner> {
        self.rejected.get(node).and_then(|(_, owner)| owner.clone()).ok_or(io::ErrorKind::PermissionDenied.into())
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn lockable_bytes(&self) -> Option<u64> {
        self.lockable_bytes
    }
}

/// A machine in a temporary folder: a loaded module, a KFD with a CPU, no NPU yet.
#[derive(Debug)]
pub(crate) struct FakeMachine {
    folder: TempDir,
    /// The identity of the process.
    pub process: FakeProcess,
}

impl FakeMachine {
    pub fn new() -> Self {
        let tree = Self {
            folder: TempDir::new().unwrap(),
            process: FakeProcess {
                rejected: BTreeMap::new(),
                identity: Identity { user: "ada".into(), groups: vec!["ada".into(), "video".into()] },
                lockable_bytes: None,
            },
        };
        tree.make_folder("sys/module/amdxdna");
        tree.write("devices/virtual/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\nsimd_count 0\n");
        tree.make_node("kfd");
        tree
    }

    /// The machine, seen by this process.
    pub fn machine(&self) -> Machine {
        Machine { sysfs: self.sysfs(), dev: self.dev(), process: Arc::new(self.process.clone()) }
    }

    pub fn sysfs(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    pub fn dev(&self) -> PathBuf {
        self.folder.path().join("dev")
    }

    fn make_folder(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn make_node(&self, name: &str) -> PathBuf {
        let path = self.dev().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    /// Writes an attribute of sysfs.
    pub fn write(&self, attribute: &str, text: &str) {
        let path = self.sysfs().join(attribute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Removes an attribute or folder of sysfs.
    pub fn remove(&self, entry: &str) {
        let path = self.sysfs().join(entry);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// A PCI device of AMD that no driver serves.
    pub fn add_pci(&self, address: &str, device: &str, revision: &str) {
        let folder = format!("devices/pci0000:00/{address}");
        for (name, text) in [("vendor", "0x1022"), ("device", device), ("revision", revision)] {
            self.write(&format!("{folder}/{name}"), &format!("{text}\n"));
        }
        let link = self.make_folder("sys/bus/pci/devices").join(address);
        symlink(self.sysfs().join(folder), link).unwrap();
    }

    /// Binds a PCI device to a kernel driver.
    pub fn bind(&self, address: &str, driver: &str) {
        let target = self.make_folder(&format!("sys/bus/pci/drivers/{driver}"));
        let link = self.sysfs().join(format!("devices/pci0000:00/{address}/driver"));
        let _ = fs::remove_file(&link);
        symlink(target, link).unwrap();
    }

    /// An NPU that amdxdna serves, with its accel node in `/dev`, which is returned.
    pub fn add_npu(&self, number: usize, address: &str, device: &str, revision: &str) -> PathBuf {
        self.add_pci(address, device, revision);
        self.bind(address, "amdxdna");
        let folder = format!("devices/pci0000:00/{address}");
        self.write(&format!("{folder}/vbnv"), "NPU Strix\n");
        self.write(&format!("{folder}/fw_version"), "1.1.2.64\n");
        let accel = self.make_folder(&format!("sys/{folder}/accel/accel{number}"));
        symlink(self.sysfs().join(folder), accel.join("device")).unwrap();
        symlink(&accel, self.make_folder("sys/class/accel").join(format!("accel{number}"))).unwrap();
        self.make_node(&format!("accel/accel{number}"))
    }

    /// Rejects a node to the process.
    pub fn forbid(&mut self, node: &Path, group: &str, mode: u32, member: bool) {
        let owner = Owner { user: "root".into(), group: group.into(), mode, member };
        self.process.rejected.insert(node.to_owned(), (io::ErrorKind::PermissionDenied, Some(owner)));
    }
}
