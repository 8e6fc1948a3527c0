//! Memory that host and device share: memory files, and the simulator's own view of them.
//!
//! A BO is a memory file (`memfd`), so a user can map it at any address, and an exported one can be mapped by another process.
//! Command BOs are one page, and a program makes thousands of them in a second; they share larger memory files, an [`Arena`].
//! The simulator looks at a BO through a mapping of its own, so that nothing a user unmaps can take a page away from it.
//!
//! A BO of the caller's memory is the caller's pages themselves, as with the kernel. It pins them, which is not simulated: the device
//! must be done with them before the caller unmaps them. They get a memory file when somebody asks for one, to map or export the BO:
//! then they move into it, and what another thread writes in that moment may be lost, also an allocator's lists in the same page.
//! That is why they do not move before.
//!
//! This file makes its system calls directly: the C functions of the same names lead back into this library.

use aie_device_memory::{Region, Span, WritableSpan};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::ffi::CStr;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// A file descriptor of this process, closed when dropped.
#[derive(Debug)]
pub struct Descriptor(i32);

impl Descriptor {
    /// Takes over an open descriptor.
    pub fn new(fd: i32) -> Self {
        Self(fd)
    }

    /// The number; the caller becomes its owner.
    pub fn release(self) -> i32 {
        std::mem::ManuallyDrop::new(self).0
    }

    pub fn number(&self) -> i32 {
        self.0
    }

    /// A second descriptor of the same file, closed on exec if `close_on_exec`; the caller becomes its owner.
    pub fn duplicate(&self, close_on_exec: bool) -> Result<i32, Errno> {
        let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        duplicate(self.0, command)
    }
}

