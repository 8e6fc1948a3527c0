//! The device heap: the 64 MiB window that PDIs and instruction streams live in.
//!
//! First fit over address ranges. The heap really is a window of addresses, so fragmentation is real here too.

use super::refusal::Refusal;
use std::collections::BTreeMap;

/// Device address of the heap's first byte (amdxdna: 64 MiB).
pub const HEAP_BASE: u64 = 0x0400_0000;

#[derive(Debug)]
pub(super) struct Heap {
    capacity: usize,
    used: usize,
    /// Offset to length of what is taken.
    taken: BTreeMap<usize, usize>,
}

impl Heap {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, used: 0, taken: BTreeMap::new() }
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.capacity - self.used
    }

    pub(super) fn allocate(&mut self, bytes: usize, alignment: usize) -> Result<u64, Refusal> {
        let bytes = bytes.max(1);
        let refusal = Refusal::OutOfHeap { requested: bytes, available: self.free_bytes(), capacity: self.capacity };
        let mut start = 0_usize;
        let ends = self.taken.iter().map(|(offset, length)| (*offset, offset + length));
        for (taken_start, taken_end) in ends.chain([(self.capacity, self.capacity)]) {
            match start.checked_add(bytes) {
                Some(end) if end <= taken_start => {
                    self.taken.insert(start, bytes);
                    self.used += bytes;
                    return Ok(HEAP_BASE + start as u64);
                }
                Some(_) => start = taken_end.next_multiple_of(alignment),
                None => break,
            }
        }
        Err(refusal)
    }

    pub(super) fn free(&mut self, address: u64) {
        let offset = address.checked_sub(HEAP_BASE).and_then(|offset| usize::try_from(offset).ok());
        if let Some(length) = offset.and_then(|offset| self.taken.remove(&offset)) {
            self.used -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_completely_and_takes_memory_back() {
        let mut heap = Heap::new(4096);
        let first = heap.allocate(1024, 64).unwrap();
        let second = heap.allocate(3072, 64).unwrap();
        assert_eq!((first, second), (HEAP_BASE, HEAP_BASE + 1024));
        assert_eq!(heap.allocate(1, 1).unwrap_err().to_string(), "device heap: asked for 1 bytes, 0 of 4096 are free");
        heap.free(first);
        heap.free(first);
        assert_eq!(heap.free_bytes(), 1024);
        assert_eq!(heap.allocate(1024, 4096).unwrap(), HEAP_BASE);
    }

    #[test]
    fn aligns_and_fragments() {
        let mut heap = Heap::new(8192);
        let small = heap.allocate(1, 1).unwrap();
        let aligned = heap.allocate(16, 4096).unwrap();
        assert_eq!(aligned % 4096, 0);
        assert_eq!(aligned, small + 4096);
        // 8175 bytes are free, but not in one piece.
        assert!(matches!(heap.allocate(5000, 1), Err(Refusal::OutOfHeap { available: 8175, .. })));
        assert!(heap.allocate(usize::MAX, 1).is_err());
    }
}
