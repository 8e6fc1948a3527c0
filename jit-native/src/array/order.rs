//! Two operands of one core over one channel: the order in which their tiles are sent.
//!
//! What stands in front of a channel's words has to be taken before these are. So tiles are sent in the order in which the program takes them.

use std::ops::Range;

/// The order in which a program takes tiles of its two operands: some of B, and then each further one of B before some of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileOrder {
    /// Tiles of B that it takes before anything else.
    pub b_first: u32,
    /// Tiles of A for each other tile of B.
    pub a_for_each_b: u32,
}

/// One of each.
impl Default for TileOrder {
    fn default() -> Self {
        Self { b_first: 0, a_for_each_b: 1 }
    }
}

/// Tiles of an operand that are sent together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Share {
    /// 0: A, 1: B.
    pub operand: usize,
    pub tiles: Range<u64>,
    /// Which part of A the program has taken before the first of them.
    pub position: f64,
}

impl TileOrder {
    /// The order of so many tiles of A and B; of A alone all together. None if the numbers do not go with each other.
    pub(super) fn shares(self, [a, b]: [u64; 2]) -> Option<Vec<Share>> {
        if b == 0 {
            return Some(vec![Share { operand: 0, tiles: 0..a, position: 0.0 }]);
        }
        let (first, each) = (u64::from(self.b_first), u64::from(self.a_for_each_b));
        if each == 0 || !a.is_multiple_of(each) || first + a / each != b {
            return None;
        }
        let before = (0..first).map(|tile| Share { operand: 1, tiles: tile..tile + 1, position: 0.0 });
        let groups = (0..a / each).flat_map(|group| {
            let (tile, of_a) = (first + group, group * each..(group + 1) * each);
            let position = of_a.start as f64 / a as f64;
            [Share { operand: 1, tiles: tile..tile + 1, position }, Share { operand: 0, tiles: of_a, position }]
        });
        Some(before.chain(groups).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 1, [1, 1], Some("b0..1 a0..1"))]
    #[case(0, 1, [2, 2], Some("b0..1 a0..1 b1..2 a1..2"))]
    #[case(0, 5, [5, 1], Some("b0..1 a0..5"))]
    #[case(1, 3, [6, 3], Some("b0..1 b1..2 a0..3 b2..3 a3..6"))]
    #[case(2, 1, [0, 2], Some("b0..1 b1..2"))]
    #[case(0, 1, [7, 0], Some("a0..7"))]
    #[case(0, 1, [3, 2], None)]
    #[case(0, 2, [3, 2], None)]
    fn tiles_follow_the_program(
        #[case] b_first: u32,
        #[case] a_for_each_b: u32,
        #[case] tiles: [u64; 2],
        #[case] expected: Option<&str>,
    ) {
        let shares = TileOrder { b_first, a_for_each_b }.shares(tiles);
        let of = |share: &Share| format!("{}{}..{}", ["a", "b"][share.operand], share.tiles.start, share.tiles.end);
        let text = shares.as_ref().map(|shares| shares.iter().map(of).collect::<Vec<_>>().join(" "));
        assert_eq!(text.as_deref(), expected);
        let positions: Vec<f64> = shares.iter().flatten().map(|share| share.position).collect();
        assert!(positions.is_sorted() && positions.iter().all(|position| (0.0..=1.0).contains(position)));
    }
}
