//! Where the data buffers of an agent are: for this process, for ROCR, and for the NPU.
//!
//! ROCR 7.2 looks an address up among its buffers with a search that fails when no buffer begins above it, and then ends the
//! process. So all data buffers are mapped inside one stretch of addresses that is reserved beforehand, and a last buffer at
//! its end stays there: every other one has it above. What is not in use is reserved without access and without memory.
//!
//! ROCR takes for granted that an NPU sees data where the process does. So it is under shared virtual addressing. A kernel driver
//! that gives out device addresses of its own (amdxdna's `force_iova`) reports them by `GET_BO_INFO`. ROCR gets the process's
//! address, by which it finds the buffer for the kernel driver, and the interposer puts the device's into the command.

use aie_driver_xdna::accel::node::Mapping;
use amdxdna_sys::limits::PAGE;
use rangemap::RangeMap;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// A stretch of reserved addresses and the data buffers in it. The addresses are released when this is dropped; nothing in them
/// may be in use then.
#[derive(Debug)]
pub(super) struct DataMemory {
    reserved: Mapping,
    /// The addresses that are taken, with the first of each buffer's and where the device sees it.
    buffers: RangeMap<usize, (usize, u64)>,
}

impl DataMemory {
    /// Reserves `bytes`, or as much less as the process may have, but at least `least`.
    /// Fails when the system rejects even `least`.
    pub(super) fn reserve(bytes: usize, least: usize) -> io::Result<Self> {
        let mut bytes = bytes.max(least).next_multiple_of(PAGE);
        loop {
            match Mapping::reserve(bytes) {
                Ok(reserved) => return Ok(Self { reserved, buffers: RangeMap::new() }),
                Err(cause) if bytes / 2 < least => return Err(cause),
                Err(_) => bytes = (bytes / 2).next_multiple_of(PAGE),
            }
        }
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.reserved.number() as usize;
        start..start + self.reserved.length()
    }

    /// Addresses that are free, for `bytes` bytes.
    pub(super) fn find(&self, bytes: usize) -> Option<Range<usize>> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let start = self.buffers.gaps(&self.addresses()).find(|gap| gap.len() >= length)?.start;
        Some(start..start + length)
    }

    /// The last page, for the last buffer.
    pub(super) fn last(&self) -> Range<usize> {
        let end = self.addresses().end;
        end - PAGE..end
    }

    /// Takes these addresses, for a buffer that the device sees at `device`.
    pub(super) fn insert(&mut self, place: Range<usize>, device: u64) {
        let start = place.start;
        self.buffers.insert(place, (start, device));
    }

    /// The addresses of the buffer that begins at `start`.
    pub(super) fn place(&self, start: usize) -> Option<Range<usize>> {
        self.buffers.get_key_value(&start).map(|(place, _)| place.clone()).filter(|place| place.start == start)
    }

    /// The addresses of all buffers.
    pub(super) fn places(&self) -> Vec<Range<usize>> {
        self.buffers.iter().map(|(place, _)| place.clone()).collect()
    }

    /// Gives addresses back. What was mapped there is unmapped.
    ///
    /// # Safety
    /// They were found here, and nothing refers to memory in them any more.
    pub(super) unsafe fn give_back(&mut self, place: Range<usize>) {
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(place.start));
        // SAFETY: as the caller promises.
        match unsafe { Mapping::reserve_at(start, place.len()) } {
            Ok(again) => {
                // It is a part of what is reserved.
                again.leak();
                self.buffers.remove(place);
            }
            Err(cause) => {
                tracing::warn!("addresses of a buffer could not be reserved again: {cause}");
                // They stay taken: what is there now is unknown.
                self.insert(place, 0);
            }
        }
    }

    /// Where the device sees what this process has at `address`. What is in none of these buffers is seen at its own address.
    pub(super) fn seen_by_device(&self, address: u64) -> u64 {
        let found = self.buffers.get(&(address as usize));
        found.map_or(address, |(start, device)| device + (address - *start as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_lies_above_everything_else() {
        let mut data = DataMemory::reserve(1 << 20, PAGE).unwrap();
        let last = data.last();
        data.insert(last.clone(), 0);
        let mut taken = Vec::new();
        while let Some(place) = data.find(PAGE) {
            assert!(place.end <= last.start);
            data.insert(place.clone(), 0);
            taken.push(place);
        }
        assert_eq!((taken.len(), data.places().len()), ((1 << 20) / PAGE - 1, (1 << 20) / PAGE));
        assert_eq!(data.find(1), None);
        let middle = taken.swap_remove(7);
        assert_eq!((data.place(middle.start), data.place(middle.start + 8)), (Some(middle.clone()), None));
        // SAFETY: nothing was ever mapped there.
        unsafe { data.give_back(middle.clone()) };
        assert_eq!((data.place(middle.start), data.find(PAGE)), (None, Some(middle)));
    }

    #[test]
    fn more_than_there_is_becomes_less() {
        let data = DataMemory::reserve(usize::MAX / 4, 1 << 20).unwrap();
        assert!(data.addresses().len() >= 1 << 20);
        assert!(DataMemory::reserve(usize::MAX / 4, usize::MAX / 4).is_err());
    }

    #[test]
    fn an_address_is_that_of_its_buffer() {
        let mut data = DataMemory::reserve(1 << 20, PAGE).unwrap();
        let start = data.addresses().start;
        data.insert(start + 0x1000..start + 0x5000, 0xffff_0000_0000);
        data.insert(start + 0x6000..start + 0x7000, start as u64 + 0x6000);
        let at = |offset: u64| start as u64 + offset;
        for (offset, seen) in [
            // The first byte, the last one, behind it, below it, and of one that is seen at its own address.
            (0x1000, 0xffff_0000_0000),
            (0x4fff, 0xffff_0000_3fff),
            (0x5000, at(0x5000)),
            (0xfff, at(0xfff)),
            (0x6800, at(0x6800)),
        ] {
            assert_eq!(data.seen_by_device(at(offset)), seen, "{offset:#x}");
        }
    }
}
