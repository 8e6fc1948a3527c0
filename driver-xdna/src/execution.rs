//! Running submissions: dispatches are gathered into chains, across submissions, and everything else runs on the host.
//!
//! A doorbell is the expensive thing here, so a chain ends only where it has to: at the limits of the generation (commands, and
//! bytes of the command buffer), where the next dispatch needs another context, and where the host has to see memory (a host
//! call or a transfer; ROCR has no transfers for NPUs). Barriers do not end a chain, because a chain runs in order. Between two
//! barriers the order is free, and dispatches of one context are put together, so that contexts switch less often.
//!
//! Chains are started ahead, as many as the runtime takes, while the host goes on with what does not depend on them
//! ([`flights`](crate::flights)). Chains of different contexts are not ordered by anybody below, so those of one context end before
//! one of another starts.
//!
//! Submissions of a batch share chains. They are finished in order when the batch has run; a host call, for which somebody may
//! wait for earlier ones, begins a batch.

mod host;
mod sending;

use crate::agent::{AgentError, Argument, Chain, ContextId, Packet};
use crate::buffer::XdnaBuffer;
use crate::device::DeviceShared;
use crate::executable::{LoadedPdi, XdnaExecutable};
use crate::flights::{Cargo, Flights, Origin};
use crate::npu::{Array, device_error};
use aie_device_memory::{Snapshots, Span};
use aie_hal::command_list::{BindingTable, BufferRef, Command};
use aie_hal::context_planner::{PlannedPdi, Residence};
use aie_hal::device::chain_command_bytes;
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use aie_hal::submission_queue::{Engine, Work};
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Submissions that are looked at for one chain.
const GATHER: usize = 256;
/// Longest expected time of a chain in nanoseconds. For the kernel driver a chain is one job, which it ends after 2 s on some
/// versions; expectations are those of the arch file's costs, which are optimistic.
const CHAIN_NS: u64 = 200_000_000;

/// What a queue's thread keeps between submissions, so that running one seldom allocates.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    snapshots: Snapshots,
    chain: Chain,
    /// What the packets of the chain are and touch.
    cargo: Cargo,
    /// Chains under way.
    flights: Flights,
    /// What a host command reads and writes.
    touched: Touched,
    /// What the last host call wrote of its output, when it told.
    written: Option<Vec<Range<usize>>>,
    /// Order of the commands between two barriers.
    order: Vec<usize>,
}

/// Device addresses that a host command reads and writes.
#[derive(Debug, Default)]
struct Touched {
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

impl Engine for DeviceShared {
    type Scratch = Scratch;

    fn name(&self) -> &str {
        &self.name
    }

    fn lost(&self) -> Option<DeviceError> {
        self.npu.lost()
    }

    fn count_submission(&self) {
        self.counters.submissions.fetch_add(1, Ordering::Relaxed);
    }

    fn gather(&self) -> usize {
        GATHER
    }

    fn run(&self, scratch: &mut Scratch, batch: &mut VecDeque<Work>) {
        scratch.chain.clear();
        scratch.cargo.clear();
        let mut end = Run::new(self, scratch, batch).all();
        // Works that ended with the batch, and the one that failed. What stays was not started.
        for _ in 0..end.finished {
            if let Some(work) = batch.pop_front() {
                work.finish(Ok(()));
            }
        }
        if let Some((cause, works)) = end.failure.take() {
            for _ in 0..works {
                if let Some(work) = batch.pop_front() {
                    work.finish(Err(cause.clone()));
                }
            }
        }
    }
}

/// How far a batch came.
#[derive(Debug, Default)]
struct End {
    /// Works at the front that have run.
    finished: usize,
    /// Why the next ones failed, and how many.
    failure: Option<(DeviceError, usize)>,
}

/// Why a work stops, and which.
struct Stop {
    work: usize,
    /// Works from that one on that may have been started.
    started: usize,
    cause: DeviceError,
}

impl Stop {
    fn end(self) -> End {
        End { finished: self.work, failure: Some((self.cause, self.started)) }
    }
}

struct Run<'a> {
    device: &'a DeviceShared,
    scratch: &'a mut Scratch,
    works: &'a VecDeque<Work>,
    /// The execution lock. While it is open, the chain is empty.
    array: MutexGuard<'a, Array>,
    context: Option<ContextId>,
    chain_bytes: usize,
    /// Expected time of the chain.
    chain_ns: u64,
    /// The last work of which a host command has run.
    begun: usize,
}

