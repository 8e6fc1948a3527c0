//! The device heap of one open file: which parts are taken.
//!
//! Parts start at multiples of 32 KiB, because the firmware takes PDI addresses in that unit; so 64 MiB hold 2,048 BOs at most,
//! however small. The smallest hole that fits is taken, as the kernel's range allocator does.

use amdxdna_sys::limits::DEV_BO_ALIGNMENT;
use std::collections::BTreeMap;

/// What is taken of a device heap.
#[derive(Debug)]
pub struct HeapAccount {
    capacity: usize,
    used: usize,
    taken: BTreeMap<usize, usize>,
}

impl HeapAccount {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, used: 0, taken: BTreeMap::new() }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes `length` bytes; `None` when no hole is large enough.
    pub(super) fn take(&mut self, length: usize) -> Option<usize> {
        let mut best: Option<(usize, usize)> = None;
        let mut end = 0_usize;
        let starts = self.taken.iter().map(|(start, length)| (*start, start + length));
        for (start, next_end) in starts.chain([(self.capacity, self.capacity)]) {
            let hole = start.saturating_sub(end);
            let aligned = end.next_multiple_of(DEV_BO_ALIGNMENT);
            if aligned + length <= start && best.is_none_or(|(smallest, _)| hole < smallest) {
                best = Some((hole, aligned));
            }
            end = next_end;
        }
        let (_, offset) = best?;
        self.taken.insert(offset, length);
        self.used += length;
        Some(offset)
    }

    pub(super) fn give_back(&mut self, offset: usize) {
        if let Some(length) = self.taken.remove(&offset) {
            self.used -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amdxdna_sys::limits::DEV_MEM_SIZE;

    #[test]
    fn small_parts_take_32_kib_each() {
        let mut heap = HeapAccount::new(DEV_MEM_SIZE);
        let offsets: Vec<_> = std::iter::from_fn(|| heap.take(4096)).collect();
        assert_eq!(offsets.len(), 2048);
        assert!(offsets.iter().all(|offset| offset % DEV_BO_ALIGNMENT == 0));
        assert_eq!(heap.used(), 2048 * 4096);
        heap.give_back(offsets[7]);
        heap.give_back(offsets[7]);
        assert_eq!(heap.take(4096), Some(offsets[7]));
    }

    #[test]
    fn the_smallest_hole_is_taken() {
        let mut heap = HeapAccount::new(16 * DEV_BO_ALIGNMENT);
        let parts: Vec<_> = [4, 1, 2, 1].iter().map(|n| heap.take(n * DEV_BO_ALIGNMENT).unwrap()).collect();
        heap.give_back(parts[0]);
        heap.give_back(parts[2]);
        assert_eq!(heap.take(DEV_BO_ALIGNMENT), Some(parts[2]));
        assert_eq!(heap.take(3 * DEV_BO_ALIGNMENT), Some(parts[0]));
        assert_eq!(heap.take(9 * DEV_BO_ALIGNMENT), None);
    }
}
