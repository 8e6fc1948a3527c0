//! Seeded interleavings: who goes on when, drawn by a seed.
//!
//! Without a seed everything moves as far as it can in every round, and the instruction stream is infinitely fast, so a design is seen
//! in one order of events. On silicon there are others in every run: host memory is noisy, firmware takes its time, arbiters grant in
//! any order, cores start late. With a seed channels, switches and cores are held back for some rounds, each at a pace of its own that
//! changes; between operations of a stream the array gets some rounds, or none; and an arbiter takes any of the packets that wait.
//! A design that is right has the same results under every seed. The cycles of [`Timing`](super::Timing) are not what varies here.

use super::tile::{SIDE, Tile};
use fastrand::Rng;

/// What a tile has that can be held back: its channels, its switch, its core.
const PARTS: usize = 2 * SIDE + 2;
/// Rounds for which something keeps its pace, at most.
const LONGEST_PACE: u32 = 64;
/// The chances to go on in a round are multiples of one in this many.
const CHANCES: u8 = 4;
/// Rounds between two operations of a stream, at most.
const MOST_ROUNDS: u8 = 4;
/// The logarithm of the bundles that a core executes in a round, at most.
const MOST_BUNDLES: u32 = 17;

/// How often something goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    rounds: u32,
    chance: u8,
}

impl Pace {
    fn goes_on(&mut self, rng: &mut Rng) -> bool {
        if self.rounds == 0 {
            *self = Self { rounds: rng.u32(1..=LONGEST_PACE), chance: rng.u8(0..=CHANCES) };
        }
        self.rounds -= 1;
        rng.u8(..CHANCES) < self.chance
    }
}

/// Draws who goes on.
#[derive(Debug)]
pub struct Interleaving {
    rng: Rng,
    paces: Vec<[Pace; PARTS]>,
    stream: Pace,
}

impl Interleaving {
    pub fn new(seed: u64, tiles: usize) -> Self {
        Self { rng: Rng::with_seed(seed), paces: vec![<_>::default(); tiles], stream: Pace::default() }
    }

    /// A generator of its own for the arbiters of a switch.
    pub fn fork(&mut self) -> Rng {
        self.rng.fork()
    }

    /// Holds back parts of tiles for a round.
    pub fn hold(&mut self, tiles: &mut [Tile]) {
        for (tile, paces) in tiles.iter_mut().zip(&mut self.paces) {
            let mut goes_on = paces.iter_mut().map(|pace| pace.goes_on(&mut self.rng));
            tile.held.channels = (0..2 * SIDE).map(|bit| u16::from(!goes_on.next().unwrap_or(true)) << bit).sum();
            tile.held.switch = !goes_on.next().unwrap_or(true);
            tile.held.core = !goes_on.next().unwrap_or(true);
        }
    }

    /// Words that a channel moves in a round, of at most so many.
    pub fn burst(&mut self, most: usize) -> usize {
        self.rng.usize(1..=most)
    }

    /// Bundles that a core executes in a round.
    pub fn bundles(&mut self) -> u64 {
        1 << self.rng.u32(..=MOST_BUNDLES)
    }

    /// Rounds of the array before the stream's next operation.
    pub fn rounds(&mut self) -> u8 {
        if self.stream.goes_on(&mut self.rng) { 0 } else { self.rng.u8(1..=MOST_ROUNDS) }
    }
}
