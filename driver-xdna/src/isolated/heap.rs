//! The device heap as the client sees it: one mapping for all allocations in it.
//!
//! The helper exports the heap as a whole for every allocation, because the kernel driver cannot export parts of it. A mapping
//! for each would cost the addresses and page tables of the whole heap every time.

use super::mapping::{Mapping, MappingError};
use parking_lot::Mutex;
use rustix::fs::fstat;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

/// Files that are mapped as a whole, by device and inode. A mapping lives as long as somebody has it, and keeps its file, so a
/// number that is found here is still that of the same file.
#[derive(Debug, Default)]
pub(super) struct WholeFiles(Mutex<HashMap<(u64, u64), Weak<Mapping>>>);

impl WholeFiles {
    /// The mapping of `file`, made when there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn map(&self, file: BorrowedFd<'_>) -> Result<Arc<Mapping>, MappingError> {
        let status = fstat(file).map_err(|error| MappingError::unknown_file(&error.to_string()))?;
        let mut mapped = self.0.lock();
        let key = (status.st_dev, status.st_ino);
        if let Some(mapping) = mapped.get(&key).and_then(Weak::upgrade) {
            return Ok(mapping);
        }
        mapped.retain(|_, mapping| mapping.strong_count() > 0);
        let mapping = Arc::new(Mapping::whole(file)?);
        mapped.insert(key, Arc::downgrade(&mapping));
        Ok(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::dup;
    use std::os::fd::{AsFd, OwnedFd};

    fn memory() -> OwnedFd {
        let file = memfd_create("heap-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8192).unwrap();
        file
    }

    #[test]
    fn descriptors_of_one_file_share_a_mapping() {
        let (files, heap, other) = (WholeFiles::default(), memory(), memory());
        let first = files.map(heap.as_fd()).unwrap();
        let second = files.map(dup(&heap).unwrap().as_fd()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &files.map(other.as_fd()).unwrap()));
        assert_eq!(files.0.lock().len(), 2);
        drop((first, second));
        let _again = files.map(heap.as_fd()).unwrap();
        assert_eq!(files.0.lock().len(), 1, "what nobody has is forgotten");
    }
}
