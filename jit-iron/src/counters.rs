//! Where kernels came from, counted.

use serde::Serialize;
use std::ops::AddAssign;

/// A snapshot of a store's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoreCounters {
    /// Answers from memory, good and bad.
    pub memory: u64,
    /// Kernels that were built into the library.
    pub embedded: u64,
    /// Kernels read from the kernel directory.
    pub directory: u64,
    /// Kernels that an earlier process, or another one just now, had compiled.
    pub cache: u64,
    /// Kernels compiled.
    pub compiled: u64,
    /// Kernels that no source had. A repeated request for one of them counts as an answer from memory.
    pub failed: u64,
}

impl AddAssign for StoreCounters {
    fn add_assign(&mut self, other: Self) {
        self.memory += other.memory;
        self.embedded += other.embedded;
        self.directory += other.directory;
        self.cache += other.cache;
        self.compiled += other.compiled;
        self.failed += other.failed;
    }
}