fn duplicate(fd: i32, command: i32) -> Result<i32, Errno> {
    // SAFETY: duplicating a descriptor touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, 0) };
    if fd < 0 { Err(Errno::last()) } else { Ok(fd as i32) }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this object owns the descriptor, and this is the only time it is closed.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Pages mapped into this process, unmapped when dropped.
#[derive(Debug)]
struct Pages {
    address: usize,
    length: usize,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Backing::region` for this object alone.
        unsafe { libc::syscall(libc::SYS_munmap, self.address, self.length) };
    }
}

/// Name of the memory files, by which another process recognises a BO.
const BO_NAME: &CStr = c"amdxdna-bo";

fn memory_file(name: &CStr) -> Result<Descriptor, Errno> {
    // SAFETY: the name is a C string, and the call touches nothing else.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 { Err(Errno::last()) } else { Ok(Descriptor::new(fd as i32)) }
}

/// A descriptor that stands for something that is not memory.
pub fn placeholder() -> Result<Descriptor, Errno> {
    memory_file(c"amdxdna-syncobj")
}

/// What a descriptor is open for; EBADF when it is not open.
fn link_of(fd: i32) -> Result<String, Errno> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    Ok(link.to_string_lossy().into_owned())
}

/// Whether a descriptor is that of a BO that a process with this library has exported; EBADF when it is not open.
pub fn is_exported_bo(fd: i32) -> Result<bool, Errno> {
    Ok(link_of(fd)?.starts_with(&format!("/memfd:{}", BO_NAME.to_string_lossy())))
}

/// Whether a descriptor is an eventfd; EBADF when it is not open.
pub fn is_eventfd(fd: i32) -> Result<bool, Errno> {
    Ok(link_of(fd)? == "anon_inode:[eventfd]")
}

#[derive(Debug)]
struct Backing {
    /// Made when first needed for the caller's memory.
    file: OnceLock<Result<Descriptor, Errno>>,
    length: usize,
    /// The address of the caller's memory.
    caller: Option<usize>,
    /// The simulator's view; `None` when it cannot be created.
    region: OnceLock<Option<Region>>,
}

impl Backing {
    fn create(length: usize) -> Result<Self, Errno> {
        let file = memory_file(BO_NAME)?;
        // SAFETY: changes the length of a file that is not mapped yet.
        if unsafe { libc::syscall(libc::SYS_ftruncate, file.number(), length) } < 0 {
            return Err(Errno::ENOMEM);
        }
        Ok(Self::of_file(file, length))
    }

    fn of_file(file: Descriptor, length: usize) -> Self {
        Self { file: OnceLock::from(Ok(file)), length, caller: None, region: OnceLock::new() }
    }

    /// The memory file. The caller's memory moves into one.
    fn file(&self) -> Result<&Descriptor, Errno> {
        let moved = || {
            let address = self.caller.ok_or(Errno::EBADF)?;
            let own = Self::create(self.length)?;
            let (from, to) = (self.region(), own.region());
            let both = from.and_then(|from| from.span(0, self.length)).zip(to.and_then(|to| to.span(0, self.length)));
            let (from, to) = both.and_then(|(from, to)| Some((from, to.writable()?))).ok_or(Errno::ENOMEM)?;
            let mut bytes = vec![0; self.length];
            from.read(&mut bytes);
            to.write(&bytes);
            map_pages(address, self.length, READ_WRITE, libc::MAP_SHARED | libc::MAP_FIXED, own.file()?, 0)?;
            own.file.into_inner().ok_or(Errno::EBADF)?
        };
        self.file.get_or_init(moved).as_ref().map_err(|errno| *errno)
    }

    fn region(&self) -> Option<&Region> {
        let map = || {
            if let Some(address) = self.caller {
                let base = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
                // SAFETY: `adopt`, which is the caller of `Memory::of_caller`, has found these pages mapped readable and writable, and
                // the program keeps them while the device uses them. The simulator refers to them through this region only.
                return Some(unsafe { Region::mapped(base, self.length, Arc::new(())) });
            }
            let address = map_pages(0, self.length, READ_WRITE, libc::MAP_SHARED, self.file().ok()?, 0).ok()?;
            let owner = Arc::new(Pages { address, length: self.length });
            let base = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
            // SAFETY: the range is mapped readable and writable until `owner` unmaps it, pages of a memory file are always
            // initialised, and the simulator refers to them through this region only.
            Some(unsafe { Region::mapped(base, self.length, owner) })
        };
        self.region.get_or_init(map).as_ref()
    }
}

/// Maps pages of `file`; returns their address.
fn map_pages(
    address: usize,
    length: usize,
    prot: i32,
    flags: i32,
    file: &Descriptor,
    offset: usize,
) -> Result<usize, Errno> {
    // SAFETY: a mapping is made at a free address, or where the caller of `mmap` asked for it with MAP_FIXED, which is for
    // the caller to answer for, as it is without this library.
    let found = unsafe { libc::syscall(libc::SYS_mmap, address, length, prot, flags, file.number(), offset) };
    if found == -1 { Err(Errno::last()) } else { Ok(found as usize) }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Bytes of an arena's memory file.
const ARENA_BYTES: usize = 4 << 20;
const PAGE: usize = amdxdna_sys::limits::PAGE;

/// Single pages out of larger memory files.
#[derive(Debug, Default)]
pub struct Arena {
    free: Mutex<Vec<(Arc<Backing>, usize)>>,
}

/// A page of an arena, released when dropped.
#[derive(Debug)]
struct Slot {
    arena: Arc<Arena>,
    backing: Arc<Backing>,
    offset: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.free.lock().push((self.backing.clone(), self.offset));
    }
}

#[derive(Debug)]
pub struct Memory {
    backing: Arc<Backing>,
    offset: usize,
    length: usize,
    /// Keeps the page when it is part of an arena.
    slot: Option<Slot>,
}

impl Memory {
    /// Zeroed memory of its own memory file. `length` is a multiple of the page.
    pub fn create(length: usize) -> Result<Self, Errno> {
        Ok(Self { backing: Arc::new(Backing::create(length)?), offset: 0, length, slot: None })
    }

    /// Whole pages of the caller's memory, which the caller keeps mapped, readable and writable, while the device uses them.
    pub fn of_caller(pages: &Range<usize>) -> Self {
        let (length, caller) = (pages.len(), Some(pages.start));
        let backing = Backing { file: OnceLock::new(), length, caller, region: OnceLock::new() };
        Self { backing: Arc::new(backing), offset: 0, length, slot: None }
    }

    /// Where the caller has these pages, if they are the caller's.
    pub fn caller_range(&self) -> Option<Range<usize>> {
        self.backing.caller.map(|start| start + self.offset..start + self.offset + self.length)
    }

    /// A zeroed page of `arena`.
    pub fn page(arena: &Arc<Arena>) -> Result<Self, Errno> {
        let mut free = arena.free.lock();
        if free.is_empty() {
            let backing = Arc::new(Backing::create(ARENA_BYTES)?);
            free.extend((0..ARENA_BYTES / PAGE).rev().map(|page| (backing.clone(), page * PAGE)));
        }
        let (backing, offset) = free.pop().ok_or(Errno::ENOMEM)?;
        drop(free);
        let slot = Slot { arena: arena.clone(), backing: backing.clone(), offset };
        let memory = Self { backing, offset, length: PAGE, slot: Some(slot) };
        memory.writable(0, PAGE).ok_or(Errno::ENOMEM)?.write(&[0; PAGE]);
        Ok(memory)
    }

    /// The memory of a descriptor that came from somewhere else.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when it is not a file with a length.
    pub fn import(fd: i32) -> Result<Self, Errno> {
        let file = duplicate(fd, libc::F_DUPFD_CLOEXEC).map(Descriptor::new);
        // SAFETY: seeking touches no memory. A shared memory file has no position that matters.
        let length = unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_END) };
        let length =
            usize::try_from(length).ok().filter(|length| *length > 0 && length % PAGE == 0).ok_or(Errno::EINVAL)?;
        let backing = Arc::new(Backing::of_file(file?, length));
        Ok(Self { backing, offset: 0, length, slot: None })
    }

    /// The same memory once more; `None` for a page of an arena.
    pub fn share(&self) -> Option<Self> {
        let (backing, offset, length) = (self.backing.clone(), self.offset, self.length);
        self.slot.is_none().then_some(Self { backing, offset, length, slot: None })
    }

    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backing, &other.backing) && self.offset == other.offset
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A new descriptor of the memory file; the caller becomes its owner.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for a page of an arena.
    pub fn export(&self, close_on_exec: bool) -> Result<i32, Errno> {
        if self.slot.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.backing.file()?.duplicate(close_on_exec)
    }

    /// Maps `length` bytes from `offset` for a user; returns the address.
    pub fn map(&self, address: usize, length: usize, prot: i32, flags: i32, offset: usize) -> Result<usize, Errno> {
        map_pages(address, length, prot, flags, self.backing.file()?, self.offset + offset)
    }

    /// A range in the simulator's own view; `None` when it leaves the memory, or there is no room for a view.
    pub fn span(&self, offset: usize, length: usize) -> Option<Span<'_>> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        self.backing.region()?.span(self.offset + offset, length)
    }

    /// The same for writing.
    pub fn writable(&self, offset: usize, length: usize) -> Option<WritableSpan<'_>> {
        self.span(offset, length)?.writable()
    }

    pub fn word(&self, offset: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.span(offset, 4)?.read(&mut bytes);
        Some(u32::from_le_bytes(bytes))
    }

    /// Writes a little-endian word; outside of the memory nothing happens.
    pub fn set_word(&self, offset: usize, word: u32) {
        if let Some(span) = self.writable(offset, 4) {
            span.write(&word.to_le_bytes());
        }
    }

    pub fn copy(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let span = self.span(offset, length)?;
        let mut bytes = vec![0; length];
        span.read(&mut bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_words() {
        let memory = Memory::create(2 * PAGE).unwrap();
        memory.set_word(4, 0x1234_5678);
        memory.set_word(2 * PAGE - 2, 1);
        assert_eq!(memory.word(4), Some(0x1234_5678));
        assert_eq!(memory.word(2 * PAGE - 2), None);
        assert_eq!(memory.copy(4, 2), Some(vec![0x78, 0x56]));
        assert!(memory.span(usize::MAX, 2).is_none());
    }

    #[test]
    fn exports_share_the_memory() {
        let memory = Memory::create(PAGE).unwrap();
        let fd = Descriptor::new(memory.export(true).unwrap());
        let other = Memory::import(fd.number()).unwrap();
        other.set_word(8, 7);
        assert_eq!((memory.word(8), other.length()), (Some(7), PAGE));
        assert!(memory.is_same(&memory.share().unwrap()) && !memory.is_same(&other));
        let arena = Arc::new(Arena::default());
        let page = Memory::page(&arena).unwrap();
        assert_eq!(page.export(true), Err(Errno::EOPNOTSUPP));
        assert!(page.share().is_none());
    }

    #[test]
    fn memory_of_the_caller_is_used_in_place() {
        let own = Memory::create(2 * PAGE).unwrap();
        let address = own.map(0, 2 * PAGE, READ_WRITE, libc::MAP_SHARED, 0).unwrap();
        own.set_word(PAGE, 7);
        let bo = Memory::of_caller(&(address + PAGE..address + 2 * PAGE));
        assert_eq!(bo.word(0), Some(7));
        bo.set_word(4, 8);
        assert_eq!(own.word(PAGE + 4), Some(8));
        // A file has the same content, and the caller's page is that of the file from then on.
        let file = Descriptor::new(bo.export(true).unwrap());
        let other = Memory::import(file.number()).unwrap();
        assert_eq!((other.word(0), other.word(4)), (Some(7), Some(8)));
        other.set_word(8, 9);
        assert_eq!(bo.word(8), Some(9));
    }

    #[test]
    fn pages_are_zeroed_and_used_again() {
        let arena = Arc::new(Arena::default());
        let page = Memory::page(&arena).unwrap();
        let other = Memory::page(&arena).unwrap();
        page.set_word(0, 1);
        assert_eq!(other.word(0), Some(0));
        let offset = page.offset;
        drop(page);
        let again = Memory::page(&arena).unwrap();
        assert_eq!((again.offset, again.word(0)), (offset, Some(0)));
    }
}
