//! The direct way to an NPU: the kernel's own interface, and nothing between.
//!
//! No ROCR, KFD or XRT is needed, only the accel node of the amdxdna kernel driver. Everything a runtime would do is here: the
//! device heap, buffer objects, hardware contexts with their PDIs, command chains, and waiting. Nothing on this way ends the
//! process: what the kernel answers becomes an error.
//!
//! - [`open`]: opening, which ends with one real round trip unless the NPU is only looked at, and the NPUs that are open.
//! - `in_flight`: the chains that are under way in a context.
//! - `crate::accel`: the kernel's interface itself.
//!
//! # Rules
//! - Chains are started ahead, as many as the kernel queues for a context, and looked at later ([`Agent::start`],
//!   [`Agent::finish`]).
//! - After a wait that failed the device may still be running. The command buffers of that chain are not used again before the
//!   context is gone; if it cannot be destroyed the NPU counts as lost, and its memory stays mapped.
//! - Caches are the caller's business: nothing is written back or invalidated here ([`Agent::caches`]).

mod in_flight;
mod open;

pub(crate) use open::{looked_at, opened, opened_apart};
pub use open::{open, record};

use crate::accel::bo::{Bo, BoKind};
use crate::accel::command_buffer::CommandBuffer;
use crate::accel::completion::{WaitError, WaitMethod};
use crate::accel::device::{AccelDevice, ChainError};
use crate::agent::{
    AT_EXIT_LIMIT, Agent, AgentError, AgentInfo, Allocation, Caches, Chain, ContextId, CpuCaches, PdiRef,
};
use aie_hal::format::instructions::Header;
use aie_hal::{Clocks, MemoryPool};
use amdxdna_sys::limits::QUEUED_JOBS;
use amdxdna_sys::{
    DRM_AMDXDNA_GET_POWER_MODE, DRM_AMDXDNA_QUERY_CLOCK_METADATA, amdxdna_drm_get_power_mode,
    amdxdna_drm_query_clock_metadata,
};
use in_flight::{Context, Ended, InFlight};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// An NPU on the direct way.
#[derive(Debug)]
pub struct DirectAgent {
    accel: AccelDevice,
    /// What streams for it start with.
    header: Header,
    /// Why mapped files are not used in place, if they are not.
    files_copied: Option<String>,
    state: Mutex<State>,
}

/// What contexts need: the device heap, 64 MiB that the kernel makes at once, and what one round trip has found.
#[derive(Debug)]
struct Ready {
    heap: Bo,
    wait_method: WaitMethod,
    /// Why the round trip failed, although it could be waited for.
    failure: Option<ChainError>,
}

/// What one thread at a time may use. The heap goes last.
#[derive(Debug)]
struct State {
    contexts: HashMap<ContextId, Context>,
    next_context: u64,
    next_chain: u64,
    ended: Ended,
    /// Unused command buffers.
    free: Vec<CommandBuffer>,
    handles: Vec<u32>,
    /// Data memory by device address, with its length in bytes.
    data: BTreeMap<u64, (Bo, u64)>,
    /// Parts of the heap by device address.
    parts: BTreeMap<u64, Bo>,
    ready: Option<Ready>,
    /// The process is ending, and no context is left: nothing runs any more.
    closed: bool,
}

impl State {
    /// How chains are waited for.
    fn wait_method(&self) -> WaitMethod {
        // There is no chain to wait for before a context, which makes it ready.
        self.ready.as_ref().map_or(WaitMethod::Timeline, |ready| ready.wait_method)
    }
}

