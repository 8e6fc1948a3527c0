//! The direct way to an NPU: the kernel's own interface, and nothing between.
//!
//! No ROCR, KFD or XRT is needed, only the accel node of the amdxdna kernel driver. Everything a runtime would do is here: the
//! device heap, buffer objects, hardware contexts with their PDIs, command chains, and waiting. Nothing on this way ends the
//! process: what the kernel answers becomes an error.
//!
//! - `node`: the open node, typed requests.
//! - `bo`: buffer objects and their three addresses.
//! - `context`: hardware contexts, and the chains under way in them.
//! - `command`: what chains and commands look like, and how a chain ended.
//! - `completion`: waiting, by whichever way this kernel has.
//! - `open`: opening, which ends with one real round trip.
//!
//! # Rules
//! - Chains are started ahead, as many as the kernel queues for a context, and looked at later ([`Agent::start`],
//!   [`Agent::finish`]).
//! - After a wait that failed the device may still be running. The command buffers of that chain are not used again before the
//!   context is gone; if it cannot be destroyed the NPU counts as lost, and its memory stays mapped.
//! - Caches are the caller's business: nothing is written back or invalidated here ([`Agent::caches`]).

mod bo;
mod command;
mod completion;
mod context;
mod node;
mod open;
pub(crate) mod opened;

pub use open::open;

use crate::agent::{
    Agent, AgentCounts, AgentError, AgentInfo, Allocation, Argument, Caches, Chain, ContextId, CpuCaches, PdiRef,
    Ticket,
};
use crate::at_exit::AT_EXIT_LIMIT;
use aie_hal::MemoryPool;
use amdxdna_sys::ert::state;
use amdxdna_sys::limits::QUEUED_JOBS;
use amdxdna_sys::{
    AMDXDNA_CMD_SUBMIT_EXEC_BUF, DRM_AMDXDNA_QUERY_AIE_VERSION, amdxdna_drm_exec_cmd, amdxdna_drm_get_info,
    amdxdna_drm_query_aie_version,
};
use bo::{Bo, Kind};
use command::{ChainState, CommandBuffer};
use completion::{Completion, Submitted, WaitError};
use context::{Context, Flight};
use node::{CallError, Node};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// PDIs that the mask of a command can name.
const COMPUTE_UNITS: usize = 32;
/// Chains whose end is remembered for callers that have not asked yet.
const REMEMBERED: usize = 1024;

/// An NPU on the direct way.
#[derive(Debug)]
pub struct DirectAgent {
    info: AgentInfo,
    node: Arc<Node>,
    completion: Completion,
    /// Core tiles of a context that has the whole array.
    tiles: u32,
    /// How long a chain may take.
    limit: Duration,
    imports_files: bool,
    state: Mutex<State>,
    lost: OnceLock<String>,
    contexts_created: AtomicU64,
    doorbells: AtomicU64,
    allocations: AtomicU64,
}

/// What one thread at a time may use. The heap goes last.
#[derive(Debug)]
struct State {
    contexts: HashMap<ContextId, Context>,
    next_context: u64,
    next_flight: u64,
    /// How chains ended whose context is gone.
    ended: BTreeMap<u64, Result<(), AgentError>>,
    /// Command buffers that nobody uses.
    free: Vec<CommandBuffer>,
    /// Handles of one submission.
    handles: Vec<u32>,
    /// Data memory by device address, with its length in bytes.
    data: BTreeMap<u64, (Bo, u64)>,
    /// Parts of the heap by device address.
    parts: BTreeMap<u64, Bo>,
    heap: Bo,
    closed: bool,
}

impl DirectAgent {
    /// Why the agent is lost, if it is.
    fn alive(&self) -> Result<(), AgentError> {
        self.lost.get().map_or(Ok(()), |cause| Err(AgentError::Lost(cause.clone())))
    }

