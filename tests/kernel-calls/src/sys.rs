//! The calls themselves: everything in this crate that the compiler cannot check.
#![allow(unsafe_code)]

pub use nix::errno::Errno;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, fork};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// The name of an error in C.
pub fn name(errno: Errno) -> String {
    format!("{errno:?}")
}

/// Makes a request with the structure in `bytes`.
pub fn ioctl(file: &impl AsRawFd, code: u32, bytes: &mut [u8]) -> Result<(), Errno> {
    // The code says how long its structure is.
    assert!(bytes.len() >= (code >> 16) as usize & 0x3fff);
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    ioctl_at(file, code, address)
}

/// Makes a request with the structure at an address where there may be nothing.
pub fn ioctl_at(file: &impl AsRawFd, code: u32, address: u64) -> Result<(), Errno> {
    // SAFETY: the kernel looks at and writes what the code and the structure say. Scripts name live buffers of the stated
    // length there, or addresses where nothing is mapped, which the kernel answers with EFAULT.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), code.into(), address) };
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

#[derive(Debug, Clone, Copy)]
pub struct Map {
    pub protection: i32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub flags: i32,
    pub offset: u64,
    pub bytes: usize,
    /// The address has this remainder when divided by [`Map::ALIGNMENT`]; anywhere when `None`.
    pub remainder: Option<usize>,
}

impl Map {
    /// Alignment of the device heap.
    pub const ALIGNMENT: usize = 64 << 20;

    /// Readable, writable, shared, anywhere.
    pub fn shared(offset: u64, bytes: usize) -> Self {
        Self { protection: libc::PROT_READ | libc::PROT_WRITE, flags: libc::MAP_SHARED, offset, bytes, remainder: None }
    }
}

/// Pages of this process. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

fn map_at(place: *mut libc::c_void, bytes: usize, how: &Map, flags: i32, fd: i32) -> Result<Mapping, Errno> {
    let offset = libc::off_t::try_from(how.offset).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: the system chooses free addresses, or `place` is in a reservation of the caller.
    let found = unsafe { libc::mmap(place, bytes, how.protection, flags, fd, offset) };
    match NonNull::new(found.cast::<u8>()) {
        Some(address) if found != libc::MAP_FAILED => Ok(Mapping { address, bytes }),
        _ => Err(Errno::last()),
    }
}

impl Mapping {
    pub fn of(file: &impl AsRawFd, how: Map) -> Result<Self, Errno> {
        let Some(remainder) = how.remainder else {
            return map_at(std::ptr::null_mut(), how.bytes, &how, how.flags, file.as_raw_fd());
        };
        // Addresses are reserved, so that one with the wanted remainder is among them; what is around it stays reserved.
        let reserve = Map { protection: libc::PROT_NONE, offset: 0, ..how };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let length = how.bytes + 2 * Map::ALIGNMENT;
        let reserved = map_at(std::ptr::null_mut(), length, &reserve, flags, -1)?;
        let base = reserved.number() as usize;
        let place = base.next_multiple_of(Map::ALIGNMENT) + remainder % Map::ALIGNMENT;
        std::mem::forget(reserved);
        let place = std::ptr::with_exposed_provenance_mut(place);
        map_at(place, how.bytes, &how, how.flags | libc::MAP_FIXED, file.as_raw_fd())
    }

    pub fn anonymous(bytes: usize, protection: i32) -> Result<Self, Errno> {
        let how = Map { protection, ..Map::shared(0, bytes) };
        map_at(std::ptr::null_mut(), bytes, &how, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    pub fn number(&self) -> u64 {
        self.address.as_ptr().expose_provenance() as u64
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn word(&self, index: usize) -> u32 {
        assert!((index + 1) * 4 <= self.bytes);
        // SAFETY: the index is inside of the mapping, which was mapped for reading by those who read.
        unsafe { self.address.cast::<u32>().add(index).read_volatile() }
    }

    pub fn set_word(&self, index: usize, word: u32) {
        assert!((index + 1) * 4 <= self.bytes);
        // SAFETY: the index is inside of the mapping, which was mapped for writing by those who write.
        unsafe { self.address.cast::<u32>().add(index).write_volatile(word) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this object, and no one keeps a reference into it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// The time that deadlines are in.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Runs `work` in a forked process and waits for its end. Whether it ended on its own.
pub fn in_child(work: impl FnOnce()) -> bool {
    // SAFETY: this process has one thread, so the child may do whatever the parent may.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            work();
            // SAFETY: ends the child without what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => waitpid(child, None) == Ok(WaitStatus::Exited(child, 0)),
        Err(_) => false,
    }
}

/// Takes over a descriptor that a request has returned.
pub fn owned(descriptor: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel has just made it for this process, and no one else knows of it.
    (descriptor > 2).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}
