//! Where kernels came from, counted.

use serde::Serialize;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// Kernels that could not be had. Asking again for one of them counts as an answer from memory.
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

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) memory: AtomicU64,
    pub(crate) embedded: AtomicU64,
    pub(crate) directory: AtomicU64,
    pub(crate) cache: AtomicU64,
    pub(crate) compiled: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Live {
    pub(crate) fn snapshot(&self) -> StoreCounters {
        StoreCounters {
            memory: self.memory.load(Relaxed),
            embedded: self.embedded.load(Relaxed),
            directory: self.directory.load(Relaxed),
            cache: self.cache.load(Relaxed),
            compiled: self.compiled.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