    fn lose(&self, cause: String) -> AgentError {
        AgentError::Lost(self.lost.get_or_init(|| cause).clone())
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, AgentError> {
        self.alive()?;
        let state = self.state.lock();
        if state.closed { Err(AgentError::Lost("the process is ending".into())) } else { Ok(state) }
    }

    /// Whether the device answers. Several error numbers of a lost device mean other things too.
    fn is_gone(&self) -> bool {
        let mut version = amdxdna_drm_query_aie_version::default();
        let mut query = amdxdna_drm_get_info {
            param: DRM_AMDXDNA_QUERY_AIE_VERSION,
            buffer_size: size_of_val(&version) as u32,
            buffer: (&raw mut version).expose_provenance() as u64,
        };
        self.node.request(&mut query).is_err_and(|cause| cause.is_lost())
    }

    /// An error of a call that is not about contexts. Nothing of what was asked has happened.
    fn failed(&self, cause: CallError, what: &str) -> AgentError {
        let reason = format!("{what}: {cause}");
        match cause.errno() {
            libc::ENODEV | libc::ENXIO | libc::EIO if self.is_gone() => self.lose(reason),
            _ if cause.is_no_memory() => AgentError::OutOfMemory(reason),
            _ => AgentError::Failed { command: None, reason },
        }
    }

    /// Command buffers for one chain: one for each dispatch, and its own.
    fn command_buffers(&self, state: &mut State, dispatches: usize) -> Result<Vec<CommandBuffer>, AgentError> {
        while state.free.len() <= dispatches {
            let made = CommandBuffer::create(&self.node);
            state.free.push(made.map_err(|cause| match self.failed(cause, "a command buffer") {
                AgentError::Failed { reason, .. } => AgentError::OutOfMemory(reason),
                other => other,
            })?);
        }
        let first = state.free.len() - dispatches - 1;
        Ok(state.free.drain(first..).collect())
    }

    /// Submits `chain`; the buffers come back with an error.
    fn execute(
        &self,
        state: &mut State,
        context: ContextId,
        chain: &Chain,
        buffers: Vec<CommandBuffer>,
    ) -> Result<Ticket, AgentError> {
        let State { contexts, handles, data, .. } = state;
        handles.clear();
        for argument in &chain.arguments {
            handles.push(data_handle(data, argument).ok_or_else(|| AgentError::Failed {
                command: None,
                reason: format!(
                    "an argument of {} bytes at {:#x}, where no buffer is",
                    argument.bytes, argument.address
                ),
            })?);
        }
        handles.sort_unstable();
        handles.dedup();
        let (commands, own) = buffers.split_at(chain.packets.len());
        for (buffer, packet) in commands.iter().zip(&chain.packets) {
            buffer.write_dispatch(packet, chain.arguments_of(packet));
        }
        own[0].write_chain(commands.iter().map(CommandBuffer::handle));
        let Some(found) = contexts.get_mut(&context) else {
            return Err(AgentError::Failed { command: None, reason: format!("context {} does not exist", context.0) });
        };
        let mut execute = execute(found.handle, own[0].handle(), handles);
        if let Err(cause) = self.node.request(&mut execute) {
            state.free.extend(buffers);
            return Err(self.failed(cause, &format!("a chain of {} dispatches", chain.packets.len())));
        }
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        let number = state.next_flight;
        state.next_flight += 1;
        let since = std::time::Instant::now();
        found.flights.push_back(Flight { number, sequence: execute.seq, since, buffers });
        Ok(Ticket { context, number })
    }

    /// The oldest chain of a context: its number, and what to wait for how long.
    fn oldest(&self, context: &Context) -> Option<(u64, Submitted, Duration)> {
        let flight = context.flights.front()?;
        let left = self.limit.saturating_sub(flight.since.elapsed()).max(Duration::from_millis(1));
        Some((flight.number, context.submitted(flight.sequence), left))
    }

    /// How the oldest chain of a context ended that was waited for. After a failed wait it stays in the list, and its buffers with
    /// it: the device may still be running.
    fn settle(
        &self,
        context: &mut Context,
        free: &mut Vec<CommandBuffer>,
        waited: Result<(), WaitError>,
    ) -> Result<(), AgentError> {
        match waited {
            Ok(()) => {}
            Err(WaitError::TimedOut) => {
                let reason = format!("the kernel driver did not end the chain within {:?}", self.limit);
                return Err(AgentError::Timeout { command: None, reason });
            }
            Err(WaitError::NotThere(cause) | WaitError::Call(cause)) => {
                // Whatever the cause, the context has to go: only then is the chain known not to run.
                return Err(match self.failed(cause, "waiting for a chain") {
                    AgentError::OutOfMemory(reason) => AgentError::Failed { command: None, reason },
                    other => other,
                });
            }
        }
        let Some(flight) = context.flights.pop_front() else { return Ok(()) };
        let count = flight.buffers.len() - 1;
        let ended = flight.buffers[count].chain_state(count);
        let took = flight.since.elapsed();
        free.extend(flight.buffers);
        match ended {
            ChainState::Completed => Ok(()),
            ChainState::Ended { state, command } => Err(ended_badly(state, command, took, self.limit)),
        }
    }

    /// Ends what is under way in a context and destroys it.
    fn end_context(&self, state: &mut State, id: ContextId) {
        let Some(mut context) = state.contexts.remove(&id) else { return };
        while let Some((number, submitted, left)) = self.oldest(&context) {
            let waited = self.completion.wait(&self.node, submitted, left);
            let stuck = waited.is_err();
            let result = self.settle(&mut context, &mut state.free, waited);
            remember(&mut state.ended, number, result);
            if stuck {
                break;
            }
        }
        let destroyed = context.destroy(&self.node);
        let stuck = std::mem::take(&mut context.flights);
        for flight in &stuck {
            let reason = "the context of this chain was ended before it completed".to_owned();
            state.ended.entry(flight.number).or_insert(Err(AgentError::Failed { command: None, reason }));
        }
        let buffers = stuck.into_iter().flat_map(|flight| flight.buffers);
        match destroyed {
            Ok(()) => state.free.extend(buffers),
            Err(cause) => {
                let buffers: Vec<CommandBuffer> = buffers.collect();
                if buffers.is_empty() {
                    tracing::warn!("{cause}");
                } else {
                    self.lose(format!("a context with a chain that does not end cannot be destroyed ({cause})"));
                }
                buffers.into_iter().for_each(CommandBuffer::leak);
            }
        }
    }

    /// Makes a context; the answers of kernels that have no further one are of many kinds.
    fn make_context(&self, state: &State, pdis: &[PdiRef]) -> Result<Context, AgentError> {
        let handles = pdis.iter().map(|pdi| state.parts.get(&pdi.address).map(Bo::handle)).collect::<Option<Vec<_>>>();
        let handles = handles.ok_or_else(|| AgentError::Failed {
            command: None,
            reason: "a PDI that is not in the device heap of this NPU".into(),
        })?;
        Context::create(&self.node, self.tiles, &handles).map_err(|cause| {
            let is_creation = cause.call == <amdxdna_sys::amdxdna_drm_create_hwctx as amdxdna_sys::Request>::NAME;
            if is_creation && is_exhaustion(cause.errno()) && !(cause.is_lost() && self.is_gone()) {
                return AgentError::ContextsExhausted(format!(
                    "{cause}: the kernel driver has no further hardware context for {} PDIs; {}",
                    pdis.len(),
                    if state.contexts.is_empty() {
                        "this program holds none, so another program holds the NPU; end it, or try again later \
                         (`xrt-smi examine -r aie-partitions` or `lsof` on the node show who)"
                    } else {
                        "others may hold some"
                    }
                ));
            }
            self.failed(cause, &format!("a context for {} PDIs", pdis.len()))
        })
    }
}

/// The request that submits the chain in BO `chain`. `arguments` are the handles of the BOs it uses, each once; the list has to live
/// until the request is made.
fn execute(context: u32, chain: u32, arguments: &[u32]) -> amdxdna_drm_exec_cmd {
    amdxdna_drm_exec_cmd {
        hwctx: context,
        type_: AMDXDNA_CMD_SUBMIT_EXEC_BUF,
        cmd_handles: chain.into(),
        args: arguments.as_ptr().expose_provenance() as u64,
        cmd_count: 1,
        arg_count: arguments.len() as u32,
        ..Default::default()
    }
}

/// Error numbers with which kernels say that there is no further context.
pub(crate) fn is_exhaustion(errno: i32) -> bool {
    matches!(
        errno,
        // AMD's module: the run queue is full.
        libc::ENOENT
        // Mainline: the firmware has none.
        | libc::EINVAL
        // npu1: no free columns.
        | libc::ENODEV
        | libc::EBUSY | libc::ENOSPC | libc::EAGAIN | libc::EMFILE
    )
}

/// The BO that holds all of an argument.
fn data_handle(data: &BTreeMap<u64, (Bo, u64)>, argument: &Argument) -> Option<u32> {
    let (start, (bo, length)) = data.range(..=argument.address).next_back()?;
    let end = argument.address.checked_add(u64::from(argument.bytes))?;
    (end <= start + length).then(|| bo.handle())
}

fn remember(ended: &mut BTreeMap<u64, Result<(), AgentError>>, number: u64, result: Result<(), AgentError>) {
    ended.insert(number, result);
    if ended.len() > REMEMBERED {
        ended.pop_first();
    }
}

/// The error of a chain that did not complete. Kernels from 6.14 to 6.18 end a job that takes too long as aborted.
fn ended_badly(state: u32, command: Option<usize>, took: Duration, limit: Duration) -> AgentError {
    /// The shortest time limit of a kernel driver.
    const SHORTEST: Duration = Duration::from_secs(2);
    let reason = match state {
        state::COMPLETED => "the firmware failed a command, though the chain's state says completed".to_owned(),
        _ => format!("the kernel driver ended the chain as `{}`", state::name(state)),
    };
    match state {
        state::TIMEOUT | state::NO_RESPONSE => AgentError::Timeout { command, reason },
        state::ABORT if took >= SHORTEST.min(limit) => AgentError::Timeout { command, reason },
        _ => AgentError::Failed { command, reason },
    }
}

impl Agent for DirectAgent {
    fn info(&self) -> &AgentInfo {
        &self.info
    }

