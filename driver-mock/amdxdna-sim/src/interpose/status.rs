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
unsafe fn in_tree(path: *const c_char, status: *mut libc::stat64, real: impl Fn(*const c_char) -> c_int) -> c_int {
    // SAFETY: the caller's path.
    let Some(ours) = with_files(|process| unsafe { target(process, path) }) else { return real(path) };
    let result = real(ours.path.as_ptr());
    if let (0, Some(node)) = (result, ours.node) {
        // SAFETY: the caller's structure, which has just been filled.
        mark_old(unsafe { &mut *status }, node);
    }
    result
}

fn mark_old(status: &mut libc::stat64, node: Node) {
    let (major, minor) = node.numbers();
    status.st_mode = status.st_mode & !libc::S_IFMT | libc::S_IFCHR;
    status.st_rdev = libc::makedev(major, minor);
    status.st_size = 0;
}

/// The device node that is open as `fd`.
fn open_node(fd: c_int) -> Option<Node> {
    simulated(|process| match process.descriptors.get(fd)? {
        Open::Accel(file) => process.devices.iter().position(|d| Arc::ptr_eq(d, file.device())).map(Node::Accel),
        Open::Kfd => Some(Node::Kfd),
        Open::Bo(_) | Open::Syncobj(_) | Open::SyncFile(_) | Open::Host(_) => None,
    })
}

pub unsafe fn fstat(fd: c_int, status: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { libc_functions::fstat64(fd, status) };
    if let (0, Some(node)) = (result, open_node(fd)) {
        // SAFETY: the caller's structure, which has just been filled.
        mark_old(unsafe { &mut *status }, node);
    }
    result
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

/// `__fxstatat`, as programs built against an old C library call it.
pub unsafe fn fstatat_versioned(
    _version: c_int,
    folder: c_int,
    path: *const c_char,
    status: *mut libc::stat64,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fstatat(folder, path, status, flags) }
}

pub unsafe fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) -> c_int {
    // SAFETY: the caller's path.
    let Some(ours) = with_files(|process| unsafe { target(process, path) }) else {
        // SAFETY: the caller's arguments.
        let result = unsafe { libc_functions::statx(folder, path, flags, mask, status) };
        // Rust's standard library asks for the status of a descriptor in this way.
        if let (0, true, Some(node)) = (result, flags & libc::AT_EMPTY_PATH != 0, open_node(folder)) {
            // SAFETY: the caller's structure, which has just been filled.
            unsafe { mark(&mut *status, node) };
        }
        return result;
    };
    // SAFETY: a C string of ours; the caller's other arguments.
    let result = unsafe { libc_functions::statx(folder, ours.path.as_ptr(), flags, mask, status) };
    if let (0, Some(node)) = (result, ours.node) {
        // SAFETY: the caller's structure, which has just been filled.
        unsafe { mark(&mut *status, node) };
    }
    result
}

fn mark(status: &mut libc::statx, node: Node) {
    let format = libc::S_IFMT as u16;
    status.stx_mode = status.stx_mode & !format | libc::S_IFCHR as u16;
    (status.stx_rdev_major, status.stx_rdev_minor) = node.numbers();
    status.stx_size = 0;
}