impl<'a> Run<'a> {
    fn new(device: &'a DeviceShared, scratch: &'a mut Scratch, works: &'a VecDeque<Work>) -> Self {
        Self {
            device,
            scratch,
            works,
            array: device.npu.array.lock(),
            context: None,
            chain_bytes: 0,
            chain_ns: 0,
            begun: 0,
        }
    }

    /// Runs the works up to the first that cannot share the batch's end.
    fn all(&mut self) -> End {
        let works = self.works;
        for (index, work) in works.iter().enumerate() {
            // Finishing a work may be what a host call of the next one waits for.
            let calls_host = |command: &Command| matches!(command, Command::HostCall { .. });
            if index > 0 && work.commands().iter().any(calls_host) {
                return self.end(index);
            }
            let stopped = match self.work(index, work) {
                Ok(()) => None,
                // What was gathered before belongs to commands that run before this one.
                Err(stop) => Some(self.send().and_then(|()| self.drain()).err().unwrap_or(stop)),
            };
            if let Some(stop) = stopped {
                return stop.end();
            }
        }
        self.end(works.len())
    }

    fn end(&mut self, finished: usize) -> End {
        match self.send().and_then(|()| self.drain()) {
            Ok(()) => End { finished, failure: None },
            Err(stop) => stop.end(),
        }
    }

    fn work(&mut self, index: usize, work: &'a Work) -> Result<(), Stop> {
        let stop = |cause| Stop { work: index, started: 1, cause };
        self.place_pdis(index, work)?;
        let commands = work.commands();
        let mut start = 0;
        while start < commands.len() {
            let length = commands[start..].iter().position(|c| matches!(c, Command::Barrier));
            let end = length.map_or(commands.len(), |length| start + length);
            self.group(index, work, start, end).map_err(|failed| match failed {
                Ok(cause) => stop(cause),
                Err(elsewhere) => elsewhere,
            })?;
            start = end + 1;
        }
        Ok(())
    }

    /// Runs the commands between two barriers, those of one context together.
    fn group(
        &mut self,
        index: usize,
        work: &'a Work,
        start: usize,
        end: usize,
    ) -> Result<(), Result<DeviceError, Stop>> {
        let commands = work.commands();
        if end - start < 3 {
            return (start..end).try_for_each(|command| self.command(index, work, command));
        }
        let mut order = std::mem::take(&mut self.scratch.order);
        order.clear();
        order.extend(start..end);
        let rank = |context: Option<ContextId>| match context {
            // Not dispatches, and PDIs that have to be placed on the way: last.
            None => (2, 0),
            // The context that is being gathered, or that ran last, goes on.
            context if context == self.context.or(self.array.active) => (0, 0),
            Some(context) => (1, context.0),
        };
        order.sort_by_key(|command| match &commands[*command] {
            Command::Dispatch { executable, .. } => {
                let number = executable.as_any().downcast_ref::<XdnaExecutable>().map(|e| e.pdi.number());
                rank(number.and_then(|number| self.array.planner.locate(number)).map(|at| at.context))
            }
            _ => rank(None),
        });
        let result = order.iter().try_for_each(|command| self.command(index, work, *command));
        self.scratch.order = order;
        result
    }

