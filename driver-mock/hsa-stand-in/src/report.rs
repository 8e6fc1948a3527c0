//! What a process did with the library, as counts.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Totals of the process. Thread-safe.
#[derive(Debug, Default)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

    /// Everything as JSON. `left` is what the program had not given back when it shut the runtime down.
    pub fn json(&self, silicon: Silicon, open: Open, left: Open) -> Value {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let things = |open: Open| {
            json!({
                "users": open.users,
                "queues": open.queues,
                "signals": open.signals,
                "allocations": open.allocations,
            })
        };
        json!({
            "doorbells": of(&self.doorbells),
            "packets": of(&self.packets),
            "packets_failed": of(&self.packets_failed),
            "queue_errors": of(&self.queue_errors),
            "allocations": of(&self.allocations),
            "queues": of(&self.queues),
            "signals": of(&self.signals),
            "contexts_created": silicon.contexts_created,
            "context_switches": silicon.context_switches,
            "chains": silicon.chains,
            "virtual_ns": silicon.virtual_ns,
            "open": things(open),
            "left_at_shut_down": things(left),
        })
    }
}