impl DirectAgent {
    /// Makes what contexts need, if the NPU was only looked at.
    fn make_ready<'s>(&self, state: &'s mut State) -> Result<&'s mut Ready, AgentError> {
        let ready = match state.ready.take() {
            Some(ready) => ready,
            None => open::ready(&self.accel.node, self.header, self.accel.tiles, self.accel.limit)?,
        };
        Ok(state.ready.insert(ready))
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, AgentError> {
        self.accel.status.alive()?;
        let state = self.state.lock();
        // It may have been lost meanwhile.
        self.accel.status.alive()?;
        Ok(state)
    }

    /// Command buffers for one chain: one for each dispatch, and its own.
    fn command_buffers(&self, state: &mut State, dispatches: usize) -> Result<Vec<CommandBuffer>, AgentError> {
        while state.free.len() <= dispatches {
            let made = CommandBuffer::create(&self.accel.node);
            state.free.push(made.map_err(|cause| self.accel.memory_error(&cause, "a command buffer"))?);
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
    ) -> Result<u64, AgentError> {
        let State { contexts, handles, data, .. } = state;
        handles.clear();
        for argument in &chain.arguments {
            let missing = || {
                let (bytes, address) = (argument.end - argument.start, argument.start);
                AgentError::failed(format!("an argument of {bytes} bytes at {address:#x}, where no buffer is"))
            };
            handles.push(data_handle(data, argument).ok_or_else(missing)?);
        }
        handles.sort_unstable();
        handles.dedup();
        let (commands, own) = buffers.split_at(chain.packets.len());
        for (buffer, packet) in commands.iter().zip(&chain.packets) {
            buffer.words().write_dispatch(packet, chain.arguments_of(packet));
        }
        own[0].words().write_chain(commands.iter().map(CommandBuffer::handle));
        let Some(found) = contexts.get_mut(&context) else {
            return Err(AgentError::failed(format!("context {} does not exist", context.0)));
        };
        match own[0].submit(&self.accel.node, found.hardware, handles) {
            Ok(sequence) => {
                let number = state.next_chain;
                state.next_chain += 1;
                found.in_flight.push_back(InFlight { number, sequence, since: Instant::now(), buffers });
                Ok(number)
            }
            Err(cause) => {
                state.free.extend(buffers);
                Err(self.accel.call_error(&cause, &format!("a chain of {} dispatches", chain.packets.len())))
            }
        }
    }

    /// How the oldest chain of a context ended that was waited for. After a failed wait it stays in the list, and its buffers with
    /// it: the device may still be running.
    fn complete_oldest(
        &self,
        context: &mut Context,
        free: &mut Vec<CommandBuffer>,
        waited: Result<(), WaitError>,
    ) -> Result<(), AgentError> {
        // Whatever the cause, the context has to go: only then is the chain known not to run.
        waited.map_err(|cause| match cause {
            WaitError::TimedOut(_) => self.accel.chain_error(ChainError::Stuck(self.accel.limit)),
            cause => self.accel.chain_error(cause.into()),
        })?;
        let Some(chain) = context.in_flight.pop_front() else { return Ok(()) };
        let count = chain.buffers.len() - 1;
        let outcome = chain.buffers[count].words().outcome(count, chain.since.elapsed());
        free.extend(chain.buffers);
        outcome.map_err(|cause| self.accel.chain_error(cause))
    }

    /// Ends what is under way in a context and destroys it.
    fn end_context(&self, state: &mut State, id: ContextId) {
        let Some(mut context) = state.contexts.remove(&id) else { return };
        while let Some((number, submitted, left)) = context.oldest(self.accel.limit) {
            let waited = state.wait_method().wait(&self.accel.node, submitted, left);
            let stuck = waited.is_err();
            let result = self.complete_oldest(&mut context, &mut state.free, waited);
            state.ended.remember(number, result);
            if stuck {
                break;
            }
        }
        let destroyed = context.hardware.destroy(&self.accel.node);
        for chain in &context.in_flight {
            let cause = AgentError::failed("the context of this chain was ended before it completed");
            state.ended.0.entry(chain.number).or_insert(Err(cause));
        }
        let buffers = context.in_flight.into_iter().flat_map(|chain| chain.buffers);
        match destroyed {
            Ok(()) => state.free.extend(buffers),
            Err(cause) => {
                let buffers: Vec<CommandBuffer> = buffers.collect();
                if buffers.is_empty() {
                    tracing::warn!("{cause}");
                } else {
                    self.accel
                        .status
                        .lose(format!("a context with a chain that does not end cannot be destroyed ({cause})"));
                }
                buffers.into_iter().for_each(CommandBuffer::leak);
            }
        }
    }
}

/// The BO that holds all of an argument.
fn data_handle(data: &BTreeMap<u64, (Bo, u64)>, argument: &Range<u64>) -> Option<u32> {
    let (start, (bo, length)) = data.range(..=argument.start).next_back()?;
    (argument.end <= start + length).then(|| bo.handle())
}

impl Agent for DirectAgent {
    fn info(&self) -> &AgentInfo {
        &self.accel.status.info
    }

    fn contexts_created(&self) -> u64 {
        self.accel.status.contexts_created.load(Ordering::Relaxed)
    }

