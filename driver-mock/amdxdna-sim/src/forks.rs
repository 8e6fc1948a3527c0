//! Children that continue after `fork` without `exec`.
//!
//! A child shares the open files of its parent, as it does with the kernel: what it gives back is gone for the parent too. The state of
//! the simulator is the parent's, so a child asks a thread there. Only what gives something back is asked for: for everything else a
//! node is a plain file to a child.
//!
//! `AMDXDNA_SIM_FORK=END@N` makes a child of a program that makes none: before its N-th EXEC_CMD, in the thread that makes the call, with
//! whatever locks the program holds then. With `END@wait:N` it is before the N-th wait for a command instead, for which programs let go of
//! the locks that would keep a child from what is its parent's. The parent waits for the child when it ends itself.

use crate::libc_functions;
use crate::node::{Descriptors, Open, ioctl};
use crate::planned_fork::{End, Fork};
use crate::reentry::spawn;
use crate::standard_error::print;
use crate::user_access::UserMemory;
use amdxdna_sys::{Request, RequestCode, amdxdna_drm_destroy_hwctx, drm_gem_close, drm_syncobj_destroy};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a child may take to end.
const LIMIT: Duration = Duration::from_secs(10);
/// What a planned child becomes with [`End::Exec`], the first of these that there is.
const PROGRAMS: [[&CStr; 2]; 3] = [[c"/bin/true", c"true"], [c"/usr/bin/true", c"true"], [c"/bin/busybox", c"true"]];

/// The sockets between children and the parent: its end, and theirs.
static CHANNEL: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();
/// The planned child.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A message: descriptor, code of the request, and its structure.
type Message = [u8; 16];

/// Whether the request gives something back. All of these have structures of eight bytes without addresses.
fn gives_back(request: u32) -> bool {
    let codes = [amdxdna_drm_destroy_hwctx::CODE, drm_gem_close::CODE, drm_syncobj_destroy::CODE];
    codes.contains(&RequestCode(request))
}

/// Called before the program forks: starts the thread that children ask about what is open.
pub fn prepare(descriptors: &'static Descriptors) {
    let made = || socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).ok();
    if CHANNEL.get().is_some() {
        return;
    }
    if let Some((parent, child)) = made()
        && CHANNEL.set((parent, child)).is_ok()
        && let Err(cause) = spawn("amdxdna-forks", move || serve(descriptors))
    {
        print(&format!("forked children have no devices: {cause}"));
    }
}

/// Answers children for as long as the process lives.
fn serve(descriptors: &'static Descriptors) {
    let Some((parent, _)) = CHANNEL.get() else { return };
    let mut message: Message = [0; 16];
    loop {
        match recv(parent.as_raw_fd(), &mut message, MsgFlags::empty()) {
            Ok(length) if length == message.len() => {}
            Err(Errno::EINTR) => continue,
            _ => return,
        }
        let [fd, request] = [0, 4].map(|at| u32::from_ne_bytes(std::array::from_fn(|byte| message[at + byte])));
        let mut structure = u64::from_ne_bytes(std::array::from_fn(|byte| message[8 + byte]));
        let address = (&raw mut structure).expose_provenance() as u64;
        // SAFETY: the address is that of the structure above, and structures of these requests have none inside.
        let user = unsafe { UserMemory::of_caller() };
        let answer = match descriptors.get(fd.cast_signed()) {
            Some(Open::Accel(file)) => ioctl::ioctl(&file, descriptors, user, request.into(), address),
            _ => Err(Errno::EBADF),
        };
        let errno = answer.err().map_or(0, |errno| errno as i32);
        let _ = send(parent.as_raw_fd(), &errno.to_ne_bytes(), MsgFlags::MSG_NOSIGNAL);
    }
}

