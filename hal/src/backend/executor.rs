//! Running submissions: dispatches are packed into chains, across submissions, and everything else runs on the host.
//!
//! Doorbells are expensive, so a chain ends only where it has to: at the limits of the generation (commands, and bytes of
//! the command buffer), where the next dispatch needs another context, and where the host has to see memory (a host call or a
//! transfer). Barriers do not end a chain, because a chain runs in order. Between two barriers the order is free
//! ([`CommandOrder`]). Neighbours with one PDI take one place in the chain ([`joined`](super::joined)).
//!
//! Chains are started ahead, as many as the backend takes, while the host continues with what does not depend on them. Chains of
//! different contexts are not ordered below, so those of one context end before one of another starts.
//!
//! Submissions of a batch share chains. They are finished in order when the batch has run; a host call, for which a caller may
//! wait for earlier ones, begins a batch.

mod host_command;
mod made_stream;
mod packing;
mod slices;

use self::host_command::HostScratch;
use super::array::Schedule;
use super::chain::{Chain, ChainInFlight, ChainView, ChainsInFlight};
use super::joined::Neighbours;
use super::objects::kernel;
use super::{ChainFailure, CommandOrder, ContextOf, DeviceBackend, LoadedKernel};
use crate::command_list::Command;
use crate::context_planner::ContextHost;
use crate::counters::Counters;
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::loaded_pdi::LoadedPdi;
use crate::submission_queue::{InFlight, QueueBackend, QueueDevice};
use crate::timeline;
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// What a queue's thread keeps between submissions, so that running one seldom allocates.
pub struct Scratch<B: DeviceBackend> {
    /// The chain that is being packed.
    chain: Chain<B::Heap>,
    in_flight: ChainsInFlight<ContextOf<B>, B::Heap>,
    /// Order of the commands between two barriers.
    order: Vec<usize>,
    host: HostScratch,
    start: B::ChainScratch,
}

impl<B: DeviceBackend> Default for Scratch<B> {
    fn default() -> Self {
        Self {
            chain: Chain::default(),
            in_flight: ChainsInFlight::default(),
            order: Vec::new(),
            host: HostScratch::default(),
            start: B::ChainScratch::default(),
        }
    }
}

impl<B: DeviceBackend> QueueDevice for B {
    fn name(&self) -> &str {
        &self.state().name
    }

    fn lost(&self) -> Option<DeviceError> {
        self.array().lost()
    }

    fn count_submission(&self) {
        self.state().count(|counters| counters.submissions += 1);
    }
}

impl<B: DeviceBackend> QueueBackend for B {
    type Scratch = Scratch<B>;

    fn batch_limit(&self) -> usize {
        B::BATCH
    }

    fn run(&self, scratch: &mut Scratch<B>, batch: &mut VecDeque<InFlight>) {
        // A barrier between semaphores does not wait for the array.
        while batch.front().is_some_and(|first| first.commands().is_empty()) {
            batch.pop_front().into_iter().for_each(|barrier| barrier.finish(Ok(())));
        }
        if batch.is_empty() {
            return;
        }
        scratch.chain.clear();
        let begin = timeline::begin();
        let (finished, failure) = Run::new(self, scratch, batch).all();
        slices::submissions(self, begin, batch.range(..finished));
        // Submissions that ended with the batch, and the ones that failed. What stays was not started.
        batch.drain(..finished).for_each(|submission| submission.finish(Ok(())));
        if let Some((cause, count)) = failure {
            batch.drain(..count).for_each(|submission| submission.finish(Err(cause.clone())));
        }
    }
}

/// Why a submission stops, and which.
struct Stop {
    submission: usize,
    /// Submissions from that one on that may have been started.
    started: usize,
    cause: DeviceError,
}

struct Run<'a, B: DeviceBackend> {
    device: &'a B,
    scratch: &'a mut Scratch<B>,
    batch: &'a VecDeque<InFlight>,
    /// The execution lock. While it is released, the chain is empty.
    schedule: MutexGuard<'a, Schedule<B::Contexts>>,
    /// Dispatches of the submission at hand that will be one of the chain.
    neighbours: Neighbours<'a, B>,
    /// The context of the chain that is being packed.
    context: Option<ContextOf<B>>,
    chain_bytes: usize,
    /// Expected time of the chain.
    chain_ns: u64,
    /// The last submission of which a host command has run.
    begun: usize,
    /// Whether a doorbell was rung since the last host command.
    rung: bool,
    /// When the chain before ended, for a timeline.
    array_free: u64,
    /// The same for the pace of the NPU.
    last_ended: Option<Instant>,
}

