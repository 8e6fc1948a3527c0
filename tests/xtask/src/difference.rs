//! What a piece of work costs: the difference between a run and one with more of the work.
//!
//! What the two share, from loading to the warm-up, cancels out, and what is left is the steady state.

use std::collections::BTreeMap;

/// What each of `pieces` more pieces of work adds to the counts of a run. A count that only the longer run has starts at 0.
pub fn per_piece<K: Ord + Clone>(less: &BTreeMap<K, f64>, more: &BTreeMap<K, f64>, pieces: usize) -> BTreeMap<K, f64> {
    let before = |name| less.get(name).copied().unwrap_or_default();
    more.iter().map(|(name, count)| (name.clone(), (count - before(name)) / pieces as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_runs_share_cancels_out() {
        let (less, more) = ([("a", 3.0), ("b", 5.0)].into(), [("a", 11.0), ("b", 5.0), ("c", 2.0)].into());
        assert_eq!(per_piece(&less, &more, 4), [("a", 2.0), ("b", 0.0), ("c", 0.5)].into());
    }
}
