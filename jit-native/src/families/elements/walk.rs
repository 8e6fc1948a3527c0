//! How the elements of operands and result are walked through, and how the walk is dealt over columns and phases.
//!
//! A [`Walk`] is a run of consecutive elements of the result and dimensions around it, each with steps for both operands and the
//! result. Several short runs are one tile. A step of 0 repeats an operand; the order of dimensions is free, so those that repeat the second operand are put
//! innermost, and a column that has its run goes through all that uses it. The walk is cut into boxes, which are what one column does
//! in one phase.

use crate::array::Elements;

/// Elements of a buffer when there are two of them in a ring: words of the core.
pub const BUFFER_WORDS: u64 = 2048;
/// Elements of a buffer that is a ring by itself.
pub const RING_WORDS: u64 = 4096;
/// Tiles of one phase of a channel: four tasks of 256.
const MOST_TILES: u64 = 1024;

/// Pieces of long runs: a column should begin early with its first one and end soon after the arrival of its last one, and the steps
/// with each take longer than what comes with it.
const PIECES: std::ops::RangeInclusive<u64> = 256..=1024;
/// Pieces that a column should have.
const PIECES_OF_A_COLUMN: u64 = 4;

/// Runs beyond this many elements have tiles of their own: their steps take longer than what comes with each tile.
const SHORT: u64 = 256;

/// One dimension, with steps in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Number of iterations.
    pub size: u64,
    /// Step of the first operand.
    pub a: u64,
    /// Step of the second operand.
    pub b: u64,
    /// Step of the result.
    pub result: u64,
}

impl Loop {
    /// One iteration.
    pub const ONCE: Self = Self { size: 1, a: 0, b: 0, result: 0 };

    /// A dimension that all step through alike.
    #[must_use]
    pub fn alike(size: u64, step: u64) -> Self {
        Self { size, a: step, b: step, result: step }
    }
}

/// What a column does in a phase, or a whole node before it is dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Elements of the first operand and of the result that are contiguous.
    pub run: u64,
    /// Elements of the second operand for a run: as many, 1 for one element to be repeated, 0 for none.
    pub b_run: u64,
    /// The runs of a tile. Where they all have the same of the second operand, a tile has that once.
    pub group: Loop,
    /// Dimensions, the innermost first.
    pub loops: Vec<Loop>,
    /// Where the walk begins, in elements.
    pub start: [u64; 3],
}

impl Walk {
    /// Merges dimensions that are contiguous in all tensors; loops of one iteration go.
    #[must_use]
    pub fn merged(loops: &[Loop]) -> Vec<Loop> {
        let mut merged: Vec<Loop> = Vec::new();
        for next in loops.iter().filter(|next| next.size != 1) {
            match merged.last_mut() {
                Some(Loop { size, a, b, result })
                    if *size * *a == next.a && *size * *b == next.b && *size * *result == next.result =>
                {
                    *size *= next.size;
                }
                _ => merged.push(*next),
            }
        }
        merged
    }