impl<'a, B: DeviceBackend> Run<'a, B> {
    fn new(device: &'a B, scratch: &'a mut Scratch<B>, batch: &'a VecDeque<InFlight>) -> Self {
        let schedule = device.array().lock();
        Self {
            device,
            scratch,
            batch,
            schedule,
            neighbours: Neighbours::default(),
            context: None,
            chain_bytes: 0,
            chain_ns: 0,
            begun: 0,
            rung: false,
            array_free: 0,
            last_ended: None,
        }
    }

    /// Runs the submissions up to the first that cannot share the batch's end. Returns how many at the front have run, and why the
    /// next ones failed and how many.
    fn all(&mut self) -> (usize, Option<(DeviceError, usize)>) {
        let batch = self.batch;
        let calls_host = |command: &Command| matches!(command, Command::HostCall { .. });
        let mut finished = 0;
        let mut result = Ok(());
        for (index, submission) in batch.iter().enumerate() {
            // Finishing a submission may be what a host call of the next one waits for.
            if index > 0 && submission.commands().iter().any(calls_host) {
                break;
            }
            result = self.submission(index, submission);
            if result.is_err() {
                break;
            }
            finished = index + 1;
        }
        // What was packed before an error belongs to commands that run before it.
        match self.send().and_then(|()| self.drain()).and(result) {
            Ok(()) => (finished, None),
            Err(stop) => (stop.submission, Some((stop.cause, stop.started))),
        }
    }

    fn submission(&mut self, index: usize, submission: &'a InFlight) -> Result<(), Stop> {
        self.place_pdis(index, submission)?;
        let mut start = 0;
        for group in submission.commands().split(|command| matches!(command, Command::Barrier)) {
            self.group(index, submission, start..start + group.len())?;
            start += group.len() + 1;
        }
        self.join_neighbours()
    }

    /// Runs the commands between two barriers.
    fn group(&mut self, index: usize, submission: &'a InFlight, group: std::ops::Range<usize>) -> Result<(), Stop> {
        let next = group.end + 1;
        let mut order = std::mem::take(&mut self.scratch.order);
        order.clear();
        order.extend(group);
        match self.device.order() {
            CommandOrder::Recorded => {}
            CommandOrder::Reversed => order.reverse(),
            CommandOrder::ByContext if order.len() < 3 => {}
            CommandOrder::ByContext => self.sort_by_context(submission.commands(), &mut order),
        }
        if self.device.order() != CommandOrder::Reversed {
            self.sort_by_pdi(submission, &mut order, next);
        }
        let result = order.iter().try_for_each(|command| self.command(index, submission, *command));
        self.scratch.order = order;
        result
    }

    fn sort_by_context(&self, commands: &[Command], order: &mut [usize]) {
        let waiting = self.neighbours.pdi().and_then(|pdi| self.schedule.planner.locate(pdi));
        let current = waiting.map(|at| at.context).or(self.context).or(self.schedule.active);
        order.sort_by_key(|command| {
            let pdi = match &commands[*command] {
                Command::Dispatch { executable, .. } => kernel(self.device, *command, executable).ok().map(|k| &k.pdi),
                _ => None,
            };
            match pdi.and_then(|pdi| self.schedule.planner.locate(pdi.number)).map(|at| at.context) {
                // Not dispatches, and PDIs that have to be placed on the way: last.
                None => (2, None),
                // The context that is being packed, or that ran last, continues.
                context if context == current => (0, None),
                context => (1, context),
            }
        });
    }

    fn stop(index: usize) -> impl Fn(DeviceError) -> Stop {
        move |cause| Stop { submission: index, started: 1, cause }
    }

