//! The device heaps of one open file: one, or several that follow each other, and which parts are taken.
//!
//! Parts start at multiples of 32 KiB, because the firmware takes PDI addresses in that unit; so 64 MiB hold 2,048 BOs at most,
//! however small.

use super::bo::{Bo, Kind};
use super::device::Device;
use aie_driver_mock::npu::HeapAllocator;
use amdxdna_sys::limits::{DEV_BO_ALIGNMENT, DEV_MEM_SIZE, PAGE};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The heaps of a file, in the order of their device addresses.
#[derive(Debug, Clone)]
pub(super) struct Heaps {
    pub(super) list: Vec<Arc<Bo>>,
    account: Arc<Mutex<HeapAllocator>>,
}

impl Heaps {
    pub(super) fn new(device: &Device) -> Self {
        let capacity = if device.heaps_bytes > DEV_MEM_SIZE { device.heaps_bytes } else { device.heap_bytes };
        Self { list: Vec::new(), account: Arc::new(Mutex::new(HeapAllocator::new(capacity))) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(|heap| heap.length()).sum()
    }

    pub(super) fn used(&self) -> usize {
        self.account.lock().used()
    }

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
        let start = self.account.lock().allocate(length, DEV_BO_ALIGNMENT).ok_or(Errno::ENOSPC)?;
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
