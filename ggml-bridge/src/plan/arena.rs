//! Scratch memory of a plan, for converted arguments.
//!
//! A ring: it is used from front to back and then from the front again, so that a graph of a thousand nodes needs a few
//! megabytes. Commands that reuse a place are separated by the hazard tracker like any others.

use std::ops::Range;

/// Where the ring turns over, unless one node needs more.
const RING_BYTES: usize = 8 << 20;

/// Alignment of every piece.
const ALIGNMENT: usize = 64;

/// Hands out ranges of scratch memory.
#[derive(Debug, Default)]
pub struct Arena {
    next: usize,
    size: usize,
    kept: Range<usize>,
}

impl Arena {
    /// Room for `length` bytes that later pieces do not overlap until [`Arena::release`].
    pub fn keep(&mut self, length: usize) -> Range<usize> {
        let piece = self.room(&[length]).pop().unwrap_or_default();
        self.kept = piece.clone();
        piece
    }

    /// Later pieces may overlap what was kept.
    pub fn release(&mut self) {
        self.kept = 0..0;
    }

    /// Room for pieces of `lengths` bytes that do not overlap each other. They may overlap pieces of earlier calls.
    pub fn room(&mut self, lengths: &[usize]) -> Vec<Range<usize>> {
        let padded = |length: &usize| length.next_multiple_of(ALIGNMENT);
        let total: usize = lengths.iter().map(padded).sum();
        if self.next + total > RING_BYTES {
            self.next = 0;
        }
        if self.next < self.kept.end && self.kept.start < self.next + total {
            self.next = padded(&self.kept.end);
        }
        let pieces = lengths.iter().map(|length| {
            let piece = self.next..self.next + length;
            self.next += padded(length);
            piece
        });
        let pieces = pieces.collect();
        self.size = self.size.max(self.next);
        pieces
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges with one entry are meant")]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_when_the_ring_turns_over() {
        let mut arena = Arena::default();
        assert_eq!(arena.keep(100), 0..100);
        assert_eq!(arena.room(&[RING_BYTES - 64]), [128..RING_BYTES + 64]);
        assert_eq!(arena.room(&[64]), [128..192]);
        arena.release();
        assert_eq!(arena.room(&[RING_BYTES]), [0..RING_BYTES]);
    }

    #[test]
    fn pieces_follow_each_other_and_turn_over() {
        let mut arena = Arena::default();
        assert_eq!(arena.room(&[100, 4]), [0..100, 128..132]);
        assert_eq!(arena.room(&[64]), [192..256]);
        assert_eq!(arena.room(&[RING_BYTES - 64]), [0..RING_BYTES - 64]);
        assert_eq!(arena.room(&[]), []);
        assert_eq!(arena.size(), RING_BYTES - 64);
    }

    #[test]
    fn one_node_may_need_more_than_the_ring() {
        let mut arena = Arena::default();
        assert_eq!(arena.room(&[RING_BYTES, 64]), [0..RING_BYTES, RING_BYTES..RING_BYTES + 64]);
        assert_eq!(arena.room(&[64]), [0..64]);
        assert_eq!(arena.size(), RING_BYTES + 64);
    }
}
