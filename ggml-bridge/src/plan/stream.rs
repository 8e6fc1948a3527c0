//! One ggml backend: an order of graphs on a device.
//!
//! A graph becomes one submission that signals the next value of the stream's timeline. `compute` returns when it is
//! submitted; readers of results synchronize with the stream first. The exception is a graph that reads memory which the program
//! writes without asking us (llama.cpp writes token ids, positions and masks of its next batch right after `graph_compute` has
//! returned): such a graph is complete when `compute` returns. A failure that shows only then cannot be returned by
//! ggml's `synchronize`; it is logged at once and fails the next graph of the stream.
//!
//! On a device that only plans ([`DeviceContext::only_plans`]) a graph is counted and not submitted.
//!
//! On an NPU a dispatch can be aborted because of a hang of another program, whose recovery restarts everybody's contexts, and answers
//! of firmware get lost. So a graph that is found to have failed runs once more, in a new context, if no other is in flight and it has
//! not overwritten what it reads; what fails twice is an error.

use crate::config::log;
use crate::plan::context::DeviceContext;
use crate::plan::graph::{GraphError, GraphSource, Signature};
use crate::plan::{Plan, PlanError};
use crate::report::trace_file::{self, TraceFile};
use aie_hal::{
    Binding, BindingTable, Buffer, BufferParams, CommandList, Device, DeviceError, Queue, Semaphore, Submission,
    SubmitError, TimelinePoint, WaitError, timeline,
};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

/// Plans a stream keeps.
const PLANS: usize = 8;

/// A plan, with how its graph is recognised and its number in the file of graphs.
struct Recent {
    signature: Signature,
    plan: Arc<Plan>,
    number: Option<u64>,
}

/// Recent plans, most recent first, and the scratch memory they share.
#[derive(Default)]
struct Plans {
    recent: Vec<Recent>,
    scratch: Option<Arc<dyn Buffer>>,
}

/// Work that was submitted and not yet synchronized with.
struct InFlight {
    semaphore: Arc<dyn Semaphore>,
    value: u64,
    plans: Vec<Arc<Plan>>,
    waits: Vec<TimelinePoint>,
    /// The graph that was submitted, with its bindings, if it is the only one.
    alone: Option<(Arc<Plan>, BindingTable)>,
    failure: Option<WaitError>,
}

