//! Which cores run together: see [`cores`](super::cores).

use std::num::NonZero;
use std::thread;

/// Which tiles run together, and on how many threads.
#[derive(Debug)]
pub struct Groups {
    /// For each tile, the first tile of its group.
    pub first: Vec<usize>,
    pub threads: usize,
    /// Bundles of the last round.
    pub bundles: u64,
}

impl Groups {
    /// Each tile by itself.
    pub fn new(tiles: usize) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Self { first: (0..tiles).collect(), threads, bundles: 0 }
    }

    /// Makes one group of those of two tiles.
    pub fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first[one], self.first[other]);
        let (low, high) = (one.min(other), one.max(other));
        for first in &mut self.first {
            if *first == high {
                *first = low;
            }
        }
    }
}
