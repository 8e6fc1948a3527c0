//! The device heap as the kernel driver hands it out: ranges of a window of addresses, so fragmentation is real here too.
//!
//! The smallest hole that fits is taken, as the kernel's range allocator does.

use std::collections::BTreeMap;

/// Device address of the heap's first byte (amdxdna: 64 MiB).
pub const HEAP_BASE: u64 = 0x0400_0000;

/// What is taken of a device heap, by offsets.
#[derive(Debug)]
pub struct HeapAllocator {
    capacity: usize,
    used: usize,
    /// Offset to length of what is taken.
    taken: BTreeMap<usize, usize>,
}

impl HeapAllocator {
    /// An empty heap of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, used: 0, taken: BTreeMap::new() }
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes `length` bytes at a multiple of `alignment`; `None` when no hole is large enough.
    pub fn allocate(&mut self, length: usize, alignment: usize) -> Option<usize> {
        let mut best: Option<(usize, usize)> = None;
        let mut end = 0_usize;
        let starts = self.taken.iter().map(|(start, length)| (*start, start + length));
        for (start, next_end) in starts.chain([(self.capacity, self.capacity)]) {
            let hole = start.saturating_sub(end);
            let aligned = end.next_multiple_of(alignment);
            let fits = aligned.checked_add(length).is_some_and(|last| last <= start);
            if fits && best.is_none_or(|(smallest, _)| hole < smallest) {
                best = Some((hole, aligned));
            }
            end = next_end;
        }
        let (_, offset) = best?;
        self.taken.insert(offset, length);
        self.used += length;
        Some(offset)
    }

    /// Releases what starts at `offset`; nothing happens when nothing does.
    pub fn free(&mut self, offset: usize) {
        self.used -= self.taken.remove(&offset).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 32 << 10;

    #[test]
    fn small_parts_take_their_alignment_and_are_given_back_once() {
        let mut heap = HeapAllocator::new(64 << 20);
        let offsets: Vec<_> = std::iter::from_fn(|| heap.allocate(4096, UNIT)).collect();
        assert_eq!(offsets.len(), 2048);
        assert!(offsets.iter().all(|offset| offset % UNIT == 0));
        assert_eq!(heap.used(), 2048 * 4096);
        heap.free(offsets[7]);
        heap.free(offsets[7]);
        assert_eq!(heap.used(), 2047 * 4096);
        assert_eq!(heap.allocate(usize::MAX, 1), None);
        assert_eq!(heap.allocate(4096, UNIT), Some(offsets[7]));
    }

    #[test]
    fn the_smallest_hole_is_taken() {
        let mut heap = HeapAllocator::new(16 * UNIT);
        let parts: Vec<_> = [4, 1, 2, 1].iter().map(|n| heap.allocate(n * UNIT, UNIT).unwrap()).collect();
        heap.free(parts[0]);
        heap.free(parts[2]);
        assert_eq!(heap.allocate(UNIT, UNIT), Some(parts[2]));
        assert_eq!(heap.allocate(3 * UNIT, UNIT), Some(parts[0]));
        assert_eq!(heap.allocate(9 * UNIT, UNIT), None);
    }
}
