//! Functions that take a descriptor, and memory mappings.

use super::result;
use crate::forks;
use crate::host_device;
use crate::libc_functions;
use crate::node::Open;
use crate::node::{self, MapRequest};
use crate::process::{Process, in_child, simulated};
use crate::user_access::UserMemory;
use libc::{c_int, c_ulong, c_void, size_t};
use nix::errno::Errno;

pub unsafe fn close(fd: c_int) -> c_int {
    let planned = simulated(|process| {
        let open = process.descriptors.take(fd)?;
        let planned =
            if matches!(open, Open::Accel(_) | Open::Host(_)) { process.journal.enter("CLOSE") } else { Ok(()) };
        drop(open);
        process.journal.leave("CLOSE", String::new, &planned);
        Some(planned)
    });
    // SAFETY: the caller's descriptor. As in Linux it is closed whatever is returned.
    let closed = unsafe { libc_functions::close(fd) };
    match planned {
        Some(Err(errno)) => result(Err(errno)),
        _ => closed,
    }
}

/// `copy` is a second descriptor of what `fd` is.
fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 && copy != fd {
        simulated(|process| {
            match process.descriptors.get(fd) {
                Some(open) => process.descriptors.set(copy, open),
                None => drop(process.descriptors.take(copy)),
            }
            Some(())
        });
    }
    copy
}

pub unsafe fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    copied(fd, unsafe { libc_functions::dup(fd) })
}

pub unsafe fn dup2(fd: c_int, target: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    copied(fd, unsafe { libc_functions::dup2(fd, target) })
}

pub unsafe fn dup3(fd: c_int, target: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    copied(fd, unsafe { libc_functions::dup3(fd, target, flags) })
}

pub unsafe fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    let found = unsafe { libc_functions::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(fd, found) } else { found }
}

pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let address = argument.expose_provenance() as u64;
    // SAFETY: `address`, and the addresses in the structure there, are the caller's.
    let user = unsafe { UserMemory::of_caller() };
    // Not inside of the simulator: what the child calls is the program's.
    if let Some(end) = simulated(|process| forks::planned(process.settings.fork, &process.descriptors, fd, request)) {
        forks::make(end);
    }
    // SAFETY: the caller's structure.
    if let Some(answer) = in_child(|process| unsafe { forks::ask(&process.descriptors, fd, request, address) }) {
        return result(answer.map(|()| 0));
    }
    let ours = simulated(|process| match process.descriptors.get(fd)? {
        Open::Accel(file) => Some(node::ioctl::ioctl(&file, &process.descriptors, user, request, address)),
        Open::Kfd => Some(process.kfd.ioctl(user, request, address)),
        Open::Host(file) => Some(host_device::ioctl(&process.journal, file, request, address, || {
            // SAFETY: the caller's arguments.
            if unsafe { libc_functions::ioctl(fd, request, argument) } < 0 { Err(Errno::last()) } else { Ok(()) }
        })),
        Open::Bo(_) | Open::Syncobj(_) | Open::SyncFile(_) => Some(Err(Errno::ENOTTY)),
    });
    match ours {
        Some(ours) => result(ours.map(|()| 0)),
        // SAFETY: the caller's arguments.
        None => unsafe { libc_functions::ioctl(fd, request, argument) },
    }
}

/// Whether a file is open for less than a shared mapping of it needs.
fn is_forbidden(fd: c_int, wanted: &MapRequest) -> bool {
    // SAFETY: asks for flags.
    let mode = unsafe { libc_functions::fcntl64(fd, libc::F_GETFL, std::ptr::null_mut()) } & libc::O_ACCMODE;
    let is_written = wanted.prot & libc::PROT_WRITE != 0 && wanted.flags & libc::MAP_TYPE == libc::MAP_SHARED;
    mode == libc::O_WRONLY || (mode == libc::O_RDONLY && is_written)
}

fn map(
    process: &Process,
    fd: c_int,
    open: &Open,
    wanted: &MapRequest,
    offset: i64,
    real: impl FnOnce() -> *mut c_void,
) -> Result<usize, Errno> {
    match open {
        Open::Host(_) => match real() {
            libc::MAP_FAILED => Err(Errno::last()),
            found => {
                let start = found.expose_provenance();
                process.host.iter().for_each(|host| host.mapped(start, wanted.length));
                Ok(start)
            }
        },
        // What the kernel looks at before it asks a driver.
        Open::Accel(_) if is_forbidden(fd, wanted) => Err(Errno::EACCES),
        Open::Accel(file) => process.mappings.map(file.mappable(offset as u64, wanted.length, wanted.flags)?, wanted),
        Open::Bo(bo) => {
            let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(wanted.length));
            if end.is_none_or(|end| end > bo.length()) {
                return Err(Errno::EINVAL);
            }
            // As in amdxdna, which puts the BO's pages from the first one on into any mapping of an exported BO.
            process.mappings.map(bo.clone(), wanted)
        }
        Open::Kfd | Open::Syncobj(_) | Open::SyncFile(_) => Err(Errno::ENODEV),
    }
}

pub unsafe fn mmap(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let wanted = MapRequest { address: address.expose_provenance(), length, prot, flags, offset: 0 };
    // SAFETY: the caller's arguments.
    let real = || unsafe { libc_functions::mmap(address, length, prot, flags, fd, offset) };
    let ours = simulated(|process| {
        let open = if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 { process.descriptors.get(fd) } else { None };
        let Some(open) = open else {
            // Something else takes the place of a BO.
            if flags & libc::MAP_FIXED != 0 {
                process.mappings.remove(wanted.address, length);
                process.host.iter().for_each(|host| host.unmapped(wanted.address, length));
            }
            return None;
        };
        let mapped = process.journal.enter("MMAP").and_then(|()| map(process, fd, &open, &wanted, offset, real));
        process.journal.leave("MMAP", || format!("length={length}"), &mapped);
        Some(mapped)
    });
    match ours {
        Some(Ok(found)) => std::ptr::with_exposed_provenance_mut(found),
        Some(Err(errno)) => {
            errno.set();
            libc::MAP_FAILED
        }
        None => real(),
    }
}

pub unsafe fn munmap(address: *mut c_void, length: size_t) -> c_int {
    let start = address.expose_provenance();
    let planned = simulated(|process| {
        let is_host = process.host.as_ref().is_some_and(|host| host.contains(start, length));
        let is_ours = || process.mappings.may_contain(start, length) && process.mappings.contains(start, length);
        if !is_host && !is_ours() {
            return None;
        }
        let planned = process.journal.enter("MUNMAP");
        process.journal.leave("MUNMAP", || format!("length={length}"), &planned);
        if planned.is_ok() {
            process.mappings.remove(start, length);
            process.host.iter().for_each(|host| host.unmapped(start, length));
        }
        Some(planned)
    });
    match planned {
        Some(Err(errno)) => result(Err(errno)),
        // SAFETY: the caller's arguments.
        _ => unsafe { libc_functions::munmap(address, length) },
    }
}
