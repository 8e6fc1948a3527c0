//! The device heaps of one open file: one, or several that follow each other, and which parts are taken.
//!
//! Parts start at multiples of 32 KiB, because the firmware takes PDI addresses in that unit; so 64 MiB hold 2,048 BOs at most,
//! however small. The smallest hole that fits is taken, as the kernel's range allocator does.

use super::Device;
use super::bo::{Bo, Kind};
use amdxdna_sys::limits::{DEV_BO_ALIGNMENT, DEV_MEM_SIZE, PAGE};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of all heaps of a file, where there can be several (`npu4_regs.c`, `dev_heap_max_size`).
pub(super) const HEAPS_BYTES: usize = 512 << 20;

/// The heaps of a file, in the order of their device addresses.
#[derive(Debug, Clone)]
pub(super) struct Heaps {
    list: Vec<Arc<Bo>>,
    account: Arc<Mutex<HeapAllocator>>,
}

impl Heaps {
    /// None yet.
    pub(super) fn new(device: &Device) -> Self {
        let capacity = if device.heaps_bytes > DEV_MEM_SIZE { device.heaps_bytes } else { device.heap_bytes };
        Self { list: Vec::new(), account: Arc::new(Mutex::new(HeapAllocator::new(capacity))) }
    }

    /// The heaps.
    pub(super) fn list(&self) -> &[Arc<Bo>] {
        &self.list
    }

    /// Bytes of all heaps.
    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(|heap| heap.length()).sum()
    }

    /// Bytes that are taken.
    pub(super) fn used(&self) -> usize {
        self.account.lock().used()
    }

    /// Another heap follows.
    pub(super) fn push(&mut self, heap: Arc<Bo>) {
        self.list.push(heap);
    }

    /// Makes a part.
    ///
    /// # Errors
    /// The kernel's errors without a heap and for one that is not mapped; EINVAL for a size that cannot be and for heaps that are not
    /// mapped one behind the other, ENOSPC when no further heap would help, EAGAIN when one would.
    pub(super) fn part(&self, device: &Device, size: u64) -> Result<Arc<Bo>, Errno> {
        let profile = &device.profile;
        let length = usize::try_from(size).ok().and_then(|size| size.checked_next_multiple_of(PAGE)).unwrap_or(0);
        let is_possible = length > 0 && length <= device.heaps_bytes;
        if profile.heaps_grow && !is_possible {
            return Err(Errno::EINVAL);
        }
        let first = self.list.first().ok_or(profile.heap_missing)?;
        if !profile.heaps_grow && first.user_address().is_some() && !is_possible {
            return Err(Errno::EINVAL);
        }
        let unmapped = || {
            device.journal.log(|| "CREATE_BO: the device heap is not mapped".into());
            profile.heap_unmapped
        };
        if !profile.heaps_grow && first.user_address().is_none() {
            return Err(unmapped());
        }
        let start = self.account.lock().allocate(length).ok_or(Errno::ENOSPC)?;
        let checked = self.check(device, start..start + length, unmapped);
        let heap = checked.inspect_err(|_| self.account.lock().free(start))?;
        let offset = start - heap.heap_start().unwrap_or(0);
        let kind = Kind::Dev { heap, offset, account: self.account.clone() };
        Ok(Bo::new(kind, length, None, None, None, device.journal.clone()))
    }

    /// The heap that a part starts in, when all that it is in are mapped one behind the other.
    fn check(&self, device: &Device, range: Range<usize>, unmapped: impl Fn() -> Errno) -> Result<Arc<Bo>, Errno> {
        let starts_in = |heap: &&Arc<Bo>| heap.heap_start().is_some_and(|start| start <= range.start);
        let first = self.list.iter().rposition(|heap| starts_in(&heap)).ok_or(Errno::EAGAIN)?;
        let mut expected = None;
        for heap in &self.list[first..] {
            let address = heap.user_address().ok_or_else(&unmapped)?;
            if expected.is_some_and(|expected| expected != address) {
                return Err(Errno::EINVAL);
            }
            let limit = if self.list.len() == 1 { heap.length().min(device.heap_bytes) } else { heap.length() };
            if heap.heap_start().unwrap_or(0) + limit >= range.end {
                return Ok(self.list[first].clone());
            }
            expected = Some(address + heap.length() as u64);
        }
        // There is room for another heap.
        Err(Errno::EAGAIN)
    }

    /// The heap with a range of device memory, and where the range starts in it.
    pub(super) fn find(list: &[Arc<Bo>], start: usize, length: usize) -> Option<(&Arc<Bo>, usize)> {
        list.iter().find_map(|heap| {
            let offset = start.checked_sub(heap.heap_start()?)?;
            (offset.checked_add(length)? <= heap.length()).then_some((heap, offset))
        })
    }
}

/// What is taken of the device heaps.
#[derive(Debug)]
pub struct HeapAllocator {
    capacity: usize,
    used: usize,
    taken: BTreeMap<usize, usize>,
}

impl HeapAllocator {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, used: 0, taken: BTreeMap::new() }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes `length` bytes; `None` when no hole is large enough.
    pub(super) fn allocate(&mut self, length: usize) -> Option<usize> {
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

    pub(super) fn free(&mut self, offset: usize) {
        if let Some(length) = self.taken.remove(&offset) {
            self.used -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_take_32_kib_each() {
        let mut heap = HeapAllocator::new(DEV_MEM_SIZE);
        let offsets: Vec<_> = std::iter::from_fn(|| heap.allocate(4096)).collect();
        assert_eq!(offsets.len(), 2048);
        assert!(offsets.iter().all(|offset| offset % DEV_BO_ALIGNMENT == 0));
        assert_eq!(heap.used(), 2048 * 4096);
        heap.free(offsets[7]);
        heap.free(offsets[7]);
        assert_eq!(heap.allocate(4096), Some(offsets[7]));
    }

    #[test]
    fn the_smallest_hole_is_taken() {
        let mut heap = HeapAllocator::new(16 * DEV_BO_ALIGNMENT);
        let parts: Vec<_> = [4, 1, 2, 1].iter().map(|n| heap.allocate(n * DEV_BO_ALIGNMENT).unwrap()).collect();
        heap.free(parts[0]);
        heap.free(parts[2]);
        assert_eq!(heap.allocate(DEV_BO_ALIGNMENT), Some(parts[2]));
        assert_eq!(heap.allocate(3 * DEV_BO_ALIGNMENT), Some(parts[0]));
        assert_eq!(heap.allocate(9 * DEV_BO_ALIGNMENT), None);
    }
}