    fn clocks(&self) -> Option<Clocks> {
        let node = &self.accel.node;
        let found: amdxdna_drm_query_clock_metadata = node.query(DRM_AMDXDNA_QUERY_CLOCK_METADATA).ok()?;
        let mode = node.query::<amdxdna_drm_get_power_mode>(DRM_AMDXDNA_GET_POWER_MODE);
        Some(Clocks {
            array_mhz: found.h_clock.freq_mhz,
            processor_mhz: found.mp_npu_clock.freq_mhz,
            power_mode: mode.ok().map(|mode| mode.power_mode),
        })
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let mut state = self.open_state()?;
        let kind = match pool {
            MemoryPool::Data => BoKind::Data,
            MemoryPool::DeviceHeap => BoKind::HeapPart(&self.make_ready(&mut state)?.heap),
        };
        let bo = Bo::create(&self.accel.node, kind, bytes)
            .map_err(|cause| self.accel.memory_error(&cause, &format!("{bytes} bytes of {} memory", pool.name())))?;
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
        let bo = unsafe { Bo::of_user_memory(&self.accel.node, address, bytes) }
            .map_err(|cause| AgentError::Unsupported(format!("{bytes} bytes of the program's own memory: {cause}")))?;
        let device_address = bo.device_address();
        if state.data.contains_key(&device_address) {
            return Err(AgentError::Unsupported("memory that is imported already".into()));
        }
        state.data.insert(device_address, (bo, bytes as u64));
        Ok(Allocation { pool: MemoryPool::Data, host: address, length: bytes, device_address })
    }

    fn why_files_are_copied(&self) -> Option<&str> {
        self.files_copied.as_deref()
    }

    fn free(&self, allocation: Allocation) {
        if self.accel.status.is_inherited() {
            return;
        }
        let mut state = self.state.lock();
        let (data, part) = match allocation.pool {
            MemoryPool::Data => (state.data.remove(&allocation.device_address), None),
            MemoryPool::DeviceHeap => (None, state.parts.remove(&allocation.device_address)),
        };
        // A lost device may still be running what was submitted.
        let stays = self.accel.status.is_lost() && !state.closed;
        drop(state);
        match data.map(|(bo, _)| bo).or(part) {
            Some(bo) if stays => bo.leak(),
            bo => drop(bo),
        }
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        let mut state = self.open_state()?;
        self.make_ready(&mut state)?;
        let handles = pdis.iter().map(|pdi| state.parts.get(&pdi.address).map(Bo::handle));
        let hardware = self.accel.create_context(handles, state.contexts.len())?;
        let id = ContextId(state.next_context);
        state.next_context += 1;
        state.contexts.insert(id, Context { hardware, in_flight: VecDeque::new() });
        self.accel.status.contexts_created.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    fn destroy_context(&self, context: ContextId) {
        if self.accel.status.is_inherited() {
            return;
        }
        self.end_context(&mut self.state.lock(), context);
    }

    fn chains_ahead(&self) -> usize {
        QUEUED_JOBS
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError> {
        let mut state = self.open_state()?;
        chain.check(usize::MAX)?;
        let buffers = self.command_buffers(&mut state, chain.packets.len())?;
        self.execute(&mut state, context, chain, buffers)
    }

    fn finish(&self, id: ContextId, number: u64) -> Result<(), AgentError> {
        if self.accel.status.is_inherited() {
            return self.accel.status.alive();
        }
        let mut guard = self.state.lock();
        loop {
            if let Some(result) = guard.ended.0.remove(&number) {
                return result;
            }
            let Some((oldest, submitted, left)) =
                guard.contexts.get(&id).and_then(|context| context.oldest(self.accel.limit))
            else {
                break;
            };
            // Memory can be allocated while this waits.
            let method = guard.wait_method();
            let waited = MutexGuard::unlocked(&mut guard, || method.wait(&self.accel.node, submitted, left));
            let state = &mut *guard;
            let Some(context) = state.contexts.get_mut(&id) else { continue };
            if context.in_flight.front().is_none_or(|chain| chain.number != oldest) {
                continue;
            }
            let stuck = waited.is_err();
            let result = self.complete_oldest(context, &mut state.free, waited);
            if oldest == number || stuck {
                // Behind one that does not end nothing does; the caller ends the context.
                return result;
            }
            state.ended.remember(oldest, result);
        }
        self.accel.status.alive()?;
        Err(AgentError::failed(format!("chain {number} is not under way")))
    }

    fn caches(&self) -> Option<&dyn Caches> {
        Some(&CpuCaches)
    }

    fn close(&self) {
        let Some(mut state) = self.state.try_lock_for(AT_EXIT_LIMIT) else { return };
        // What is under way is not waited for.
        state.closed = true;
        for (_, context) in std::mem::take(&mut state.contexts) {
            if let Err(cause) = context.hardware.destroy(&self.accel.node) {
                tracing::debug!("{cause}");
                state.closed = false;
            }
            let buffers = context.in_flight.into_iter().flat_map(|chain| chain.buffers);
            buffers.for_each(CommandBuffer::leak);
        }
        state.free.clear();
        self.accel.status.lose("the process is ending".to_owned());
    }
}