    /// Finds contexts for all PDIs of a list at once, and for those of the works behind it, so that they are put together well.
    fn place_pdis(&mut self, index: usize, work: &'a Work) -> Result<(), Stop> {
        let stop = |cause| Stop { work: index, started: 1, cause };
        let mut homeless = false;
        for (position, command) in work.commands().iter().enumerate() {
            if let Command::Dispatch { executable, .. } = command {
                let pdi = &self.executable(position, executable).map_err(stop)?.pdi;
                match self.array.planner.locate(pdi.number()) {
                    // This notes that the context is used now and the PDI loaded; it cannot fail.
                    Some(_) => drop(self.array.planner.require(&self.device.npu.contexts, pdi)),
                    None => homeless = true,
                }
            }
        }
        if !homeless {
            return Ok(());
        }
        // Placing may destroy the context that the gathered chain is for, or one that runs.
        self.send()?;
        self.drain()?;
        // The PDIs of this list come first. Those of the works behind it would otherwise each make a context anew.
        let mut wanted: Vec<&Arc<LoadedPdi>> = Vec::new();
        for work in self.works.range(index..) {
            for command in work.commands() {
                if let Command::Dispatch { executable, .. } = command
                    && let Some(found) = executable.as_any().downcast_ref::<XdnaExecutable>()
                    && found.device == self.device.number
                    && wanted.iter().all(|w| w.number() != found.pdi.number())
                {
                    wanted.push(&found.pdi);
                }
            }
        }
        self.planning(|array, device| array.planner.prepare(&device.npu.contexts, &wanted)).map_err(stop)
    }

    /// Runs a step of the planner, counting the contexts it creates.
    fn planning<T>(
        &mut self,
        step: impl FnOnce(&mut Array, &DeviceShared) -> Result<T, AgentError>,
    ) -> Result<T, DeviceError> {
        let created = || self.device.npu.agent.counts().contexts_created;
        let before = created();
        let result = step(&mut self.array, self.device);
        self.device.counters.contexts_created.fetch_add(created().saturating_sub(before), Ordering::Relaxed);
        result.map_err(|cause| device_error(&self.device.npu, "a hardware context for the kernels", cause))
    }

    /// Runs one command. An inner `Ok` is a failure of this very work.
    fn command(&mut self, index: usize, work: &'a Work, position: usize) -> Result<(), Result<DeviceError, Stop>> {
        match &work.commands()[position] {
            Command::Barrier => Ok(()),
            Command::Dispatch { executable, bindings, outputs } => {
                self.gather(index, work, position, executable, bindings, *outputs)
            }
            other => {
                self.send().map_err(Err)?;
                self.touched(work, position, other).map_err(Ok)?;
                self.await_conflicts().map_err(Err)?;
                self.begun = self.begun.max(index);
                self.on_host(work, position, other).map_err(Ok)
            }
        }
    }

    /// Adds a dispatch to the chain, after sending the chain when it does not fit.
    fn gather(
        &mut self,
        index: usize,
        work: &'a Work,
        position: usize,
        executable: &'a Arc<dyn Executable>,
        bindings: &[BufferRef],
        outputs: usize,
    ) -> Result<(), Result<DeviceError, Stop>> {
        let executable = self.executable(position, executable).map_err(Ok)?;
        let Residence { context, slot } = match self.array.planner.locate(executable.pdi.number()) {
            Some(at) => at,
            None => {
                self.send().and_then(|()| self.drain()).map_err(Err)?;
                let pdi = &executable.pdi;
                let found = self.planning(|array, device| array.planner.require(&device.npu.contexts, pdi));
                found.map_err(Ok)?
            }
        };
        let bytes = chain_command_bytes(bindings.len());
        let limits = &self.device.npu.limits;
        let expected_ns = self.expected_ns(bindings);
        let fits = self.context.is_none_or(|c| c == context)
            && self.scratch.chain.packets.len() < self.device.chain_commands
            && self.chain_bytes + bytes <= limits.chain_buffer_bytes
            && (self.chain_ns == 0 || self.chain_ns + expected_ns <= CHAIN_NS);
        if !fits {
            self.send().map_err(Err)?;
        }
        let start = self.scratch.chain.arguments.len();
        let (reads, writes) = (self.scratch.cargo.reads.len(), self.scratch.cargo.writes.len());
        if let Err(cause) = self.arguments(work, position, bindings, outputs) {
            // The chain goes without this dispatch.
            self.scratch.chain.arguments.truncate(start);
            self.scratch.cargo.reads.truncate(reads);
            self.scratch.cargo.writes.truncate(writes);
            return Err(Ok(cause));
        }
        self.context = Some(context);
        self.chain_bytes += bytes;
        self.chain_ns += expected_ns;
        self.scratch.cargo.origins.push(Origin { work: index, command: position });
        self.scratch.chain.packets.push(Packet {
            pdi_index: slot,
            pdi: executable.pdi.reference(),
            instructions: executable.instructions.device_address,
            instruction_bytes: executable.artifact.instructions().len(),
            arguments: (start, bindings.len()),
        });
        Ok(())
    }

