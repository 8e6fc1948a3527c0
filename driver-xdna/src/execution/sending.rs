//! Chains: started when they are full or have to go, and looked at when their results are needed.

use super::{Run, Stop};
use crate::agent::{AgentError, ContextId};
use crate::flights::Cargo;
use crate::npu::device_error;
use aie_hal::command_list::Command;
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// Starts the gathered chain.
    pub(super) fn send(&mut self) -> Result<(), Stop> {
        let Some(context) = self.context else { return Ok(()) };
        let agent = &self.device.npu.agent;
        if self.scratch.flights.context().is_some_and(|other| other != context) {
            self.drain()?;
        }
        while self.scratch.flights.len() >= agent.chains_ahead().max(1) {
            self.land()?;
        }
        let started = match self.device.npu.lost() {
            None => agent.start(context, &self.scratch.chain),
            // Another queue lost the device while this one waited for the execution lock.
            Some(cause) => Err(AgentError::Lost(cause.to_string())),
        };
        let counters = &self.device.counters;
        counters.chains.fetch_add(1, Ordering::Relaxed);
        if self.array.active.replace(context).is_some_and(|active| active != context) {
            counters.context_switches.fetch_add(1, Ordering::Relaxed);
        }
        match started {
            Ok(ticket) => {
                self.scratch.flights.push(ticket, &mut self.scratch.cargo);
                self.forget_chain();
                if agent.chains_ahead() <= 1 { self.land() } else { Ok(()) }
            }
            Err(cause) => {
                // Chains before it may still say something first.
                let cargo = std::mem::take(&mut self.scratch.cargo);
                self.forget_chain();
                self.drain()?;
                Err(self.failed(context, &cargo, cause))
            }
        }
    }

    /// The gathered chain is started, or will never be.
    fn forget_chain(&mut self) {
        self.context = None;
        self.scratch.chain.clear();
        self.scratch.cargo.clear();
        self.chain_bytes = 0;
        self.chain_ns = 0;
    }

    /// Waits for all chains under way.
    pub(super) fn drain(&mut self) -> Result<(), Stop> {
        while self.scratch.flights.len() > 0 {
            self.land()?;
        }
        Ok(())
    }

    /// Waits for the oldest chain under way.
    pub(super) fn land(&mut self) -> Result<(), Stop> {
        let Some(flight) = self.scratch.flights.pop() else { return Ok(()) };
        match self.device.npu.agent.finish(flight.ticket) {
            Ok(()) => {
                let count = flight.cargo.origins.len() as u64;
                self.device.counters.dispatches.fetch_add(count, Ordering::Relaxed);
                self.device.npu.wrote(&flight.cargo.writes);
                self.scratch.flights.recycle(flight.cargo);
                Ok(())
            }
            Err(cause) => Err(self.failed(flight.ticket.context, &flight.cargo, cause)),
        }
    }

    /// A chain failed: nothing that was started behind it counts, and its context goes.
    fn failed(&mut self, context: ContextId, cargo: &Cargo, cause: AgentError) -> Stop {
        let count = cargo.origins.len();
        // Without a culprit all of the chain may have run.
        let culprit = match &cause {
            AgentError::Timeout { command, .. } | AgentError::Failed { command, .. } => command.filter(|c| *c < count),
            _ => None,
        };
        let ran = culprit.map_or(count, |culprit| culprit + 1);
        self.device.counters.dispatches.fetch_add(ran as u64, Ordering::Relaxed);
        self.device.npu.wrote(&cargo.writes);
        let origin = cargo.origins[culprit.unwrap_or(0)];
        let mut last = if culprit.is_some() { origin.work } else { cargo.origins[count - 1].work };
        let ahead = self.scratch.flights.len() > 0;
        while let Some(flight) = self.scratch.flights.pop() {
            self.device.npu.wrote(&flight.cargo.writes);
            last = flight.cargo.origins.last().map_or(last, |behind| behind.work.max(last));
            self.scratch.flights.recycle(flight.cargo);
        }
        self.forget_chain();
        if ahead || matches!(cause, AgentError::Timeout { .. } | AgentError::Failed { .. }) {
            // What a context did after a failure is unknown; the next use makes another. Its end is also what makes sure that
            // the device does not touch the memory of these commands any more.
            if let Err(second) = self.array.planner.discard(&self.device.npu.contexts, context) {
                tracing::warn!("a context that failed: {second}");
            }
            self.array.active = None;
        }
        let name = match self.works[origin.work].commands().get(origin.command) {
            Some(Command::Dispatch { executable, .. }) => executable.artifact().name(),
            _ => "a kernel",
        };
        let what = format!("dispatch of `{name}` (command {}) in a chain of {count}", origin.command);
        let started = last.max(self.begun) - origin.work + 1;
        Stop { work: origin.work, started, cause: device_error(&self.device.npu, &what, cause) }
    }
}
