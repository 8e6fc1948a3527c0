//! The device memory that a dispatch touches, by which hosts know what to wait for.

use crate::format::extent::Traffic;
use std::ops::Range;

/// What a dispatch touches: device addresses, for example a row of a table and not all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// What it may read.
    pub(super) reads: Vec<Range<u64>>,
    /// What it may write.
    pub(super) writes: Vec<Range<u64>>,
    /// What is moved, both ways.
    pub(super) traffic: Traffic,
}

impl Touched {
    pub(super) fn add(&mut self, other: &Self) {
        self.reads.extend_from_slice(&other.reads);
        self.writes.extend_from_slice(&other.writes);
        self.traffic = self.traffic.and(other.traffic);
    }
}
