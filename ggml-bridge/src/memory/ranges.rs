//! Sets of address ranges.

use std::ops::Range;

/// A set of addresses, kept as disjoint ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet(rangemap::RangeSet<usize>);

impl RangeSet {
    /// Removes everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether any address of `range` is in the set.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        !range.is_empty() && self.0.overlaps(range)
    }

    /// Adds `range`, which may be empty.
    pub fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// The parts of `range` that are not in the set.
    pub fn missing(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        if range.is_empty() { Vec::new() } else { self.0.gaps(range).collect() }
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_bitmap() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut set, mut bits) = (RangeSet::default(), [false; 64]);
        for _ in 0..400 {
            let start = random.usize(..60);
            let range = start..start + random.usize(..4);
            assert_eq!(set.overlaps(&range), range.clone().any(|i| bits[i]));
            let missing: Vec<usize> = set.missing(&range).into_iter().flatten().collect();
            assert_eq!(missing, range.clone().filter(|&i| !bits[i]).collect::<Vec<_>>());
            if random.u8(..3) == 0 {
                bits[range.clone()].fill(true);
                set.insert(range);
            }
            assert_eq!(set.iter().flatten().collect::<Vec<_>>(), (0..64).filter(|&i| bits[i]).collect::<Vec<_>>());
            assert!(set.iter().zip(set.iter().skip(1)).all(|(one, next)| one.end < next.start), "{set:?}");
            if random.u8(..40) == 0 {
                bits.fill(false);
                set.clear();
            }
        }
    }
}
