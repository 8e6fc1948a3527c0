//! What every agent keeps of itself: whether it is lost, and what it has done so far.

use crate::agent::{AgentCounts, AgentError, AgentInfo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identity, loss and counters of an agent. Thread-safe.
#[derive(Debug)]
pub(crate) struct AgentStatus {
    pub(crate) info: AgentInfo,
    lost: OnceLock<String>,
    pub(crate) contexts_created: AtomicU64,
    pub(crate) doorbells: AtomicU64,
    pub(crate) allocations: AtomicU64,
}

impl AgentStatus {
    /// Of an agent that has done nothing yet.
    pub(crate) fn new(info: AgentInfo) -> Self {
        let [contexts_created, doorbells, allocations] = [0; 3].map(AtomicU64::new);
        Self { info, lost: OnceLock::new(), contexts_created, doorbells, allocations }
    }

    /// # Errors
    /// [`AgentError::Lost`] with the first cause.
    pub(crate) fn alive(&self) -> Result<(), AgentError> {
        self.lost.get().map_or(Ok(()), |cause| Err(AgentError::Lost(cause.clone())))
    }

    /// Whether the agent is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// The agent is lost; the error has the first cause.
    pub(crate) fn lose(&self, cause: String) -> AgentError {
        AgentError::Lost(self.lost.get_or_init(|| cause).clone())
    }

    /// The counters.
    pub(crate) fn counts(&self) -> AgentCounts {
        AgentCounts {
            doorbells: self.doorbells.load(Ordering::Relaxed),
            contexts_created: self.contexts_created.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }
}