    /// Elements of a tile of the first operand and of the result.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.run * self.group.size
    }

    /// Elements of a tile of the second operand.
    #[must_use]
    pub fn b_elements(&self) -> u64 {
        if self.group.b == 0 { self.b_run } else { self.b_run * self.group.size }
    }

    /// Short runs as tiles of several, as many as fit and leave tiles for all columns.
    #[must_use]
    pub fn grouped(self, columns: u64) -> Self {
        let Some(first) = self.loops.first().copied().filter(|_| self.run <= SHORT && self.group.size == 1) else {
            return self;
        };
        let most = self.tiles().div_ceil(columns.max(1)).min(BUFFER_WORDS / self.run.max(1)).min(first.size);
        let Some(size) = (2..=most).rev().find(|size| first.size.is_multiple_of(*size)) else {
            return self;
        };
        let mut loops = self.loops;
        let Loop { a, b, result, .. } = first;
        loops[0] = Loop { size: first.size / size, a: a * size, b: b * size, result: result * size };
        Self { group: Loop { size, ..first }, loops, ..self }
    }

    /// Tiles of the first operand.
    #[must_use]
    pub fn tiles(&self) -> u64 {
        self.loops.iter().map(|l| l.size).product()
    }

    /// The loops that repeat the second operand, which come first, and the others.
    #[must_use]
    pub fn by_reuse(&self) -> (Vec<Loop>, Vec<Loop>) {
        self.loops.iter().partition(|l| l.b == 0)
    }

    /// Runs longer than a buffer in pieces, and shorter ones where there are fewer runs than columns: pieces of equal length, which
    /// become a loop, and what is left, if that cannot be avoided. A piece is whole vectors.
    #[must_use]
    pub fn in_pieces(self, columns: u64) -> Vec<Self> {
        if self.group.size > 1 {
            return vec![self];
        }
        let share = (self.run * self.tiles()).div_ceil(columns).next_multiple_of(16);
        if self.run <= share.min(BUFFER_WORDS) {
            return vec![self];
        }
        let wanted = share.div_ceil(PIECES_OF_A_COLUMN).next_multiple_of(16);
        let most = wanted.clamp(*PIECES.start(), *PIECES.end()).min(share);
        // Shorter ones where nothing is left then.
        let piece = (most / 32..=most / 16).rev().map(|vectors| 16 * vectors);
        let piece = piece.into_iter().find(|piece| *piece > 0 && self.run.is_multiple_of(*piece)).unwrap_or(most);
        self.cut(piece)
    }

    /// Runs as pieces of so many elements, which become a loop, and what is left.
    fn cut(self, piece: u64) -> Vec<Self> {
        let b_step = if self.b_run == self.run { 1 } else { 0 };
        let (count, rest) = (self.run / piece, self.run % piece);
        let shortened = |run: u64| if b_step == 1 { run } else { self.b_run };
        let mut loops = vec![Loop { size: count, a: piece, b: piece * b_step, result: piece }];
        loops.extend(&self.loops);
        let mut walks = vec![Self { run: piece, b_run: shortened(piece), loops, ..self.clone() }];
        if rest > 0 {
            let done = count * piece;
            let start = [self.start[0] + done, self.start[1] + done * b_step, self.start[2] + done];
            walks.push(Self { run: rest, b_run: shortened(rest), start, ..self });
        }
        walks
    }

    /// Shares elements over columns: a box of one tile for each, if runs can be cut.
    #[must_use]
    pub fn shared(self, columns: u64) -> Vec<Self> {
        let piece = self.run.div_ceil(columns).next_multiple_of(u64::from(Elements::TURN_WORDS));
        let is_cut = self.loops.is_empty() && self.group.size == 1 && piece < self.run;
        let walks = if is_cut { self.cut(piece) } else { vec![self] };
        walks.into_iter().flat_map(|walk| walk.boxes(columns)).collect()
    }

    /// Cuts the walk into at least `parts` boxes if there are as many tiles, none with more tiles than a phase takes.
    #[must_use]
    pub fn boxes(self, parts: u64) -> Vec<Self> {
        let needed = parts.max(self.tiles().div_ceil(MOST_TILES));
        let largest = self.loops.iter().enumerate().max_by_key(|(index, l)| (l.size, *index));
        let Some((index, cut)) = largest.filter(|(_, l)| l.size > 1 && needed > 1).map(|(i, l)| (i, *l)) else {
            return vec![self];
        };
        let count = cut.size.min(needed);
        let mut boxes = Vec::new();
        let mut from = 0;
        for part in 0..count {
            let to = cut.size * (part + 1) / count;
            let mut walk = self.clone();
            walk.loops[index].size = to - from;
            for (start, step) in walk.start.iter_mut().zip([cut.a, cut.b, cut.result]) {
                *start += from * step;
            }
            boxes.extend(walk.boxes(needed.div_ceil(count)));
            from = to;
        }
        boxes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word of the result once.
    fn covered(walks: &[Walk], words: usize) {
        let mut seen = vec![0; words];
        for walk in walks {
            assert!(walk.tiles() <= MOST_TILES && walk.elements() <= RING_WORDS);
            let mut starts = vec![walk.start[2]];
            for l in std::iter::once(&walk.group).chain(&walk.loops) {
                starts = starts.iter().flat_map(|s| (0..l.size).map(move |i| s + i * l.result)).collect();
            }
            for start in starts {
                for word in start..start + walk.run {
                    seen[word as usize] += 1;
                }
            }
        }
        assert!(seen.iter().all(|count| *count == 1));
    }

    #[test]
    fn flat_tensors_are_dealt_in_whole_vectors() {
        for words in [1, 15, 600, 2048, 8192, 100_003] {
            let walk = Walk { run: words, b_run: words, group: Loop::ONCE, loops: vec![], start: [0; 3] };
            let walks: Vec<Walk> = walk.in_pieces(4).into_iter().flat_map(|walk| walk.boxes(4)).collect();
            covered(&walks, words as usize);
            assert!(walks.len() <= 5, "{words}: {}", walks.len());
        }
    }

    #[test]
    fn what_is_shared_has_a_box_for_a_column() {
        for (words, columns) in [(1, 1), (576, 1), (578, 1), (8192, 4), (8192, 2), (600, 4), (1000, 4)] {
            let walk = Walk { run: words, b_run: words, group: Loop::ONCE, loops: vec![], start: [0; 3] };
            let boxes = walk.shared(columns);
            covered(&boxes, words as usize);
            assert!(boxes.len() as u64 <= columns && boxes.iter().all(|walk| walk.tiles() == 1), "{boxes:?}");
        }
    }

    #[test]
    fn many_rows_take_several_phases() {
        let walk = Walk {
            run: 10,
            b_run: 10,
            group: Loop::ONCE,
            loops: vec![Loop { size: 9001, a: 10, b: 0, result: 10 }],
            start: [0; 3],
        };
        let walks = walk.boxes(4);
        covered(&walks, 90_010);
        assert_eq!(walks.len(), 9);
    }

    #[test]
    fn short_runs_are_grouped() {
        let loops = vec![Loop { size: 9000, a: 10, b: 0, result: 10 }];
        let walk = Walk { run: 10, b_run: 10, group: Loop::ONCE, loops, start: [0; 3] }.grouped(4);
        assert_eq!((walk.group.size, walk.elements(), walk.b_elements(), walk.tiles()), (200, 2000, 10, 45));
        covered(&walk.boxes(4), 90_000);
    }

    #[test]
    fn what_is_contiguous_everywhere_is_one_loop() {
        let loops = [Loop::alike(4, 1), Loop::alike(3, 4), Loop { size: 5, a: 12, b: 0, result: 12 }];
        assert_eq!(Walk::merged(&loops), [Loop::alike(12, 1), loops[2]]);
    }
}