    fn counts(&self) -> AgentCounts {
        AgentCounts {
            doorbells: self.doorbells.load(Ordering::Relaxed),
            contexts_created: self.contexts_created.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let mut state = self.open_state()?;
        let kind = match pool {
            MemoryPool::Data => Kind::Data,
            MemoryPool::DeviceHeap => Kind::HeapPart(&state.heap),
        };
        let made = Bo::create(&self.node, kind, bytes);
        let bo =
            made.map_err(|cause| match self.failed(cause, &format!("{bytes} bytes of {} memory", pool.name())) {
                AgentError::Failed { reason, .. } => AgentError::OutOfMemory(reason),
                other => other,
            })?;
        self.allocations.fetch_add(1, Ordering::Relaxed);
        let (host, device_address) = (bo.host(), bo.device_address());
        match pool {
            MemoryPool::Data => drop(state.data.insert(device_address, (bo, bytes as u64))),
            MemoryPool::DeviceHeap => drop(state.parts.insert(device_address, bo)),
        }
        Ok(Allocation { pool, host, length: bytes, device_address })
    }

    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<Allocation, AgentError> {
        let mut state = self.open_state()?;
        // SAFETY: as the caller promises.
        let bo = unsafe { Bo::of_user_memory(&self.node, address, bytes) }
            .map_err(|cause| AgentError::Unsupported(format!("{bytes} bytes of the program's own memory: {cause}")))?;
        let device_address = bo.device_address();
        if state.data.contains_key(&device_address) {
            return Err(AgentError::Unsupported("memory that is imported already".into()));
        }
        state.data.insert(device_address, (bo, bytes as u64));
        self.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(Allocation { pool: MemoryPool::Data, host: address, length: bytes, device_address })
    }

    fn imports_files(&self) -> bool {
        self.imports_files
    }

    fn free(&self, allocation: Allocation) {
        let mut state = self.state.lock();
        let (data, part) = match allocation.pool {
            MemoryPool::Data => (state.data.remove(&allocation.device_address), None),
            MemoryPool::DeviceHeap => (None, state.parts.remove(&allocation.device_address)),
        };
        drop(state);
        let bo = data.map(|(bo, _)| bo).or(part);
        // A lost device may still be running what was submitted.
        match bo {
            Some(bo) if self.lost.get().is_some() => bo.leak(),
            bo => drop(bo),
        }
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        let mut state = self.open_state()?;
        let context = self.make_context(&state, pdis)?;
        let id = ContextId(state.next_context);
        state.next_context += 1;
        state.contexts.insert(id, context);
        self.contexts_created.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    fn destroy_context(&self, context: ContextId) {
        self.end_context(&mut self.state.lock(), context);
    }

    fn submit(&self, context: ContextId, chain: &Chain) -> Result<(), AgentError> {
        self.finish(self.start(context, chain)?)
    }

    fn chains_ahead(&self) -> usize {
        QUEUED_JOBS
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<Ticket, AgentError> {
        let mut state = self.open_state()?;
        let failed = |reason| Err(AgentError::Failed { command: None, reason });
        if chain.packets.is_empty() {
            return failed("a chain without dispatches".to_owned());
        }
        if let Some(packet) = chain.packets.iter().find(|packet| packet.pdi_index >= COMPUTE_UNITS) {
            return failed(format!("PDI number {} of a context; {COMPUTE_UNITS} are possible", packet.pdi_index));
        }
        let buffers = self.command_buffers(&mut state, chain.packets.len())?;
        self.execute(&mut state, context, chain, buffers)
    }

    fn finish(&self, ticket: Ticket) -> Result<(), AgentError> {
        let mut guard = self.state.lock();
        loop {
            if let Some(result) = guard.ended.remove(&ticket.number) {
                return result;
            }
            let Some((number, submitted, left)) = guard.contexts.get(&ticket.context).and_then(|c| self.oldest(c))
            else {
                break;
            };
            // Memory can be had while this waits.
            let waited = MutexGuard::unlocked(&mut guard, || self.completion.wait(&self.node, submitted, left));
            let state = &mut *guard;
            let Some(context) = state.contexts.get_mut(&ticket.context) else { continue };
            if context.flights.front().is_none_or(|flight| flight.number != number) {
                continue;
            }
            let stuck = waited.is_err();
            let result = self.settle(context, &mut state.free, waited);
            if number == ticket.number || stuck {
                // Behind one that does not end nothing does; the caller ends the context.
                return result;
            }
            remember(&mut state.ended, number, result);
        }
        self.alive()?;
        Err(AgentError::Failed { command: None, reason: format!("chain {} is not under way", ticket.number) })
    }

    fn caches(&self) -> Option<&dyn Caches> {
        Some(&CpuCaches)
    }

    fn close(&self) {
        let Some(mut state) = self.state.try_lock_for(AT_EXIT_LIMIT) else { return };
        let contexts: Vec<ContextId> = state.contexts.keys().copied().collect();
        for context in contexts {
            // What is under way is not waited for.
            if let Some(context) = state.contexts.remove(&context) {
                if let Err(cause) = context.destroy(&self.node) {
                    tracing::debug!("{cause}");
                }
                let buffers = context.flights.into_iter().flat_map(|flight| flight.buffers);
                buffers.for_each(CommandBuffer::leak);
            }
        }
        state.free.clear();
        state.closed = true;
        self.lose("the process is ending".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(state::TIMEOUT, Duration::ZERO, true)]
    #[case(state::NO_RESPONSE, Duration::ZERO, true)]
    #[case(state::ABORT, Duration::from_secs(60), true)]
    #[case(state::ABORT, Duration::from_millis(3), false)]
    #[case(state::ERROR, Duration::from_secs(60), false)]
    #[case(state::COMPLETED, Duration::ZERO, false)]
    #[case(state::NEW, Duration::ZERO, false)]
    fn states_become_errors(#[case] state: u32, #[case] took: Duration, #[case] timeout: bool) {
        let error = ended_badly(state, Some(3), took, Duration::from_secs(30));
        assert_eq!(matches!(error, AgentError::Timeout { command: Some(3), .. }), timeout, "{error}");
        assert_eq!(matches!(error, AgentError::Failed { command: Some(3), .. }), !timeout, "{error}");
    }

    #[test]
    fn ends_are_remembered_and_forgotten() {
        let mut ended = BTreeMap::new();
        for number in 0..2 * REMEMBERED as u64 {
            remember(&mut ended, number, Ok(()));
        }
        assert_eq!(ended.len(), REMEMBERED);
        assert_eq!(ended.first_key_value().map(|(number, _)| *number), Some(REMEMBERED as u64));
    }
}
