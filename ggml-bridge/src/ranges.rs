//! Sets of address ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of addresses, kept as disjoint ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// End by start.
    ranges: BTreeMap<usize, usize>,
}

impl RangeSet {
    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Whether any address of `range` is in the set.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        !range.is_empty() && self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// The parts of `range` that are not in the set.
    pub fn missing(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut from = range.start;
        let first = self.ranges.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        for (&start, &end) in self.ranges.range(first..range.end.max(first)) {
            if end <= from {
                continue;
            }
            if start > from {
                parts.push(from..start);
            }
            from = end;
        }
        if from < range.end {
            parts.push(from..range.end);
        }
        parts
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges with one entry are meant")]
mod tests {
    use super::*;
    use rstest::rstest;

    fn set(ranges: &[(usize, usize)]) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.iter().for_each(|&(start, end)| set.insert(start..end));
        set
    }

    #[rstest]
    #[case(&[(0, 2), (4, 6)], &[0..2, 4..6])]
    #[case(&[(4, 6), (0, 2), (2, 4)], &[0..6])]
    #[case(&[(0, 10), (2, 4)], &[0..10])]
    #[case(&[(2, 4), (6, 8), (0, 10)], &[0..10])]
    #[case(&[(2, 4), (3, 8)], &[2..8])]
    #[case(&[(3, 3)], &[])]
    fn ranges_merge(#[case] given: &[(usize, usize)], #[case] expected: &[Range<usize>]) {
        assert_eq!(set(given).iter().collect::<Vec<_>>(), expected);
    }

    #[rstest]
    #[case(0..2, false)]
    #[case(2..3, true)]
    #[case(0..100, true)]
    #[case(4..6, false)]
    #[case(5..7, true)]
    #[case(8..9, false)]
    #[case(3..3, false)]
    fn overlaps_are_found(#[case] range: Range<usize>, #[case] expected: bool) {
        assert_eq!(set(&[(2, 4), (6, 8)]).overlaps(&range), expected);
    }

    #[rstest]
    #[case(0..10, &[0..2, 4..6, 8..10])]
    #[case(2..4, &[])]
    #[case(3..7, &[4..6])]
    #[case(4..6, &[4..6])]
    #[case(9..12, &[9..12])]
    #[case(0..1, &[0..1])]
    fn what_is_missing(#[case] range: Range<usize>, #[case] expected: &[Range<usize>]) {
        assert_eq!(set(&[(2, 4), (6, 8)]).missing(&range), expected);
    }

    #[test]
    fn agrees_with_a_bitmap() {
        let mut state = 1u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            usize::try_from(state >> 33).unwrap() % n
        };
        let (mut set, mut bits) = (RangeSet::default(), [false; 64]);
        for _ in 0..400 {
            let start = next(60);
            let range = start..start + next(4);
            assert_eq!(set.overlaps(&range), range.clone().any(|i| bits[i]));
            let missing: Vec<usize> = set.missing(&range).into_iter().flatten().collect();
            assert_eq!(missing, range.clone().filter(|&i| !bits[i]).collect::<Vec<_>>());
            if next(3) == 0 {
                bits[range.clone()].fill(true);
                set.insert(range);
            }
            if next(40) == 0 {
                bits.fill(false);
                set.clear();
            }
        }
    }
}
