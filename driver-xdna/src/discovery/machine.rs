//! The machine that is probed, and the process.
//!
//! Whether a node could be opened is asked with access(2): opening `/dev/kfd` or an accel node makes the kernel set up state for
//! this process, and a listing must not do that. Access is checked for the real user. What access(2) does not know: the device
//! rules of a container, which may reject a node that is there.
//!
//! The calls go through the C library, never straight to the kernel, so that a preload library can stand in for devices.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access, getegid, getgroups, getuid};
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who runs this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name, or number when it has none.
    pub user: String,
    /// The groups that this process is in, by name.
    pub groups: Vec<String>,
}

/// Who may use a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The owning user.
    pub user: String,
    /// The owning group.
    pub group: String,
    /// Permission bits, e.g. `0o660`.
    pub mode: u32,
    /// Whether the account is a member of the group in the system's database. The process may still not be in it: it has the
    /// groups of its login.
    pub member: bool,
}

/// Properties of the running process. A trait, so that tests can be a user they are not.
pub trait Process: Debug + Send + Sync {
    /// Whether this process may read and write `node`.
    ///
    /// # Errors
    /// The system's: `NotFound`, `PermissionDenied`, others.
    fn may_use(&self, node: &Path) -> io::Result<()>;
    /// Who owns `node`.
    ///
    /// # Errors
    /// The system's.
    fn owner(&self, node: &Path) -> io::Result<Owner>;
    /// The identity of the process.
    fn identity(&self) -> Identity;
    /// Bytes of memory this process may lock (the soft limit); `None` when there is no limit.
    fn lockable_bytes(&self) -> Option<u64>;
}

/// The process this code runs in.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisProcess;

fn user_name(uid: Uid) -> String {
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn group_name(gid: Gid) -> String {
    Group::from_gid(gid).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

impl Process for ThisProcess {
    fn may_use(&self, node: &Path) -> io::Result<()> {
        Ok(access(node, AccessFlags::R_OK | AccessFlags::W_OK)?)
    }

    fn owner(&self, node: &Path) -> io::Result<Owner> {
        let metadata = fs::metadata(node)?;
        let gid = Gid::from_raw(metadata.gid());
        let me = user_name(getuid());
        let members = Group::from_gid(gid).ok().flatten().map_or_else(Vec::new, |group| group.mem);
        Ok(Owner {
            user: user_name(Uid::from_raw(metadata.uid())),
            group: group_name(gid),
            mode: metadata.mode() & 0o7777,
            member: members.contains(&me),
        })
    }

    fn identity(&self) -> Identity {
        let mut groups: Vec<Gid> = getgroups().unwrap_or_default();
        groups.push(getegid());
        groups.sort_by_key(|gid| gid.as_raw());
        groups.dedup();
        Identity { user: user_name(getuid()), groups: groups.into_iter().map(group_name).collect() }
    }

    fn lockable_bytes(&self) -> Option<u64> {
        let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
        (soft != RLIM_INFINITY).then_some(soft)
    }
}

/// Where a machine's devices are described, and the process.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The sysfs tree.
    pub sysfs: PathBuf,
    /// The folder of device nodes.
    pub dev: PathBuf,
    /// The process that wants to use them.
    pub process: Arc<dyn Process>,
}

impl Machine {
    /// This machine: `/sys`, `/dev` and this process.
    pub fn this() -> Self {
        Self { sysfs: "/sys".into(), dev: "/dev".into(), process: Arc::new(ThisProcess) }
    }

    /// The node of the KFD.
    pub fn kfd(&self) -> PathBuf {
        self.dev.join("kfd")
    }

    /// An accel node.
    pub fn accel(&self, number: usize) -> PathBuf {
        self.dev.join(format!("accel/accel{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_user_and_groups() {
        let identity = ThisProcess.identity();
        assert!(!identity.user.is_empty() && !identity.groups.is_empty(), "{identity:?}");
        let folder = tempfile::tempdir().unwrap();
        let node = folder.path().join("node");
        assert_eq!(ThisProcess.may_use(&node).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(ThisProcess.owner(&node).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&node, "").unwrap();
        ThisProcess.may_use(&node).unwrap();
        let owner = ThisProcess.owner(&node).unwrap();
        assert_eq!(owner.user, user_name(nix::unistd::geteuid()));
        assert_ne!(owner.mode & 0o400, 0);
    }

    #[test]
    fn nodes_are_where_the_kernel_puts_them() {
        let machine = Machine::this();
        assert_eq!(machine.kfd(), Path::new("/dev/kfd"));
        assert_eq!(machine.accel(3), Path::new("/dev/accel/accel3"));
    }
}
