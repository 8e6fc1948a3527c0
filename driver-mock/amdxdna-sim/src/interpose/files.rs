//! Functions that take a path.

use super::result;
use crate::host_device::Host;
use crate::libc_functions;
use crate::process::{Process, simulated, with_files};
use crate::settings::Presence;
use crate::sysfs::{Node, Target};
use libc::{c_char, c_int, mode_t, size_t, ssize_t};
use nix::errno::Errno;
use std::ffi::CStr;

/// Where a path of the caller leads, when it is redirected.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn target(process: &Process, path: *const c_char) -> Option<Target> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string, as the caller promises.
    let path = unsafe { CStr::from_ptr(path) };
    if !process.prefixes.cover(path) {
        return None;
    }
    process.tree().redirect(path)
}

fn presence(process: &Process, node: Node) -> Presence {
    match node {
        Node::Kfd => process.settings.machine.kfd,
        Node::Accel(_) => process.settings.machine.node,
    }
}

fn open_target(process: &Process, target: &Target, flags: c_int, mode: mode_t) -> Result<i32, Errno> {
    let plain = || {
        // SAFETY: the path is a C string.
        let fd = unsafe { libc_functions::open(target.path.as_ptr(), flags, mode) };
        if fd < 0 { Err(Errno::last()) } else { Ok(fd) }
    };
    let Some(node) = target.node else { return plain() };
    let name = match node {
        Node::Kfd => "OPEN_KFD",
        Node::Accel(_) => "OPEN_ACCEL",
    };
    let open = || {
        process.journal.enter(name)?;
        if presence(process, node) == Presence::Forbidden {
            return Err(Errno::EACCES);
        }
        // What is behind the node must not be changed by how it is opened.
        let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_APPEND);
        // SAFETY: the path is a C string.
        let fd = unsafe { libc_functions::open(target.path.as_ptr(), flags, mode) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // Closed again when the device rejects the mapping.
        let fd = crate::memory::Descriptor::new(fd);
        process.opened(fd.number(), node)?;
        Ok(fd.release())
    };
    let result = open();
    process.journal.leave(name, String::new, &result);
    result
}

/// Opens `path` with `real` when it is a node of the host whose calls are recorded.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn open_host(
    process: &Process,
    path: *const c_char,
    real: impl FnOnce() -> c_int,
) -> Option<Result<i32, Errno>> {
    let host = process.host.as_ref().filter(|_| !path.is_null())?;
    // SAFETY: a C string, as the caller promises.
    if !Host::has(unsafe { CStr::from_ptr(path) }) {
        return None;
    }
    let opened = process.journal.enter("OPEN_ACCEL").and_then(|()| match real() {
        fd if fd < 0 => Err(Errno::last()),
        fd => {
            process.opened_host(fd, host.file());
            Ok(fd)
        }
    });
    process.journal.leave("OPEN_ACCEL", String::new, &opened);
    Some(opened)
}

/// # Safety
/// `path` is null or a C string.
unsafe fn open_in(path: *const c_char, flags: c_int, mode: mode_t, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's path.
    let ours = simulated(|process| match unsafe { target(process, path) } {
        Some(target) => Some(open_target(process, &target, flags, mode)),
        // SAFETY: the caller's path.
        None => unsafe { open_host(process, path, &real) },
    });
    ours.map_or_else(real, result)
}

/// Makes a call on `path`, or on the path in the tree that it is redirected to.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn redirected<R>(path: *const c_char, real: impl FnOnce(*const c_char) -> R) -> R {
    // SAFETY: the caller's path.
    let ours = with_files(|process| unsafe { target(process, path) });
    real(ours.as_ref().map_or(path, |target| target.path.as_ptr()))
}

pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_in(path, flags, mode, || libc_functions::open(path, flags, mode)) }
}

pub unsafe fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_in(path, flags, mode, || libc_functions::openat(folder, path, flags, mode)) }
}

/// A device node opened so is a plain file: nothing makes ioctls on one.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller's arguments.
    unsafe { redirected(path, |path| libc_functions::fopen(path, mode)) }
}

pub unsafe fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the caller's path.
    unsafe { redirected(path, |path| libc_functions::opendir(path)) }
}

/// `access`, and its relatives for the effective user.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { access_in(path, mode, |path| libc_functions::access(path, mode)) }
}

pub unsafe fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { access_in(path, mode, |path| libc_functions::faccessat(folder, path, mode, flags)) }
}

/// # Safety
/// `path` is null or a C string.
unsafe fn access_in(path: *const c_char, mode: c_int, real: impl Fn(*const c_char) -> c_int) -> c_int {
    let ours = with_files(|process| {
        // SAFETY: the caller's path.
        let target = unsafe { target(process, path) }?;
        let forbidden = target.node.is_some_and(|node| presence(process, node) == Presence::Forbidden);
        Some((target, forbidden && mode != libc::F_OK))
    });
    match ours {
        Some((_, true)) => result(Err(Errno::EACCES)),
        Some((target, false)) => real(target.path.as_ptr()),
        None => real(path),
    }
}

/// Links in the tree are relative, so their text is right as it is.
pub unsafe fn readlink(path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { redirected(path, |path| libc_functions::readlink(path, buffer, length)) }
}

pub unsafe fn readlinkat(folder: c_int, path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { redirected(path, |path| libc_functions::readlinkat(folder, path, buffer, length)) }
}

pub unsafe fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's path.
    let Some(ours) = with_files(|process| unsafe { target(process, path) }) else {
        // SAFETY: the caller's arguments.
        return unsafe { libc_functions::realpath(path, resolved) };
    };
    // SAFETY: a C string of ours; the caller's buffer, or null.
    let found = unsafe { libc_functions::realpath(ours.path.as_ptr(), resolved) };
    if found.is_null() {
        return found;
    }
    let outside = with_files(|process| {
        // SAFETY: a C string that `realpath` has written.
        let text = unsafe { CStr::from_ptr(found) };
        process.tree().outside(text.to_bytes()).map(<[u8]>::to_vec)
    });
    if let Some(outside) = outside {
        // SAFETY: the text of the tree's path is longer than what is left without its root, so there is room, also for the
        // end of the string.
        unsafe {
            std::ptr::copy_nonoverlapping(outside.as_ptr().cast(), found, outside.len());
            *found.add(outside.len()) = 0;
        }
    }
    Errno::clear();
    found
}
