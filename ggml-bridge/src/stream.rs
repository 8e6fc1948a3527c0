//! One ggml backend: an order of graphs on a device.
//!
//! A graph becomes one submission that signals the next value of the stream's timeline. `compute` returns when it is
//! submitted; whoever needs results settles the stream first. The exception is a graph that reads memory which the program
//! writes without asking us (llama.cpp writes token ids, positions and masks of its next batch right after `graph_compute` has
//! returned): such a graph is complete when `compute` returns. A failure that shows only then cannot be returned by
//! ggml's `synchronize`; it is logged at once and fails the next graph of the stream.

use crate::graph::{GraphSource, Signature};
use crate::log;
use crate::npu::Npu;
use crate::plan::Plan;
use aie_hal::{Binding, BindingTable, Buffer, BufferParams, DeviceError, Queue, Semaphore, Submission, TimelinePoint};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Plans a stream keeps.
const PLANS: usize = 8;

/// Recent plans, most recent first, and the scratch memory they share.
#[derive(Default)]
struct Plans {
    recent: Vec<(Signature, Arc<Plan>)>,
    scratch: Option<Arc<dyn Buffer>>,
}

/// Work that was submitted and not yet settled.
struct Flight {
    semaphore: Arc<dyn Semaphore>,
    value: u64,
    unsettled: Vec<Arc<Plan>>,
    waits: Vec<TimelinePoint>,
    failure: Option<String>,
}

/// See the module docs. Thread-safe.
pub struct Stream {
    npu: Arc<Npu>,
    queue: Arc<dyn Queue>,
    asynchronous: bool,
    plans: Mutex<Plans>,
    flight: Mutex<Flight>,
}

impl Stream {
    /// A stream on `npu`. When not `asynchronous`, each graph, not only one that shares memory with the program, is settled before `compute` returns.
    ///
    /// # Errors
    /// As [`aie_hal::Device::create_queue`] and [`aie_hal::Device::create_semaphore`].
    pub fn new(npu: Arc<Npu>, asynchronous: bool) -> Result<Arc<Self>, DeviceError> {
        let queue = npu.queue()?;
        let semaphore = npu.device().create_semaphore(0)?;
        let flight = Flight { semaphore, value: 0, unsettled: Vec::new(), waits: Vec::new(), failure: None };
        let plans = Mutex::default();
        let stream = Arc::new(Self { npu, queue, asynchronous, plans, flight: Mutex::new(flight) });
        stream.npu.add_stream(&stream);
        Ok(stream)
    }

    /// Its device.
    pub fn npu(&self) -> &Arc<Npu> {
        &self.npu
    }

