//! Chains in flight: submitted to the kernel driver, and not yet waited for.

use crate::accel::command_buffer::CommandBuffer;
use crate::accel::completion::Submitted;
use crate::accel::context::HardwareContext;
use crate::agent::AgentError;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Chains whose end is remembered for callers that have not waited yet.
const REMEMBERED: usize = 1024;

/// A hardware context and its chains.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) hardware: HardwareContext,
    /// Oldest first.
    pub(super) in_flight: VecDeque<InFlight>,
}

#[derive(Debug)]
pub(super) struct InFlight {
    /// Number among the chains of the agent.
    pub(super) number: u64,
    /// Sequence number in the context.
    pub(super) sequence: u64,
    pub(super) since: Instant,
    /// Its commands, then the chain itself.
    pub(super) buffers: Vec<CommandBuffer>,
}

impl Context {
    /// The oldest chain: its number, and what to wait for how long, when a chain may take `limit`.
    pub(super) fn oldest(&self, limit: Duration) -> Option<(u64, Submitted, Duration)> {
        let chain = self.in_flight.front()?;
        let left = limit.saturating_sub(chain.since.elapsed()).max(Duration::from_millis(1));
        Some((chain.number, Submitted { context: self.hardware, sequence: chain.sequence }, left))
    }
}

/// How chains ended that were checked before their callers waited, by number. Only the latest are remembered.
#[derive(Debug, Default)]
pub(super) struct Ended(pub(super) BTreeMap<u64, Result<(), AgentError>>);

impl Ended {
    /// Remembers how a chain ended.
    pub(super) fn remember(&mut self, number: u64, result: Result<(), AgentError>) {
        self.0.insert(number, result);
        if self.0.len() > REMEMBERED {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_remembered_and_forgotten() {
        let mut ended = Ended::default();
        for number in 0..2 * REMEMBERED as u64 {
            ended.remember(number, Ok(()));
        }
        assert_eq!(ended.0.len(), REMEMBERED);
        assert_eq!(ended.0.first_key_value(), Some((&(REMEMBERED as u64), &Ok(()))));
    }
}
