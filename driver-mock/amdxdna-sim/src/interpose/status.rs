//! The `stat` family. The stand-ins of device nodes are plain files; here they become character devices.

use super::files::target;
use crate::libc_functions;
use crate::node::Open;
use crate::process::{simulated, with_files};
use crate::sysfs::Node;
use libc::{c_char, c_int, c_uint};
use std::sync::Arc;

/// # Safety
/// `path` is null or a C string; `status` is what `real` fills.
unsafe fn in_tree<S: Status>(path: *const c_char, status: *mut S, real: impl Fn(*const c_char) -> c_int) -> c_int {
    // SAFETY: the caller's path.
    let Some(ours) = with_files(|process| unsafe { target(process, path) }) else { return real(path) };
    // SAFETY: the caller's structure.
    unsafe { marked(status, real(ours.path.as_ptr()), || ours.node) }
}

/// Makes a device node's status that of a character device, when the call has succeeded.
///
/// # Safety
/// `status` is what the call fills.
unsafe fn marked<S: Status>(status: *mut S, result: c_int, node: impl FnOnce() -> Option<Node>) -> c_int {
    if result == 0
        && let Some(node) = node()
    {
        // SAFETY: the caller's structure, which has just been filled.
        unsafe { (*status).mark(node.numbers()) };
    }
    result
}

/// What the functions of the family fill.
trait Status {
    /// Makes it that of a character device with these numbers.
    fn mark(&mut self, numbers: (u32, u32));
}

impl Status for libc::stat64 {
    fn mark(&mut self, (major, minor): (u32, u32)) {
        self.st_mode = self.st_mode & !libc::S_IFMT | libc::S_IFCHR;
        self.st_rdev = libc::makedev(major, minor);
        self.st_size = 0;
    }
}

impl Status for libc::statx {
    fn mark(&mut self, numbers: (u32, u32)) {
        self.stx_mode = self.stx_mode & !(libc::S_IFMT as u16) | libc::S_IFCHR as u16;
        (self.stx_rdev_major, self.stx_rdev_minor) = numbers;
        self.stx_size = 0;
    }
}

fn open_node(fd: c_int) -> Option<Node> {
    simulated(|process| match process.descriptors.get(fd)? {
        Open::Accel(file) => process.devices.iter().position(|d| Arc::ptr_eq(d, file.device())).map(Node::Accel),
        Open::Kfd => Some(Node::Kfd),
        Open::Bo(_) | Open::Syncobj(_) | Open::SyncFile(_) | Open::Host(_) => None,
    })
}

pub unsafe fn fstat(fd: c_int, status: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { marked(status, libc_functions::fstat64(fd, status), || open_node(fd)) }
}

pub unsafe fn stat(path: *const c_char, status: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { in_tree(path, status, |path| libc_functions::stat64(path, status)) }
}

pub unsafe fn lstat(path: *const c_char, status: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { in_tree(path, status, |path| libc_functions::lstat64(path, status)) }
}

pub unsafe fn fstatat(folder: c_int, path: *const c_char, status: *mut libc::stat64, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { in_tree(path, status, |path| libc_functions::fstatat64(folder, path, status, flags)) }
}

pub unsafe fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) -> c_int {
    let real = |path| {
        // SAFETY: the caller's arguments, or a C string of ours in place of the path.
        unsafe { libc_functions::statx(folder, path, flags, mask, status) }
    };
    // Rust's standard library asks for the status of a descriptor in this way.
    if flags & libc::AT_EMPTY_PATH != 0
        && let Some(node) = open_node(folder)
    {
        // SAFETY: the caller's structure.
        return unsafe { marked(status, real(path), || Some(node)) };
    }
    // SAFETY: the caller's path and structure.
    unsafe { in_tree(path, status, real) }
}
