//! Two operands of one core over one channel: the order in which their tiles are sent.
//!
//! What stands in front of a channel's words has to be taken before these are. So tiles are sent in the order in which the program takes them,
//! and a tile ahead only where its ring has a buffer for it by then, whatever the program has not come to yet: then it never waits for a
//! tile behind one that it cannot take. Tiles of one operand that follow each other go together.

use std::ops::Range;

/// The order in which a program takes tiles of its two operands: some of B, and then for each further one of B some of A. Whether it takes
/// a tile of B or the first of these of A before the other is its own affair; it keeps each until it is done with it.
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
    /// Tiles of B that go with so many of A. None if A ends within a tile of B.
    pub(super) fn tiles_of_b(self, a: u64) -> Option<u64> {
        let each = u64::from(self.a_for_each_b);
        (each > 0 && a.is_multiple_of(each)).then(|| u64::from(self.b_first) + a / each)
    }

    /// How many tiles of an operand it takes before tile `other` of the other one.
    fn before(self, operand: usize, other: u64) -> u64 {
        let (first, each) = (u64::from(self.b_first), u64::from(self.a_for_each_b));
        if operand == 0 { other.saturating_sub(first) * each } else { first + other / each + 1 }
    }

    /// The order of so many tiles of A and B, whose rings have so many buffers. The numbers of tiles go with each other
    /// ([`TileOrder::tiles_of_b`]).
    pub(super) fn shares(self, tiles: [u64; 2], depths: [u8; 2]) -> Vec<Share> {
        let mut sent = [0; 2];
        let mut shares = Vec::new();
        while sent != tiles {
            let is_b = sent[0] == tiles[0] || sent[1] < tiles[1].min(self.before(1, sent[0]));
            let operand = usize::from(is_b);
            let (other, first) = (1 - operand, sent[operand]);
            // Behind the other operand's next tile nothing has a buffer but what the ring takes beyond the tile at hand.
            let taken = self.before(operand, sent[other]);
            let room = u64::from(depths[operand]) + taken.saturating_sub(1);
            let end = if sent[other] == tiles[other] { tiles[operand] } else { taken.max(room).min(tiles[operand]) };
            let a_before = if is_b { self.before(0, first) } else { first };
            let position = a_before as f64 / tiles[0].max(1) as f64;
            shares.push(Share { operand, tiles: first..end, position });
            sent[operand] = end;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn order(b_first: u32, a_for_each_b: u32) -> TileOrder {
        TileOrder { b_first, a_for_each_b }
    }

    fn text(order: TileOrder, tiles: [u64; 2], depths: [u8; 2]) -> String {
        let of = |share: Share| format!("{}{}..{}", ["a", "b"][share.operand], share.tiles.start, share.tiles.end);
        order.shares(tiles, depths).into_iter().map(of).collect::<Vec<_>>().join(" ")
    }

    #[rstest]
    // What fits goes at once.
    #[case(order(0, 1), [1, 1], [2, 2], "b0..1 a0..1")]
    #[case(order(0, 1), [2, 2], [2, 2], "b0..2 a0..2")]
    #[case(order(0, 5), [5, 1], [2, 2], "b0..1 a0..5")]
    // One buffer each: one tile at a time.
    #[case(order(0, 1), [3, 3], [1, 1], "b0..1 a0..1 b1..2 a1..2 b2..3 a2..3")]
    #[case(order(0, 1), [5, 5], [2, 2], "b0..2 a0..3 b2..5 a3..5")]
    #[case(order(1, 3), [6, 3], [2, 2], "b0..3 a0..6")]
    #[case(order(1, 3), [6, 3], [1, 1], "b0..2 a0..3 b2..3 a3..6")]
    #[case(order(2, 1), [0, 2], [1, 1], "b0..2")]
    fn tiles_follow_the_program(
        #[case] order: TileOrder,
        #[case] tiles: [u64; 2],
        #[case] depths: [u8; 2],
        #[case] expected: &str,
    ) {
        assert_eq!(order.tiles_of_b(tiles[0]), Some(tiles[1]));
        assert_eq!(text(order, tiles, depths), expected);
    }

    /// A program and a channel, step by step: neither ever waits for the other, whichever operand the program takes first.
    #[test]
    fn nothing_stands_behind_what_cannot_be_taken() {
        for (b_first, each, groups) in (0..3u32)
            .flat_map(|first| (1..4u32).flat_map(move |each| (1..7u64).map(move |groups| (first, each, groups))))
        {
            let tiles = [groups * u64::from(each), u64::from(b_first) + groups];
            for depths in [[1, 1], [1, 2], [2, 1], [2, 2], [3, 2]] {
                for takes_a_first in [false, true] {
                    let shares = order(b_first, each).shares(tiles, depths);
                    let sent = shares.iter().flat_map(|share| share.tiles.clone().map(|_| share.operand));
                    let positions: Vec<f64> = shares.iter().map(|share| share.position).collect();
                    assert!(positions.is_sorted() && positions.iter().all(|position| (0.0..=1.0).contains(position)));
                    expect_end(sent.collect(), &program(b_first, each, groups, takes_a_first), depths);
                }
            }
        }
    }

    /// What a program does with a tile of an operand.
    #[derive(Clone, Copy)]
    enum Step {
        Takes(usize),
        Frees(usize),
    }

    fn program(b_first: u32, each: u32, groups: u64, takes_a_first: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        (0..b_first).for_each(|_| steps.extend([Step::Takes(1), Step::Frees(1)]));
        for _ in 0..groups {
            steps.extend(if takes_a_first {
                [Step::Takes(0), Step::Takes(1)]
            } else {
                [Step::Takes(1), Step::Takes(0)]
            });
            steps.push(Step::Frees(0));
            (1..each).for_each(|_| steps.extend([Step::Takes(0), Step::Frees(0)]));
            steps.push(Step::Frees(1));
        }
        steps
    }

    fn expect_end(sent: Vec<usize>, program: &[Step], depths: [u8; 2]) {
        let (mut empty, mut full) = (depths, [0u8; 2]);
        let (mut next, mut at) = (0, 0);
        loop {
            if let Some(operand) = sent.get(next).filter(|operand| empty[**operand] > 0) {
                (empty[*operand], full[*operand], next) = (empty[*operand] - 1, full[*operand] + 1, next + 1);
            } else if let Some(Step::Frees(operand)) = program.get(at) {
                (empty[*operand], at) = (empty[*operand] + 1, at + 1);
            } else if let Some(Step::Takes(operand)) =
                program.get(at).filter(|step| matches!(step, Step::Takes(operand) if full[*operand] > 0))
            {
                (full[*operand], at) = (full[*operand] - 1, at + 1);
            } else {
                break;
            }
        }
        assert_eq!((next, at), (sent.len(), program.len()), "{sent:?}, {depths:?}");
    }
}
