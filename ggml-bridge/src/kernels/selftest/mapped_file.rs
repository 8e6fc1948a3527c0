//! A file that is mapped for reading, as llama.cpp maps a model.

use aie_hal::{HostMemory, Span};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io::{self, Write as _};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};

/// The mapping of a file that has no name. Unmapped when dropped.
#[derive(Debug)]
pub struct MappedFile {
    address: usize,
    length: usize,
}

impl MappedFile {
    /// Maps a new file with `content`, which is not empty.
    ///
    /// # Errors
    /// The system's.
    pub fn of(content: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create("ggml-hsa-selftest", MemfdFlags::CLOEXEC)?);
        file.write_all(content)?;
        // SAFETY: the kernel chooses where the mapping is, so that it replaces none.
        let start = unsafe { mmap(null_mut(), content.len(), ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        Ok(Self { address: start.expose_provenance(), length: content.len() })
    }
}

impl HostMemory for MappedFile {
    fn span(&self) -> Span<'_> {
        let Some(start) = NonNull::new(with_exposed_provenance_mut(self.address)) else { return Span::shared(&[]) };
        // SAFETY: it is mapped for reading until this is dropped, and no one writes to the file.
        unsafe { Span::read_only_at(start, self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, and spans of it end before.
        let unmapped = unsafe { munmap(with_exposed_provenance_mut(self.address), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