    /// Submits a graph.
    ///
    /// # Errors
    /// Why this graph cannot run, or why an earlier one failed.
    pub fn compute(&self, graph: &impl GraphSource) -> Result<(), String> {
        let mut plans = self.plans.lock();
        if let Some(cause) = self.flight.lock().failure.take() {
            return Err(format!("an earlier graph failed: {cause}"));
        }
        let (plan, replayed) = self.plan(&mut plans, graph)?;
        let Some(commands) = plan.commands() else { return Ok(()) };
        if !self.npu.device().info().coherent {
            // What earlier graphs wrote has to reach the host's view before that view is flushed over it.
            self.settle();
        }
        plan.flush().map_err(|cause| cause.to_string())?;
        let bindings = self.bindings(&mut plans, &plan)?;
        {
            let mut flight = self.flight.lock();
            let mut waits = std::mem::take(&mut flight.waits);
            let signal = |value| TimelinePoint { semaphore: Arc::clone(&flight.semaphore), value };
            if flight.value > 0 {
                waits.push(signal(flight.value));
            }
            let signals = vec![signal(flight.value + 1)];
            let commands = Some(Arc::clone(commands));
            self.queue.submit(Submission { waits, commands, bindings, signals }).map_err(|cause| cause.to_string())?;
            flight.value += 1;
            if !flight.unsettled.iter().any(|p| Arc::ptr_eq(p, &plan)) {
                flight.unsettled.push(Arc::clone(&plan));
            }
        }
        self.npu.statistics().graph(plan.share(), replayed, 1, &self.npu.device().counters());
        if !self.asynchronous || plan.is_shared() {
            self.settle();
            if let Some(cause) = self.flight.lock().failure.take() {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// The plan of `graph`: a recent one, or a new one.
    fn plan(&self, plans: &mut Plans, graph: &impl GraphSource) -> Result<(Arc<Plan>, bool), String> {
        let generation = self.npu.weights().generation();
        let arrivals = self.npu.kernels().arrivals();
        plans.recent.retain(|(_, plan)| plan.weights_generation() == generation && !plan.is_outdated(arrivals));
        if let Some(at) = plans.recent.iter().position(|(signature, _)| signature.matches(graph)) {
            plans.recent[..=at].rotate_right(1);
            return Ok((Arc::clone(&plans.recent[0].1), true));
        }
        let nodes = graph.read()?;
        let plan = Plan::build(&self.npu, &nodes).or_else(|cause| {
            if plans.recent.is_empty() {
                return Err(cause);
            }
            // Older plans hold kernels and memory of others, which may be gone and its place taken. Once more without them.
            plans.recent.clear();
            log::info(|| format!("{}: recording a graph again without older plans: {cause}", self.npu.name()));
            Plan::build(&self.npu, &nodes)
        });
        let plan = Arc::new(plan?);
        plans.recent.truncate(PLANS - 1);
        plans.recent.insert(0, (Signature::of(graph), Arc::clone(&plan)));
        Ok((plan, false))
    }

    /// Binds the stream's scratch memory, grown when needed. Submissions of a stream follow each other, so they can share it.
    fn bindings(&self, plans: &mut Plans, plan: &Plan) -> Result<BindingTable, String> {
        let length = plan.scratch_bytes();
        if length == 0 {
            return Ok(BindingTable::default());
        }
        let buffer = match &plans.scratch {
            Some(buffer) if buffer.size() >= length => Arc::clone(buffer),
            _ => {
                plans.scratch = None;
                let buffer = self.npu.device().allocate(&BufferParams::data(length));
                let buffer = buffer.map_err(|cause| format!("scratch memory for conversions: {cause}"))?;
                plans.scratch = Some(Arc::clone(&buffer));
                buffer
            }
        };
        Ok(BindingTable { bindings: vec![Binding { buffer, offset: 0, length }] })
    }

    /// Waits for everything submitted and makes its results visible to the host.
    pub fn settle(&self) {
        let mut flight = self.flight.lock();
        if flight.unsettled.is_empty() {
            return;
        }
        if let Err(cause) = flight.semaphore.wait_blocking(flight.value, None) {
            let cause = cause.to_string();
            log::error(&format!("{}: a graph failed, its results are not valid: {cause}", self.npu.name()));
            flight.failure.get_or_insert(cause);
            // A failed timeline stays failed; the next graph gets a new one.
            if let Ok(semaphore) = self.npu.device().create_semaphore(0) {
                flight.semaphore = semaphore;
                flight.value = 0;
            }
        }
        for plan in std::mem::take(&mut flight.unsettled) {
            if let Err(cause) = plan.invalidate() {
                log::error(&format!("{}: results cannot be read back: {cause}", self.npu.name()));
            }
        }
    }

    /// The point that is reached when everything submitted so far is complete.
    pub fn point(&self) -> TimelinePoint {
        let flight = self.flight.lock();
        TimelinePoint { semaphore: Arc::clone(&flight.semaphore), value: flight.value }
    }

    /// Makes the next graph wait for `point`.
    pub fn wait_for(&self, point: TimelinePoint) {
        let mut flight = self.flight.lock();
        let own = Arc::ptr_eq(&point.semaphore, &flight.semaphore);
        if !own && point.value > 0 {
            flight.waits.push(point);
        }
    }

    /// Drops plans that use memory in `range`.
    pub fn forget(&self, range: &Range<usize>) {
        self.plans.lock().recent.retain(|(_, plan)| !plan.uses(range));
    }
}

impl Stream {
    /// Drops all plans.
    pub fn forget_all(&self) {
        self.plans.lock().recent.clear();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.settle();
    }
}