    /// Expected time of a dispatch in nanoseconds, by the generation's costs: its own, and moving its arguments.
    fn expected_ns(&self, bindings: &[BufferRef]) -> u64 {
        let cost = &self.device.npu.arch.cost;
        let bytes: u64 = bindings.iter().map(|reference| reference.length() as u64).sum();
        let moving = u128::from(bytes) * 1_000_000_000 / u128::from(cost.ddr_bytes_per_second.max(1));
        cost.command_ns.saturating_add(u64::try_from(moving).unwrap_or(u64::MAX / 2))
    }

    /// Adds the arguments of one dispatch to the chain.
    fn arguments(
        &mut self,
        work: &'a Work,
        position: usize,
        bindings: &[BufferRef],
        outputs: usize,
    ) -> Result<(), DeviceError> {
        let sources = bindings.len().saturating_sub(outputs);
        for (index, reference) in bindings.iter().enumerate() {
            let (buffer, offset, length) = self.find(work.bindings(), position, reference)?;
            let bytes = u32::try_from(length).map_err(|_| {
                DeviceError::InvalidArgument(format!(
                    "command {position}: an argument of {length} bytes; a packet can name {} at most",
                    u32::MAX
                ))
            })?;
            buffer.span(offset, length)?;
            let range = buffer.device_range(offset, length);
            self.scratch.chain.arguments.push(Argument { address: range.start, bytes });
            let cargo = &mut self.scratch.cargo;
            if index < sources { cargo.reads.push(range) } else { cargo.writes.push(range) }
        }
        Ok(())
    }

    fn span(
        &self,
        table: &'a BindingTable,
        position: usize,
        reference: &'a BufferRef,
    ) -> Result<Span<'a>, DeviceError> {
        let (buffer, offset, length) = self.find(table, position, reference)?;
        buffer.span(offset, length)
    }

    /// The buffer, offset and length of a reference. Does what [`BufferRef::resolve`] does without counting references.
    fn find<'b>(
        &self,
        table: &'b BindingTable,
        position: usize,
        reference: &'b BufferRef,
    ) -> Result<(&'b XdnaBuffer, usize, usize), DeviceError> {
        let invalid = |reason: String| DeviceError::InvalidArgument(format!("command {position}: {reason}"));
        let (buffer, offset, length) = reference.locate(table).map_err(|cause| invalid(cause.to_string()))?;
        match buffer.as_any().downcast_ref::<XdnaBuffer>() {
            Some(found) if std::ptr::eq(&*found.device, self.device) => Ok((found, offset, length)),
            _ => Err(invalid(format!("a buffer of another device than {}", self.device.name))),
        }
    }

    fn executable<'b>(
        &self,
        position: usize,
        executable: &'b Arc<dyn Executable>,
    ) -> Result<&'b XdnaExecutable, DeviceError> {
        match executable.as_any().downcast_ref::<XdnaExecutable>() {
            Some(found) if found.device == self.device.number => Ok(found),
            _ => Err(DeviceError::InvalidArgument(format!(
                "command {position}: kernel `{}` was loaded on another device than {}",
                executable.artifact().name(),
                self.device.name
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
