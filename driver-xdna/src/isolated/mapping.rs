//! Mappings of memory that the other process allocated: the one place here that maps and unmaps.
//!
//! Files are mapped from their first byte, whatever the offset of the range: the amdxdna kernel driver puts a buffer's first
//! page at the start of a mapping of its DMA buffer even when an offset was asked for (its `amdxdna_gem_dmabuf_mmap`). That
//! costs addresses, but no memory.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A shared, writable mapping of a range of a file (a DMA buffer or a memfd). Unmapped on drop; the range stays readable
/// until then even when every other process that had it is gone, because the mapping keeps the file alive.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    lead: usize,
}

// SAFETY: A mapping belongs to the process, not to a thread; the value only names it.
unsafe impl Send for Mapping {}
// SAFETY: Nothing can be changed through a shared reference: it only tells the address.
unsafe impl Sync for Mapping {}

/// Why a range could not be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingError {
    offset: u64,
    length: usize,
    reason: String,
}

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot map {} bytes at offset {} of shared memory: {}", self.length, self.offset, self.reason)
    }
}

impl std::error::Error for MappingError {}

impl MappingError {
    /// Nothing is known of the file.
    pub(super) fn unknown_file(reason: &str) -> Self {
        Self { offset: 0, length: 0, reason: reason.to_owned() }
    }
}

fn size_of_file(file: BorrowedFd<'_>) -> Result<u64, String> {
    seek(file, SeekFrom::End(0)).map_err(|error: Errno| format!("its size is unknown: {error}"))
}

impl Mapping {
    /// Maps `length` bytes from byte `offset` of `file`. The offset need not be a multiple of the page size.
    ///
    /// # Errors
    /// An empty range, a file that is shorter than the range (touching it would end the process with SIGBUS), or what the
    /// system says.
    pub fn shared(file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Self, MappingError> {
        let fail = |reason: String| MappingError { offset, length, reason };
        if length == 0 {
            return Err(fail("there is nothing to map".to_owned()));
        }
        let size = size_of_file(file).map_err(fail)?;
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        if end.is_none_or(|end| end > size) {
            return Err(fail(format!("it has {size} bytes")));
        }
        let lead = usize::try_from(offset).map_err(|e| fail(e.to_string()))?;
        let mapped =
            length.checked_add(lead).ok_or_else(|| fail("it does not fit into the address space".to_owned()))?;
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: The kernel chooses the address (no hint, no MAP_FIXED), so no existing mapping is touched. The file
        // covers the range.
        let base = unsafe { mmap(std::ptr::null_mut(), mapped, flags, MapFlags::SHARED, file, 0) }
            .map_err(|e| fail(e.to_string()))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| fail("the system gave address 0".to_owned()))?;
        Ok(Self { base, mapped, lead })
    }

    /// Maps all of `file`.
    ///
    /// # Errors
    /// As [`Mapping::shared`].
    pub fn whole(file: BorrowedFd<'_>) -> Result<Self, MappingError> {
        let size = size_of_file(file).map_err(|reason| MappingError::unknown_file(&reason))?;
        Self::shared(file, 0, usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// Byte `offset` of the range, with `length` bytes from there on, as long as the mapping exists.
    ///
    /// # Errors
    /// When that leaves the range.
    pub fn part(&self, offset: u64, length: usize) -> Result<NonNull<u8>, MappingError> {
        let bytes = self.mapped - self.lead;
        let start =
            usize::try_from(offset).ok().filter(|start| start.checked_add(length).is_some_and(|end| end <= bytes));
        let start = start.ok_or_else(|| MappingError { offset, length, reason: format!("it has {bytes} bytes") })?;
        // SAFETY: the range has at least `start` bytes.
        Ok(unsafe { self.first_byte().add(start) })
    }

    /// The first byte of the range. Valid until the mapping is dropped.
    pub fn first_byte(&self) -> NonNull<u8> {
        // SAFETY: `lead` is less than `mapped`, the length of the mapping that starts at `base`.
        unsafe { self.base.add(self.lead) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `mapped` are what mmap gave and was asked for, and only this value unmaps them. Whoever kept
        // the address was told by `first_byte` that it ends here.
        if let Err(error) = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) } {
            tracing::warn!(%error, bytes = self.mapped, "shared memory was not unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::{pread, pwrite};
    use std::os::fd::{AsFd, OwnedFd};

    fn memory(bytes: u64) -> OwnedFd {
        let file = memfd_create("mapping-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    #[rstest]
    #[case::whole(0, 8192)]
    #[case::second_page(4096, 4096)]
    #[case::inside_a_page(4100, 17)]
    fn both_sides_see_the_same_bytes(#[case] offset: u64, #[case] length: usize) {
        let file = memory(8192);
        pwrite(&file, b"there", offset).unwrap();
        let mapping = Mapping::shared(file.as_fd(), offset, length).unwrap();
        let first = mapping.first_byte();
        // SAFETY: The mapping has at least 17 bytes and no one else writes them.
        assert_eq!(unsafe { std::slice::from_raw_parts(first.as_ptr(), 5) }, b"there");
        // SAFETY: The last byte of the range, as above.
        unsafe { first.add(length - 1).write(7) };
        let mut last = [0];
        pread(&file, &mut last, offset + length as u64 - 1).unwrap();
        assert_eq!(last, [7]);
    }

    #[test]
    fn parts_of_a_whole_file_stay_inside() {
        let file = memory(8192);
        pwrite(&file, b"there", 5000).unwrap();
        let mapping = Mapping::whole(file.as_fd()).unwrap();
        let part = mapping.part(5000, 8192 - 5000).unwrap();
        // SAFETY: The part has more than 5 bytes and no one writes them.
        assert_eq!(unsafe { std::slice::from_raw_parts(part.as_ptr(), 5) }, b"there");
        for (offset, length) in [(5000, 8193 - 5000), (8193, 0), (1, usize::MAX), (u64::MAX, 1)] {
            let error = mapping.part(offset, length).unwrap_err().to_string();
            assert!(error.contains("it has 8192 bytes"), "{error}");
        }
        assert!(Mapping::whole(memory(0).as_fd()).unwrap_err().to_string().contains("nothing to map"));
    }

    #[rstest]
    #[case::empty(0, 0, "nothing to map")]
    #[case::too_long(0, 8193, "it has 8192 bytes")]
    #[case::behind_the_end(8192, 1, "it has 8192 bytes")]
    #[case::overflow(u64::MAX, 2, "it has 8192 bytes")]
    fn ranges_outside_the_file_are_refused(#[case] offset: u64, #[case] length: usize, #[case] reason: &str) {
        let error = Mapping::shared(memory(8192).as_fd(), offset, length).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
