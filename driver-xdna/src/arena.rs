//! Addresses that are kept for data buffers, so that ROCR finds them.
//!
//! ROCR 7.2 looks an address up among its buffers with a search that fails when no buffer begins above it, and then ends the
//! process. So all data buffers are mapped inside one stretch of addresses that is reserved beforehand, and a last buffer at
//! its end stays there: every other one has it above. What is not in use is reserved without access and without memory.

use crate::accel::node::Mapping;
use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Granule of the arena in bytes.
const PAGE: usize = 4096;

/// A stretch of reserved addresses. Given back when dropped; nothing in it may be in use then.
#[derive(Debug)]
pub(crate) struct Arena {
    reserved: Mapping,
    pages: Mutex<RangeAllocator<usize>>,
}

impl Arena {
    /// Reserves `bytes`, or as much less as the process may have, but at least `least`.
    ///
    /// # Errors
    /// The system's, when even `least` is refused.
    pub(crate) fn reserve(bytes: usize, least: usize) -> io::Result<Self> {
        let mut bytes = bytes.max(least).next_multiple_of(PAGE);
        loop {
            match Mapping::reserve(bytes) {
                Ok(reserved) => return Ok(Self { reserved, pages: Mutex::new(RangeAllocator::new(0..bytes / PAGE)) }),
                Err(cause) if bytes / 2 < least => return Err(cause),
                Err(_) => bytes = (bytes / 2).next_multiple_of(PAGE),
            }
        }
    }

    /// The addresses of pages.
    fn addresses(&self, pages: Range<usize>) -> Range<usize> {
        let base = self.reserved.number() as usize;
        base + pages.start * PAGE..base + pages.end * PAGE
    }

    /// Addresses for `bytes` bytes.
    pub(crate) fn take(&self, bytes: usize) -> Option<Range<usize>> {
        let pages = self.pages.lock().allocate_range(bytes.div_ceil(PAGE).max(1)).ok()?;
        Some(self.addresses(pages))
    }

    /// The last page, for the last buffer. Once.
    pub(crate) fn take_last(&self) -> Option<Range<usize>> {
        let mut pages = self.pages.lock();
        let last = self.reserved.length() / PAGE - 1;
        // The allocator hands out the lowest range, so everything below is taken and given back.
        let below = (last > 0).then(|| pages.allocate_range(last)).transpose().ok()?;
        let taken = pages.allocate_range(1).ok();
        if let Some(below) = below {
            pages.free_range(below);
        }
        taken.map(|pages| self.addresses(pages))
    }

    /// Gives addresses back. What was mapped there is unmapped.
    ///
    /// # Safety
    /// The range is from [`Arena::take`], and nothing refers to memory in it any more.
    pub(crate) unsafe fn give_back(&self, range: Range<usize>) {
        // SAFETY: as the caller promises.
        match unsafe {
            Mapping::reserve_at(NonNull::new(std::ptr::with_exposed_provenance_mut(range.start)), range.len())
        } {
            Ok(again) => {
                // It is a part of what is reserved.
                again.leak();
                let base = self.reserved.number() as usize;
                self.pages.lock().free_range((range.start - base) / PAGE..(range.end - base) / PAGE);
            }
            // The addresses stay taken: what is there now is unknown.
            Err(cause) => tracing::warn!("addresses of a buffer could not be reserved again: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_lies_above_everything_else() {
        let arena = Arena::reserve(1 << 20, PAGE).unwrap();
        let last = arena.take_last().unwrap();
        assert_eq!(last.end, arena.addresses(0..(1 << 20) / PAGE).end);
        let mut taken = Vec::new();
        while let Some(range) = arena.take(PAGE) {
            assert!(range.end <= last.start);
            taken.push(range);
        }
        assert_eq!(taken.len(), (1 << 20) / PAGE - 1);
        assert_eq!(arena.take(1), None);
        let middle = taken.swap_remove(7);
        // SAFETY: nothing was ever mapped there.
        unsafe { arena.give_back(middle.clone()) };
        assert_eq!(arena.take(PAGE), Some(middle));
    }

    #[test]
    fn more_than_there_is_becomes_less() {
        let arena = Arena::reserve(usize::MAX / 4, 1 << 20).unwrap();
        assert!(arena.reserved.length() >= 1 << 20);
        assert!(Arena::reserve(usize::MAX / 4, usize::MAX / 4).is_err());
    }
}