/// In a child: what its parent answers to a request for the file that both have open as `fd`. `None` for what it is not asked for.
///
/// # Safety
/// `address` is that of the request's structure.
pub unsafe fn ask(descriptors: &Descriptors, fd: i32, request: u64, address: u64) -> Option<Result<(), Errno>> {
    let ((_, child), request) = (CHANNEL.get()?, request as u32);
    if !gives_back(request) || !matches!(descriptors.get(fd)?, Open::Accel(_)) {
        return None;
    }
    // SAFETY: as the caller says; these structures have eight bytes.
    let structure = unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_unaligned() };
    let mut message: Message = [0; 16];
    message[..4].copy_from_slice(&fd.to_ne_bytes());
    message[4..8].copy_from_slice(&request.to_ne_bytes());
    message[8..].copy_from_slice(&structure.to_ne_bytes());
    let mut answer = [0; 4];
    let sent = send(child.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL);
    let answered = sent.and_then(|_| recv(child.as_raw_fd(), &mut answer, MsgFlags::empty()));
    Some(match (answered, i32::from_ne_bytes(answer)) {
        (Err(errno), _) => Err(errno),
        (Ok(_), 0) => Ok(()),
        (Ok(_), errno) => Err(Errno::from_raw(errno)),
    })
}

/// How the child of `fork` ends, if it is planned for this call.
pub fn planned(fork: Option<Fork>, descriptors: &Descriptors, fd: i32, request: u64) -> Option<End> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let fork = fork.filter(|fork| fork.before.includes(RequestCode(request as u32)))?;
    descriptors.get(fd)?;
    (CALLS.fetch_add(1, Ordering::Relaxed) + 1 == fork.at).then_some(fork.end)
}

/// Makes the planned child, which ends so.
pub fn make(how: End) {
    // SAFETY: the child calls nothing but the end that was asked for, to find out what that does.
    match unsafe { libc::fork() } {
        0 => end(how),
        child => CHILD.store(child, Ordering::Relaxed),
    }
}

/// Ends the planned child.
fn end(how: End) -> ! {
    // SAFETY: ends this process, which is what the child is for; the arguments of the program are lists that end with null.
    unsafe {
        match how {
            End::Exit => libc::exit(0),
            End::ExitNow => {
                libc_functions::_exit(0);
            }
            End::Exec => {
                for [program, name] in PROGRAMS {
                    libc::execve(
                        program.as_ptr(),
                        [name.as_ptr(), std::ptr::null()].as_ptr(),
                        [std::ptr::null()].as_ptr(),
                    );
                }
            }
        }
        libc::abort()
    }
}

/// Waits for the planned child; what is wrong with it, if anything.
pub fn wait() -> Option<String> {
    let child = Pid::from_raw(CHILD.swap(0, Ordering::Relaxed));
    if child.as_raw() == 0 {
        return None;
    }
    if child.as_raw() < 0 {
        return Some("the planned child could not be made".to_owned());
    }
    let end = Instant::now() + LIMIT;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(WaitStatus::StillAlive) => {
                let _ = kill(child, Signal::SIGKILL).and_then(|()| waitpid(child, None));
                return Some(format!("the forked child did not end within {LIMIT:?}"));
            }
            Ok(WaitStatus::Exited(_, 0)) => return None,
            // The program has waited for it.
            Err(Errno::ECHILD) => return None,
            other => return Some(format!("the forked child ended badly: {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amdxdna_sys::amdxdna_drm_exec_cmd;

    #[test]
    fn only_what_gives_back_is_asked_for() {
        assert!(gives_back(amdxdna_drm_destroy_hwctx::CODE.0) && gives_back(drm_gem_close::CODE.0));
        assert!(!gives_back(amdxdna_drm_exec_cmd::CODE.0));
        for size in
            [size_of::<amdxdna_drm_destroy_hwctx>(), size_of::<drm_gem_close>(), size_of::<drm_syncobj_destroy>()]
        {
            assert_eq!(size, size_of::<u64>());
        }
    }
}
