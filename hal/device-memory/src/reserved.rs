//! Address space for memory that is planned and hardly ever touched.

use super::Region;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

/// A mapping, removed when dropped.
struct Mapping {
    address: usize,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Region::reserved`, and the region that refers to it owns this object. An error leaves it mapped.
        let _ = unsafe { munmap(with_exposed_provenance_mut(self.address), self.length) };
    }
}

impl Region {
    /// Zeroed memory that the system does not set aside: a page is taken when it is touched. `None` when there is no address space, or
    /// for an alignment of more than a page.
    pub fn reserved(length: usize, alignment: usize) -> Option<Self> {
        let bytes = length.max(1);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses where the mapping is, so that it replaces none.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        let mapping = Mapping { address: start.expose_provenance(), length: bytes };
        let base =
            NonNull::new(start.cast::<u8>()).filter(|base| base.addr().get().is_multiple_of(alignment.max(1)))?;
        // SAFETY: the mapping has `length` bytes, which are zero, and stays while its owner lives. Nothing else knows it.
        Some(unsafe { Self::mapped(base, length, Arc::new(mapping)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_can_be_reserved_and_is_zero() {
        let region = Region::reserved(1 << 42, 4096).unwrap();
        let last = region.span((1 << 42) - 8, 8).unwrap();
        let mut bytes = [1; 8];
        last.read(&mut bytes);
        assert_eq!(bytes, [0; 8]);
        last.writable().unwrap().fill(&[7]);
        last.read(&mut bytes);
        assert_eq!((bytes, region.length()), ([7; 8], 1 << 42));
    }
}
