//! Where the data buffers of an agent are: for this process, for ROCR, and for the NPU.
//!
//! ROCR 7.0 to 7.2 takes for granted that an NPU sees data where the process does. So it is under shared virtual addressing. A
//! kernel driver that gives out device addresses of its own (amdxdna's `force_iova`) tells them by `GET_BO_INFO`. ROCR is told the
//! process's address, by which it finds the buffer for the kernel driver, and the interposer puts the device's into the command.

use rangemap::RangeMap;
use std::ops::Range;

/// The data buffers: the addresses they take in this process, with the first of these and where the device sees it.
#[derive(Debug, Default)]
pub(super) struct DataBuffers(RangeMap<usize, (usize, u64)>);

impl DataBuffers {
    /// Adds one that takes `place` and that the device sees at `device`.
    pub(super) fn insert(&mut self, place: Range<usize>, device: u64) {
        let start = place.start;
        self.0.insert(place, (start, device));
    }

    /// Takes out the one that begins at `start`; the addresses it takes.
    pub(super) fn remove(&mut self, start: usize) -> Option<Range<usize>> {
        let (place, _) = self.0.get_key_value(&start).filter(|(place, _)| place.start == start)?;
        let place = place.clone();
        self.0.remove(place.clone());
        Some(place)
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.0).into_iter().map(|(place, _)| place).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the device sees what this process has at `address`. What is in none of these buffers is seen at its own address.
    pub(super) fn seen_by_device(&self, address: u64) -> u64 {
        let found = self.0.get(&(address as usize));
        found.map_or(address, |(start, device)| device + (address - *start as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn buffers() -> DataBuffers {
        let mut buffers = DataBuffers::default();
        buffers.insert(0x1_0000..0x1_4000, 0xffff_0000_0000);
        buffers.insert(0x2_0000..0x2_1000, 0x2_0000);
        buffers
    }

    #[rstest]
    #[case::first_byte(0x1_0000, 0xffff_0000_0000)]
    #[case::last_byte(0x1_3fff, 0xffff_0000_3fff)]
    #[case::behind_one(0x1_4000, 0x1_4000)]
    #[case::below_all(0xffff, 0xffff)]
    #[case::seen_at_its_own_address(0x2_0800, 0x2_0800)]
    fn an_address_is_that_of_its_buffer(#[case] address: u64, #[case] seen: u64) {
        assert_eq!(buffers().seen_by_device(address), seen);
    }

    #[test]
    fn what_was_taken_out_is_not_found() {
        let mut buffers = buffers();
        assert_eq!(buffers.remove(0x1_1000), None);
        assert_eq!(buffers.remove(0x1_0000), Some(0x1_0000..0x1_4000));
        assert_eq!((buffers.seen_by_device(0x1_0000), buffers.len()), (0x1_0000, 1));
        assert_eq!(buffers.drain(), vec![0x2_0000..0x2_1000]);
        assert_eq!(buffers.len(), 0);
    }
}