    /// Finds a context for all PDIs of a list at once, and for those of the submissions behind it, so that they are put together
    /// well.
    fn place_pdis(&mut self, index: usize, submission: &'a InFlight) -> Result<(), Stop> {
        let device = self.device;
        for (position, command) in submission.commands().iter().enumerate() {
            if let Command::Dispatch { executable, .. } = command {
                kernel(device, position, executable).map_err(Self::stop(index))?;
            }
        }
        let of = |submission: &'a InFlight| {
            submission.commands().iter().filter_map(|command| match command {
                Command::Dispatch { executable, .. } => pdi(device, executable),
                _ => None,
            })
        };
        if self.schedule.planner.continues(of(submission)) {
            return Ok(());
        }
        let plan = distinct(of(submission));
        if self.schedule.planner.settle(&plan) {
            return Ok(());
        }
        // Placing may destroy the context that the chain is for, or one that runs.
        self.send()?;
        self.drain()?;
        // The PDIs of the submissions behind this one would otherwise each create a context again.
        let behind = || self.batch.range(index..);
        let mut more: Vec<Vec<_>> = behind().skip(1).map(|submission| distinct(of(submission))).collect();
        // Expected ones take no room from others, and no context of their own.
        let expected = behind().filter_map(InFlight::list).flat_map(|list| list.expected());
        more.extend(
            distinct(expected.filter_map(|executable| pdi(device, executable))).into_iter().map(|pdi| vec![pdi]),
        );
        self.plan(|schedule, contexts| schedule.planner.prepare(contexts, &plan, &more)).map_err(Self::stop(index))
    }

    /// Runs a step of the planner, counting the contexts it creates.
    fn plan<T>(
        &mut self,
        step: impl FnOnce(&mut Schedule<B::Contexts>, &B::Contexts) -> Result<T, <B::Contexts as ContextHost>::Error>,
    ) -> Result<T, DeviceError> {
        let device = self.device;
        let before = device.contexts_created();
        let result = step(&mut self.schedule, &device.array().contexts);
        let created = device.contexts_created().saturating_sub(before);
        device.state().count(|counters| counters.contexts_created += created);
        result.map_err(|cause| device.context_error(cause))
    }

    fn command(&mut self, index: usize, submission: &'a InFlight, position: usize) -> Result<(), Stop> {
        match &submission.commands()[position] {
            Command::Barrier => Ok(()),
            Command::Dispatch { executable, bindings, outputs } => {
                self.pack(index, submission, position, executable, (bindings, *outputs))
            }
            other => {
                self.send()?;
                self.rung = false;
                let Scratch { host, in_flight, .. } = &mut *self.scratch;
                host.touching(self.device, submission, position, other).map_err(Self::stop(index))?;
                for _ in 0..in_flight.last_conflict(&host.reads, &host.writes) {
                    self.wait_for_oldest()?;
                }
                self.begun = self.begun.max(index);
                let begin = timeline::begin();
                let result = self.on_host(submission, position, other).map_err(Self::stop(index));
                slices::host_command(self.device, begin, other);
                result
            }
        }
    }

    /// Starts the chain that is being packed, with all dispatches so far.
    fn send(&mut self) -> Result<(), Stop> {
        self.join_neighbours()?;
        self.start_chain()
    }

    fn start_chain(&mut self) -> Result<(), Stop> {
        let Some(context) = self.context else { return Ok(()) };
        if self.scratch.in_flight.context().is_some_and(|other| other != context) {
            self.drain()?;
        }
        let ahead = self.device.chains_ahead().max(1);
        while self.scratch.in_flight.list.len() >= ahead {
            self.wait_for_oldest()?;
        }
        let empty = self.scratch.in_flight.empty();
        let chain = std::mem::replace(&mut self.scratch.chain, empty);
        let expected_ns = self.chain_ns;
        self.forget_chain();
        let (device, batch) = (self.device, self.batch);
        let (begin, since) = (timeline::begin(), Instant::now());
        let started = match device.array().lost() {
            None => device.start(&mut self.scratch.start, &ChainView { device, context, chain: &chain, batch }),
            // Another queue lost the device while this one waited for the execution lock.
            Some(cause) => Err(ChainFailure { command: None, discard_context: false, cause }),
        };
        let rings = !(std::mem::replace(&mut self.rung, true) && B::CHAINS_SHARE_DOORBELL);
        let switches = self.schedule.active.replace(context).is_some_and(|active| active != context);
        device.state().count(|counters| {
            counters.chains += 1;
            counters.doorbells += u64::from(rings);
            counters.context_switches += u64::from(switches);
        });
        match started {
            Ok(number) => {
                self.scratch.in_flight.list.push_back(ChainInFlight {
                    context,
                    number,
                    chain,
                    started: begin,
                    since,
                    expected_ns,
                });
                if ahead == 1 { self.wait_for_oldest() } else { Ok(()) }
            }
            Err(failure) => {
                // Chains before it may still say something first.
                self.drain()?;
                Err(self.failed(context, &chain, failure))
            }
        }
    }

    /// The chain that was being packed is started, or will never be.
    fn forget_chain(&mut self) {
        self.context = None;
        self.scratch.chain.clear();
        self.chain_bytes = 0;
        self.chain_ns = 0;
    }

    /// Waits for all chains in flight.
    fn drain(&mut self) -> Result<(), Stop> {
        while !self.scratch.in_flight.list.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    /// Waits for the oldest chain in flight.
    fn wait_for_oldest(&mut self) -> Result<(), Stop> {
        let Some(ChainInFlight { context, number, chain, started, since, expected_ns }) =
            self.scratch.in_flight.list.pop_front()
        else {
            return Ok(());
        };
        let (device, batch) = (self.device, self.batch);
        let view = ChainView { device, context, chain: &chain, batch };
        let begin = timeline::begin();
        let finished = device.finish(number, &view);
        // From when the array was free: before that it waited for the chain before.
        let ended = Instant::now();
        let took = ended.duration_since(self.last_ended.replace(ended).map_or(since, |free| free.max(since)));
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        device.array().pace.note(expected_ns, took_ns, B::CHAIN_NS);
        if let (Some(started), Some(begin)) = (started, begin) {
            self.array_free = slices::chain(&view, started.max(self.array_free), begin);
        }
        match finished {
            Ok(()) => {
                device.state().count(|counters| count_dispatches(counters, &chain, chain.len()));
                device.note_written(chain.writes());
                self.scratch.in_flight.recycle(chain);
                Ok(())
            }
            Err(failure) => Err(self.failed(context, &chain, failure)),
        }
    }

    /// A chain failed: nothing that was started behind it counts.
    fn failed(&mut self, context: ContextOf<B>, chain: &Chain<B::Heap>, failure: ChainFailure) -> Stop {
        let device = self.device;
        let count = chain.len();
        // Without a culprit all of the chain may have run.
        let culprit = failure.command.filter(|command| *command < count);
        let ran = culprit.map_or(count, |culprit| culprit + 1);
        device.state().count(|counters| count_dispatches(counters, chain, ran));
        device.note_written(chain.writes());
        let first = chain.submission(culprit.unwrap_or(0));
        let mut last = chain.submission(culprit.unwrap_or(count - 1));
        let ahead = !self.scratch.in_flight.list.is_empty();
        // What was made for them may be read until the context is gone.
        let mut ended = Vec::new();
        while let Some(ChainInFlight { chain: behind, .. }) = self.scratch.in_flight.list.pop_front() {
            device.note_written(behind.writes());
            last = last.max(behind.submission(behind.len() - 1));
            ended.push(behind);
        }
        self.forget_chain();
        if ahead || failure.discard_context {
            // The next use creates another.
            if let Err(second) = self.schedule.planner.discard(&device.array().contexts, context) {
                tracing::warn!("a context that failed: {second}");
            }
            self.schedule.active = None;
        }
        ended.into_iter().for_each(|chain| self.scratch.in_flight.recycle(chain));
        let started = last.max(self.begun) - first + 1;
        Stop { submission: first, started, cause: failure.cause }
    }
}

/// The PDI of a kernel of this device.
fn pdi<'a, B: DeviceBackend>(device: &B, executable: &'a Arc<dyn Executable>) -> Option<&'a Arc<LoadedPdi<B::Heap>>> {
    kernel(device, 0, executable).ok().map(|LoadedKernel { pdi, .. }| pdi)
}

/// PDIs in the order in which they are met, each once.
fn distinct<'a, H>(pdis: impl Iterator<Item = &'a Arc<LoadedPdi<H>>>) -> Vec<&'a Arc<LoadedPdi<H>>> {
    let mut found: Vec<&Arc<LoadedPdi<H>>> = Vec::new();
    for pdi in pdis {
        if found.iter().all(|other| other.number != pdi.number) {
            found.push(pdi);
        }
    }
    found
}

/// Counts the first dispatches of a chain, which have run.
fn count_dispatches<H>(counters: &mut Counters, chain: &Chain<H>, ran: usize) {
    let commands = chain.commands(ran);
    counters.dispatches += commands as u64;
    counters.joined += (commands - ran) as u64;
}
