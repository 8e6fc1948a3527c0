//! Where a command list needs barriers.
//!
//! Commands between two barriers may run in any order, so two of them must not touch the same bytes unless both only read.

use crate::memory::ranges::RangeSet;
use std::ops::Range;

/// Whether two ranges have an address in common.
pub fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// What commands since the last barrier have touched.
#[derive(Debug, Default)]
pub struct HazardTracker {
    reads: RangeSet,
    writes: RangeSet,
}

impl HazardTracker {
    /// Adds a command. Returns whether a barrier has to come before it; everything earlier is then forgotten.
    pub fn command(&mut self, reads: &[Range<usize>], writes: &[Range<usize>]) -> bool {
        let barrier = reads.iter().any(|range| self.writes.overlaps(range))
            || writes.iter().any(|range| self.writes.overlaps(range) || self.reads.overlaps(range));
        if barrier {
            self.reads.clear();
            self.writes.clear();
        }
        reads.iter().for_each(|range| self.reads.insert(range.clone()));
        writes.iter().for_each(|range| self.writes.insert(range.clone()));
        barrier
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges with one entry are meant")]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::read_after_write((0..4, 8..12), (10..11, 20..24), true)]
    #[case::write_after_read((0..4, 8..12), (30..31, 2..6), true)]
    #[case::write_after_write((0..4, 8..12), (30..31, 11..16), true)]
    #[case::two_reads((0..4, 8..12), (0..4, 12..16), false)]
    #[case::apart((0..4, 8..12), (4..8, 12..16), false)]
    #[case::in_place((0..4, 0..4), (4..8, 4..8), false)]
    fn pairs(
        #[case] first: (Range<usize>, Range<usize>),
        #[case] second: (Range<usize>, Range<usize>),
        #[case] barrier: bool,
    ) {
        let mut tracker = HazardTracker::default();
        assert!(!tracker.command(&[first.0], &[first.1]));
        assert_eq!(tracker.command(&[second.0], &[second.1]), barrier);
    }

    #[test]
    fn every_write_counts() {
        let mut tracker = HazardTracker::default();
        assert!(!tracker.command(&[], &[0..4, 8..12]));
        assert!(tracker.command(&[9..10], &[20..24]));
    }

    #[test]
    fn a_barrier_forgets() {
        let mut tracker = HazardTracker::default();
        assert!(!tracker.command(&[], &[0..4]));
        assert!(tracker.command(&[0..4], &[4..8]));
        assert!(!tracker.command(&[0..4], &[8..12]), "0..4 was written before the barrier");
        assert!(tracker.command(&[4..8], &[12..16]), "4..8 was written after it");
    }
}
