//! What a process did with the library, as counts.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Totals of the process. Thread-safe.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Doorbells with packets.
    pub doorbells: AtomicU64,
    /// Packets that completed.
    pub packets: AtomicU64,
    /// Packets that failed.
    pub packets_failed: AtomicU64,
    /// Errors of queues.
    pub queue_errors: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
    /// Queues made.
    pub queues: AtomicU64,
    /// Signals made by the program.
    pub signals: AtomicU64,
}

/// Counts of the simulated silicon.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Silicon {
    /// Hardware contexts created.
    pub contexts_created: u64,
    /// Switches between contexts.
    pub context_switches: u64,
    /// Command chains.
    pub chains: u64,
    /// Virtual time.
    pub virtual_ns: u64,
}

impl Silicon {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            contexts_created: self.contexts_created + other.contexts_created,
            context_switches: self.context_switches + other.context_switches,
            chains: self.chains + other.chains,
            virtual_ns: self.virtual_ns.saturating_add(other.virtual_ns),
        }
    }
}

/// What exists.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Open {
    /// Uses of the runtime: `hsa_init` without `hsa_shut_down`.
    pub users: usize,
    /// Queues; each has a hardware context.
    pub queues: usize,
    /// Signals without doorbells.
    pub signals: usize,
    /// Allocations.
    pub allocations: usize,
}

impl Counts {
    /// Counts one more.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Totals.
    #[serde(flatten)]
    pub counts: &'a Counts,
    /// Of the simulated silicon.
    #[serde(flatten)]
    pub silicon: Silicon,
    /// What exists now.
    pub open: Open,
    /// What the program had not given back when it shut the runtime down.
    pub left_at_shut_down: Open,
}
