//! What happened when, for people who look for where the time goes.
//!
//! Recording is off unless asked for ([`Array::record_timeline`]): a large kernel has millions of intervals. Each tile records its
//! own, because cores run on several threads.

use super::clock::Resource;
use super::{Array, Tile};

/// Intervals that a tile records at most between two calls of [`Array::take_timeline`]; later ones are dropped.
const MOST: usize = 1 << 18;

/// What went on in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Occupation {
    /// A core executed bundles.
    Runs,
    /// A core waited for a lock, a stream or a cascade.
    Stalled,
    /// A channel moved the words of a buffer descriptor.
    Descriptor(u8),
}

/// An interval of the array's clock in which a core or a channel did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interval {
    /// Column of the tile.
    pub column: u8,
    /// Row of the tile.
    pub row: u8,
    /// Who: a core or a channel.
    pub resource: Resource,
    /// What it did.
    pub occupation: Occupation,
    /// First cycle, since the array was made.
    pub begin: u64,
    /// Cycle after the last.
    pub end: u64,
}

/// The intervals of a tile.
#[derive(Debug, Default)]
pub struct Record {
    is_on: bool,
    intervals: Vec<(Resource, Occupation, u64, u64)>,
    /// Where the core's next interval of executing begins.
    core_runs_from: u64,
}

impl Record {
    pub fn add(&mut self, resource: Resource, occupation: Occupation, begin: u64, end: u64) {
        if self.is_on && end > begin && self.intervals.len() < MOST {
            self.intervals.push((resource, occupation, begin, end));
        }
    }

    /// A core that has executed so far waits.
    pub fn stall(&mut self, begin: u64, end: u64) {
        self.add(Resource::Core, Occupation::Runs, self.core_runs_from, begin);
        self.add(Resource::Core, Occupation::Stalled, begin, end);
        self.core_runs_from = end;
    }
}

impl Array {
    /// Starts or ends recording; what has been recorded stays until it is taken.
    pub fn record_timeline(&mut self, is_on: bool) {
        for tile in &mut self.tiles {
            tile.record.is_on = is_on;
            tile.record.core_runs_from = tile.core_now();
        }
    }

    /// Takes what has been recorded, tile by tile, each core's and channel's intervals in the order of their times.
    pub fn take_timeline(&mut self) -> Vec<Interval> {
        let mut taken = Vec::new();
        for tile in &mut self.tiles {
            let now = tile.core_now();
            let record = &mut tile.record;
            record.add(Resource::Core, Occupation::Runs, record.core_runs_from, now);
            record.core_runs_from = now;
            let (column, row) = (tile.column, tile.row);
            taken.extend(
                std::mem::take(&mut record.intervals).into_iter().map(|(resource, occupation, begin, end)| Interval {
                    column,
                    row,
                    resource,
                    occupation,
                    begin,
                    end,
                }),
            );
        }
        taken
    }
}

impl Tile {
    /// The cycle of the array's clock that the core is at; 0 without a core.
    fn core_now(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.cycles() + self.core_delay)
    }
}
