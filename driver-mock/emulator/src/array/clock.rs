//! The clock of the array: what a run takes, and what it is bound by.
//!
//! The array has no global cycle. Every core and every DMA channel is at a cycle of its own, which grows with what it does: one
//! bundle a cycle, one word of 32 bits a cycle. Where one waits for another, the later cycle counts for both: a lock remembers
//! when each of its units was released, and the buffer of a port when words went in and left. So the cycles that a core or a
//! channel waits follow from what it waits for, and do not depend on the order in which the host lets them run.
//!
//! What else takes time within the array follows from [`Rules::delays`](super::Rules::delays): conflicts of memory banks, requests of
//! locks, hops of streams, starts of shims' tasks. By default that is nothing: the cycles are those of an array that is never
//! hindered. Not counted is what is outside of the array: how fast host memory is, for which the pieces are counted that shims
//! access, and the time that the firmware needs for an operation of its stream.

use aie_hal::format::dma_channel::Direction;
use aie_hal::format::extent::Traffic;
use std::collections::VecDeque;
use std::fmt;

/// Units that a lock has at most.
const UNITS: usize = 63;

/// When the units of a lock were released, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Releases(VecDeque<u64>);

impl Releases {
    /// Units are released at a time.
    pub fn add(&mut self, units: i32, time: u64) {
        for _ in 0..units.clamp(0, UNITS as i32) {
            self.0.push_back(time);
        }
        let over = self.0.len().saturating_sub(UNITS);
        self.0.drain(..over);
    }

    /// Units are acquired: the time from which on they are there.
    pub fn take(&mut self, units: i32) -> u64 {
        let count = usize::try_from(units).unwrap_or(0).min(self.0.len());
        self.0.drain(..count).max().unwrap_or(0)
    }

    /// The lock gets a value at a time.
    pub fn set(&mut self, units: i32, time: u64) {
        self.0.clear();
        self.add(units, time);
    }
}

/// What a run can be bound by: something that does one thing a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// A core, which executes a bundle a cycle.
    Core,
    /// A DMA channel, which moves a word of 32 bits a cycle.
    Channel {
        /// Its direction.
        direction: Direction,
        /// Its number.
        channel: usize,
    },
    /// A slave port of a stream switch, which passes a word of 32 bits a cycle.
    Stream {
        /// Its index, as the registers number slave ports.
        port: usize,
    },
}

/// How long something was busy in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Use {
    /// Column of the tile.
    pub column: u8,
    /// Row of the tile.
    pub row: u8,
    /// What it is.
    pub resource: Resource,
    /// Cycles in which it did something.
    pub busy: u64,
    /// Cycles in which it waited for a lock, a stream, a cascade or a memory bank, and went on afterwards; known of cores only,
    /// else 0.
    pub stalled: u64,
    /// Pieces of host memory without a gap that a shim's channel has accessed; else 0.
    pub pieces: u64,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, row, busy, .. } = self;
        match self.resource {
            Resource::Core => write!(f, "core ({column}, {row}): {busy} cycles"),
            Resource::Channel { direction, channel } => {
                write!(f, "{direction:?} channel {channel} of tile ({column}, {row}): {busy} cycles")
            }
            Resource::Stream { port } => write!(f, "slave port {port} of tile ({column}, {row}): {busy} cycles"),
        }
    }
}

/// The cycles of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// From the start of the instruction stream to its last awaited token; without one, to when the last channel is at its end.
    pub cycles: u64,
    /// Everything that was busy, by tiles: cores, channels, ports.
    pub uses: Vec<Use>,
}

impl Timing {
    /// What was busy longest, of two equal ones the first; a core before a channel before a port. None if nothing was.
    pub fn bound(&self) -> Option<&Use> {
        let rank = |used: &&Use| match used.resource {
            Resource::Core => 2,
            Resource::Channel { .. } => 1,
            Resource::Stream { .. } => 0,
        };
        self.uses.iter().rev().max_by_key(|used| (used.busy, rank(used)))
    }

    /// The busiest core.
    pub fn core(&self) -> Option<&Use> {
        self.busiest(|resource| *resource == Resource::Core)
    }

    /// The busiest DMA channel.
    pub fn channel(&self) -> Option<&Use> {
        self.busiest(|resource| matches!(resource, Resource::Channel { .. }))
    }

    /// The busiest port.
    pub fn stream(&self) -> Option<&Use> {
        self.busiest(|resource| matches!(resource, Resource::Stream { .. }))
    }

    /// What shims read of host memory, or wrote there: each way apart.
    pub fn host_traffic(&self, direction: Direction) -> Traffic {
        let is_one = |used: &&Use| {
            used.row == 0 && matches!(used.resource, Resource::Channel { direction: of, .. } if of == direction)
        };
        self.uses
            .iter()
            .filter(is_one)
            .map(|used| Traffic { bytes: 4 * used.busy, pieces: used.pieces })
            .fold(Traffic::default(), Traffic::and)
    }

    fn busiest(&self, kind: impl Fn(&Resource) -> bool) -> Option<&Use> {
        self.uses.iter().rev().filter(|used| kind(&used.resource)).max_by_key(|used| used.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_there_when_the_oldest_were_released() {
        let mut releases = Releases::default();
        releases.add(2, 100);
        releases.add(1, 300);
        assert_eq!(releases.take(1), 100);
        assert_eq!(releases.take(2), 300);
        // What the configuration put there has no time.
        assert_eq!(releases.take(1), 0);
        releases.set(1, 50);
        assert_eq!(releases.take(1), 50);
    }

    #[test]
    fn the_busiest_binds() {
        let used = |resource, busy| Use { column: 1, row: 2, resource, busy, stalled: 0, pieces: 0 };
        let channel = Resource::Channel { direction: Direction::MemoryToStream, channel: 0 };
        let uses = vec![used(channel, 70), used(Resource::Core, 70), used(Resource::Stream { port: 3 }, 70)];
        let timing = Timing { cycles: 90, uses };
        assert_eq!(timing.bound().map(|used| used.resource), Some(Resource::Core));
        assert_eq!(timing.stream().map(|used| used.busy), Some(70));
    }
}