impl InFlight {
    /// Submits a plan behind everything before it.
    fn submit(
        &mut self,
        queue: &dyn Queue,
        plan: &Arc<Plan>,
        commands: &Arc<CommandList>,
        bindings: BindingTable,
    ) -> Result<(), SubmitError> {
        let is_first = self.plans.is_empty() && self.waits.is_empty();
        self.alone = is_first.then(|| (Arc::clone(plan), bindings.clone()));
        let mut waits = std::mem::take(&mut self.waits);
        let signal = |value| TimelinePoint { semaphore: Arc::clone(&self.semaphore), value };
        if self.value > 0 {
            waits.push(signal(self.value));
        }
        let signals = vec![signal(self.value + 1)];
        let commands = Some(Arc::clone(commands));
        queue.submit(Submission { waits, commands, bindings, signals })?;
        self.value += 1;
        if !self.plans.iter().any(|p| Arc::ptr_eq(p, plan)) {
            self.plans.push(Arc::clone(plan));
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), WaitError> {
        self.semaphore.wait_blocking(self.value, None)
    }

    /// A failed timeline stays failed; the next graph gets a new one.
    fn renew(&mut self, device: &dyn Device) {
        if let Ok(semaphore) = device.create_semaphore(0) {
            self.semaphore = semaphore;
            self.value = 0;
        }
    }
}

/// A graph was not computed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// It cannot be read.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// It cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Inputs cannot be made visible to the device.
    #[error(transparent)]
    Flush(DeviceError),
    /// Results that stand for computed ones cannot be written.
    #[error("results of a graph that is only planned: {0}")]
    Cleared(#[source] DeviceError),
    /// There is no scratch memory.
    #[error("scratch memory for conversions: {0}")]
    Scratch(#[source] DeviceError),
    /// The queue rejected it.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// It failed.
    #[error(transparent)]
    Failed(WaitError),
    /// A graph before it failed, which shows only now.
    #[error("an earlier graph failed: {0}")]
    Earlier(#[source] WaitError),
}

/// See the module docs. Thread-safe.
pub struct Stream {
    context: Arc<DeviceContext>,
    queue: Arc<dyn Queue>,
    asynchronous: bool,
    plans: Mutex<Plans>,
    in_flight: Mutex<InFlight>,
}

impl Stream {
    /// A stream of `context`'s device on its `queue`. When not `asynchronous`, each graph, not only one that shares memory with the
    /// program, is complete before `compute` returns.
    ///
    /// # Errors
    /// As [`aie_hal::Device::create_semaphore`].
    pub fn new(context: Arc<DeviceContext>, queue: Arc<dyn Queue>, asynchronous: bool) -> Result<Self, DeviceError> {
        let semaphore = context.hal.create_semaphore(0)?;
        let in_flight =
            InFlight { semaphore, value: 0, plans: Vec::new(), waits: Vec::new(), alone: None, failure: None };
        Ok(Self { context, queue, asynchronous, plans: Mutex::default(), in_flight: Mutex::new(in_flight) })
    }

    /// The name of its device.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Submits a graph.
    ///
    /// # Errors
    /// Why this graph cannot run, or why an earlier one failed.
    pub fn compute(&self, graph: &impl GraphSource) -> Result<(), ComputeError> {
        let begin = timeline::begin();
        let result = self.compute_graph(graph);
        if begin.is_some() {
            let detail = || result.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            timeline::end(&format!("{} graphs", self.name()), "graph", begin, detail);
            trace_file::trace().into_iter().for_each(TraceFile::flush);
        }
        result.map(drop)
    }

    /// Submits a graph; returns a few words on how.
    fn compute_graph(&self, graph: &impl GraphSource) -> Result<&'static str, ComputeError> {
        let mut plans = self.plans.lock();
        if let Some(cause) = self.in_flight.lock().failure.take() {
            return Err(ComputeError::Earlier(cause));
        }
        let begin = timeline::begin();
        let (plan, replayed) = self.plan(&mut plans, graph)?;
        let how = if replayed { "replayed" } else { "recorded" };
        if begin.is_some() {
            timeline::end(&format!("{} graphs", self.name()), "plan", begin, || how.to_owned());
        }
        let Some(commands) = plan.commands() else { return Ok("nothing to do") };
        if self.context.only_plans {
            plan.pretend().map_err(ComputeError::Cleared)?;
            self.context.statistics.graph(&plan.share, replayed, 0, &self.context.hal.counters());
            return Ok("planned");
        }
        if !self.context.hal.info().coherent {
            // What earlier graphs wrote has to reach the host's view before that view is flushed over it.
            self.synchronize();
        }
        plan.flush().map_err(ComputeError::Flush)?;
        let bindings = self.bindings(&mut plans, &plan)?;
        self.in_flight.lock().submit(&*self.queue, &plan, commands, bindings)?;
        self.context.statistics.graph(&plan.share, replayed, 1, &self.context.hal.counters());
        if !self.asynchronous || plan.shared {
            self.settle();
            if let Some(cause) = self.in_flight.lock().failure.take() {
                return Err(ComputeError::Failed(cause));
            }
        }
        Ok(how)
    }

    /// The plan of `graph`: a recent one, or a new one.
    fn plan(&self, plans: &mut Plans, graph: &impl GraphSource) -> Result<(Arc<Plan>, bool), ComputeError> {
        let generation = self.context.weights.generation();
        let (arrivals, moves) = (self.context.kernels.arrivals(), self.context.kernels.moves());
        let is_current = |plan: &Plan| plan.weights_generation == generation && plan.kernel_moves == moves;
        plans.recent.retain(|Recent { plan, .. }| is_current(plan) && !plan.is_outdated(arrivals));
        if let Some(at) = plans.recent.iter().position(|recent| recent.signature.matches(graph)) {
            plans.recent[..=at].rotate_right(1);
            let Recent { plan, number, .. } = &plans.recent[0];
            if let (Some(file), Some(number)) = (&self.context.graphs, number) {
                file.again(self.name(), *number);
            }
            return Ok((Arc::clone(plan), true));
        }
        let nodes = graph.read()?;
        let number = self.context.graphs.as_ref().filter(|_| !nodes.nodes.is_empty()).map(|file| {
            let foreseen = self.context.foreseen.noted();
            file.add(self.name(), &nodes, self.context.buffers.spans(), foreseen)
        });
        self.context.kernels.progress.begin();
        let plan = Plan::build(&self.context, &nodes).or_else(|cause| {
            if plans.recent.is_empty() {
                return Err(cause);
            }
            // Older plans hold kernels and memory of others, which may be gone and its place taken. Once more without them.
            plans.recent.clear();
            log::info(|| format!("{}: recording a graph again without older plans: {cause}", self.name()));
            Plan::build(&self.context, &nodes)
        });
        self.context.kernels.progress.end();
        let plan = Arc::new(plan?);
        plans.recent.truncate(PLANS - 1);
        plans.recent.insert(0, Recent { signature: Signature::of(graph), plan: Arc::clone(&plan), number });
        Ok((plan, false))
    }

    /// Binds the stream's scratch memory, grown when needed. Submissions of a stream follow each other, so they can share it.
    fn bindings(&self, plans: &mut Plans, plan: &Plan) -> Result<BindingTable, ComputeError> {
        let length = plan.scratch_bytes;
        if length == 0 {
            return Ok(BindingTable::default());
        }
        let buffer = match &plans.scratch {
            Some(buffer) if buffer.size() >= length => Arc::clone(buffer),
            _ => {
                plans.scratch = None;
                let buffer = self.context.hal.allocate(&BufferParams::data(length)).map_err(ComputeError::Scratch)?;
                plans.scratch = Some(Arc::clone(&buffer));
                buffer
            }
        };
        Ok(BindingTable { bindings: vec![Binding { buffer, offset: 0, length }] })
    }

    /// Waits for everything submitted and makes its results visible to the host.
    pub fn synchronize(&self) {
        if let Some(cause) = self.settle() {
            log::error(&format!("{}: a graph failed, its results are not valid: {cause}", self.name()));
        }
    }

    /// The same; gives what to say of a failure, which is kept for the next graph.
    fn settle(&self) -> Option<String> {
        let mut in_flight = self.in_flight.lock();
        if in_flight.plans.is_empty() {
            return None;
        }
        let begin = timeline::begin();
        let mut waited = in_flight.wait();
        if let Err(cause) = &waited
            && may_pass(cause)
            && let Some((plan, bindings)) = in_flight.alone.take().filter(|(plan, _)| plan.repeats)
        {
            log::notice(&format!("{}: a graph is computed once more, in a new context: {cause}", self.name()));
            in_flight.renew(&*self.context.hal);
            if self.submit_again(&mut in_flight, &plan, bindings) {
                waited = in_flight.wait();
            }
        }
        if begin.is_some() {
            timeline::end(&format!("{} graphs", self.name()), "wait", begin, || "for the graphs submitted".to_owned());
        }
        let failure = waited.as_ref().err().map(ToString::to_string);
        if let Err(cause) = waited {
            in_flight.failure.get_or_insert(cause);
            in_flight.renew(&*self.context.hal);
        }
        for plan in std::mem::take(&mut in_flight.plans) {
            if let Err(cause) = plan.invalidate() {
                log::error(&format!("{}: results cannot be read back: {cause}", self.name()));
            }
        }
        failure
    }

    /// Submits a graph whose inputs are as they were. False if that is not possible.
    fn submit_again(&self, in_flight: &mut InFlight, plan: &Arc<Plan>, bindings: BindingTable) -> bool {
        let submit = |commands| in_flight.submit(&*self.queue, plan, commands, bindings).is_ok();
        plan.flush().is_ok() && plan.commands().is_some_and(submit)
    }

    /// The point that is reached when everything submitted so far is complete.
    pub fn point(&self) -> TimelinePoint {
        let in_flight = self.in_flight.lock();
        TimelinePoint { semaphore: Arc::clone(&in_flight.semaphore), value: in_flight.value }
    }

    /// Makes the next graph wait for `point`.
    pub fn wait_for(&self, point: TimelinePoint) {
        let mut in_flight = self.in_flight.lock();
        let own = Arc::ptr_eq(&point.semaphore, &in_flight.semaphore);
        if !own && point.value > 0 {
            in_flight.waits.push(point);
        }
    }

    /// Drops plans that use memory in `range`.
    pub fn drop_plans(&self, range: &Range<usize>) {
        self.plans.lock().recent.retain(|recent| !recent.plan.uses(range));
    }

    /// Drops all plans.
    pub fn clear_plans(&self) {
        self.plans.lock().recent.clear();
    }
}

/// Whether a failure can be somebody else's, so that the same work may succeed in a new context.
fn may_pass(cause: &WaitError) -> bool {
    matches!(cause, WaitError::Failed(cause) if matches!(**cause, DeviceError::Timeout(_) | DeviceError::Execution(_)))
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.synchronize();
    }
}

#[cfg(test)]
mod tests;
