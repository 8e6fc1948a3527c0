//! The calls themselves: everything in this crate that the compiler cannot check.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// Its name in C; the number for one that a driver should not give.
    pub fn name(self) -> String {
        let known = [
            (libc::EPERM, "EPERM"),
            (libc::ENOENT, "ENOENT"),
            (libc::ESRCH, "ESRCH"),
            (libc::EINTR, "EINTR"),
            (libc::EIO, "EIO"),
            (libc::ENXIO, "ENXIO"),
            (libc::E2BIG, "E2BIG"),
            (libc::EBADF, "EBADF"),
            (libc::EAGAIN, "EAGAIN"),
            (libc::ENOMEM, "ENOMEM"),
            (libc::EACCES, "EACCES"),
            (libc::EFAULT, "EFAULT"),
            (libc::EBUSY, "EBUSY"),
            (libc::EEXIST, "EEXIST"),
            (libc::ENODEV, "ENODEV"),
            (libc::EINVAL, "EINVAL"),
            (libc::EMFILE, "EMFILE"),
            (libc::ENOTTY, "ENOTTY"),
            (libc::ENOSPC, "ENOSPC"),
            (libc::ERANGE, "ERANGE"),
            (libc::ENOSYS, "ENOSYS"),
            (libc::EOVERFLOW, "EOVERFLOW"),
            (libc::ETIME, "ETIME"),
            (libc::EOPNOTSUPP, "EOPNOTSUPP"),
            (libc::ETIMEDOUT, "ETIMEDOUT"),
            (libc::EALREADY, "EALREADY"),
            (libc::ECANCELED, "ECANCELED"),
            (libc::ENOBUFS, "ENOBUFS"),
        ];
        known
            .iter()
            .find(|(number, _)| *number == self.0)
            .map_or_else(|| self.0.to_string(), |(_, name)| (*name).into())
    }
}

/// Bytes that a request code says its structure has.
fn request_bytes(code: u32) -> usize {
    (code >> 16) as usize & 0x3fff
}

/// Makes a request with the structure in `bytes`.
///
/// # Errors
/// The kernel's.
///
/// # Panics
/// When `bytes` is shorter than the code says.
pub fn ioctl(file: &impl AsRawFd, code: u32, bytes: &mut [u8]) -> Result<(), Errno> {
    assert!(bytes.len() >= request_bytes(code));
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    ioctl_at(file, code, address)
}

/// Makes a request with the structure at an address where there may be nothing.
///
/// # Errors
/// The kernel's.
pub fn ioctl_at(file: &impl AsRawFd, code: u32, address: u64) -> Result<(), Errno> {
    // SAFETY: the kernel looks at and writes what the code and the structure say. Scripts name live buffers of the stated
    // length there, or addresses where nothing is mapped, which the kernel answers with EFAULT.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), code.into(), address) };
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// How something is mapped.
#[derive(Debug, Clone, Copy)]
pub struct Map {
    /// `PROT_*`.
    pub protection: i32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub flags: i32,
    /// Offset.
    pub offset: u64,
    /// Bytes.
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
    let offset = libc::off_t::try_from(how.offset).map_err(|_| Errno(libc::EOVERFLOW))?;
    // SAFETY: the system chooses free addresses, or `place` is in a reservation of the caller.
    let found = unsafe { libc::mmap(place, bytes, how.protection, flags, fd, offset) };
    match NonNull::new(found.cast::<u8>()) {
        Some(address) if found != libc::MAP_FAILED => Ok(Mapping { address, bytes }),
        _ => Err(Errno::last()),
    }
}

impl Mapping {
    /// Maps a file.
    ///
    /// # Errors
    /// The kernel's.
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

    /// New pages of this process.
    ///
    /// # Errors
    /// The system's.
    pub fn anonymous(bytes: usize, protection: i32) -> Result<Self, Errno> {
        let how = Map { protection, ..Map::shared(0, bytes) };
        map_at(std::ptr::null_mut(), bytes, &how, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// The address.
    pub fn number(&self) -> u64 {
        self.address.as_ptr().expose_provenance() as u64
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at an index.
    ///
    /// # Panics
    /// When it is not inside.
    pub fn word(&self, index: usize) -> u32 {
        assert!((index + 1) * 4 <= self.bytes);
        // SAFETY: the index is inside of the mapping, which was mapped for reading by those who read.
        unsafe { self.address.cast::<u32>().add(index).read_volatile() }
    }

    /// Writes the word at an index.
    ///
    /// # Panics
    /// When it is not inside.
    pub fn set_word(&self, index: usize, word: u32) {
        assert!((index + 1) * 4 <= self.bytes);
        // SAFETY: the index is inside of the mapping, which was mapped for writing by those who write.
        unsafe { self.address.cast::<u32>().add(index).write_volatile(word) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this object, and nobody keeps a reference into it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// The time that deadlines are in.
pub fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether this is the super-user.
pub fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

/// Runs `work` in a forked process and waits for its end. Whether it ended by itself.
pub fn in_child(work: impl FnOnce()) -> bool {
    // SAFETY: this process has one thread, so the child may do whatever the parent may.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: ends the child without what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        child if child > 0 => {
            let mut status = 0;
            // SAFETY: waits for the child from above.
            unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
        }
        _ => false,
    }
}

/// Ends all processes of a group.
pub fn kill_group(leader: u32) {
    if let Ok(leader @ 2..) = libc::pid_t::try_from(leader) {
        // SAFETY: the caller has started the group.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Takes over a descriptor that a request has returned.
pub fn owned(descriptor: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel has just made it for this process, and nobody else knows of it.
    (descriptor > 2).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}
