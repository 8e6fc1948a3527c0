//! What happened when, for people who look for where the time goes.
//!
//! Recording is off unless asked for ([`Array::record_timeline`](super::Array::record_timeline)): a large kernel has millions of intervals. Each tile records its
//! own, because cores run on several threads.

use super::clock::Resource;

/// Intervals that a tile records at most between two calls of [`Array::take_timeline`](super::Array::take_timeline); later ones are dropped.
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

    /// Starts or ends recording, at the core's time `now`; what has been recorded stays until it is taken.
    pub fn switch(&mut self, is_on: bool, now: u64) {
        (self.is_on, self.core_runs_from) = (is_on, now);
    }

    /// Takes what has been recorded up to the core's time `now`: what, and its first cycle and the one after its last.
    pub fn take(&mut self, now: u64) -> Vec<(Resource, Occupation, u64, u64)> {
        self.add(Resource::Core, Occupation::Runs, self.core_runs_from, now);
        self.core_runs_from = now;
        std::mem::take(&mut self.intervals)
    }
}
