//! Agents of ROCR from 2026 (ROCm 7.14, ROCm Core SDK 10.0): kernel dispatch packets.
//!
//! A context is an HSA queue: the runtime keeps a list of PDIs for each queue, gives each a compute unit, and makes the
//! hardware context again when a packet names a PDI that is new to the queue. So a context of this driver costs one hardware
//! context when it is created and another at the first doorbell that names a PDI for the first time.
//!
//! A chain becomes packets in the queue's ring, all or none, and one doorbell; a long one is split at [`PACKETS_PER_DOORBELL`].
//! Every packet has a completion signal of its own, so that the failing command is known. Publications differ in how a failure
//! is reported, and all three ways are understood: a negative signal, the queue's error callback while signals stay as they are,
//! and a doorbell that does not return, which is why it is rung in a thread of its own. An agent whose runtime
//! has not answered within the time limit is lost: nothing of it is called or freed any more.
//!
//! ROCm 7.14 and ROCm Core SDK 10.0 take these packets. What was tested is a stand-in library that follows the published
//! header and behaviour; see the package `hsa-stand-in`.

mod doorbell;
mod queue;

use crate::session::{Discovered, Session};
use aie_driver_xdna::accel::device::state_error;
use aie_driver_xdna::agent::{Agent, AgentError, AgentInfo, AgentStatus, Allocation, Chain, ContextId, Packet, PdiRef};
use aie_hal::MemoryPool;
use doorbell::Doorbell;
use hsa_sys::*;
use parking_lot::{Mutex, MutexGuard};
use queue::{ARGUMENTS, Kernargs, Queue};
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets one doorbell sends at most: published firmware failed with 41 commands in a chain.
pub const PACKETS_PER_DOORBELL: usize = 32;

/// How long a runtime may leave the first packet of its life alone before it counts as one that processes none.
const FIRST_SIGN: Duration = Duration::from_secs(1);

/// How long a wait for a signal lasts before the error callback is looked at again.
const GLANCE: Duration = Duration::from_millis(20);

/// A context: its queue, its PDIs, and which of them the runtime has seen.
///
/// Packets name a PDI by the address it had when the context was created. The runtime counts addresses, and a kernel that was
/// unloaded and loaded again has another one for the same PDI.
#[derive(Debug)]
struct Context {
    queue: Queue,
    pdis: Vec<PdiRef>,
    seen: HashSet<usize>,
}

/// What a thread at a time may use: contexts, and what one doorbell needs.
#[derive(Debug)]
struct State {
    contexts: HashMap<ContextId, Context>,
    next: u64,
    kernargs: Kernargs,
    /// One for each packet of a doorbell.
    signals: Vec<hsa_signal_t>,
    doorbell: Doorbell,
}

/// An agent of ROCR from 2026. Thread-safe; calls into the runtime are made one at a time.
#[derive(Debug)]
pub struct KernelDispatchAgent {
    status: AgentStatus,
    discovered: Discovered,
    limit: Duration,
    packets_per_doorbell: usize,
    /// Ticks of the runtime's clock in a second.
    frequency: u64,
    /// Also the lock for the runtime, whose tables for AIE memory have none.
    state: Mutex<ManuallyDrop<State>>,
    /// Whether the runtime has ever processed a packet.
    processes: AtomicBool,
    session: ManuallyDrop<Arc<Session>>,
}

impl KernelDispatchAgent {
    /// Opens an agent of `session`. `limit` is how long one doorbell may take; what takes longer makes the agent
    /// [lost](AgentError::Lost).
    ///
    /// # Errors
    /// [`AgentError::OutOfMemory`], [`AgentError::Failed`].
    pub fn open(session: Arc<Session>, discovered: Discovered, limit: Duration) -> Result<Self, AgentError> {
        let api = session.api();
        let mut frequency = 0_u64;
        // SAFETY: The attribute is a 64-bit number, and `frequency` is one.
        let status =
            unsafe { (api.hsa_system_get_info)(HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, (&raw mut frequency).cast()) };
        session.check("hsa_system_get_info(TIMESTAMP_FREQUENCY)", status)?;
        let packets_per_doorbell = PACKETS_PER_DOORBELL.min(discovered.queue_packets as usize);
        let kernargs = Kernargs::allocate(&session, discovered.kernarg, packets_per_doorbell)?;
        let mut state = State {
            contexts: HashMap::new(),
            next: 0,
            kernargs,
            signals: Vec::with_capacity(packets_per_doorbell),
            doorbell: Doorbell::new(Arc::clone(&session))
                .map_err(|error| AgentError::OutOfMemory(error.to_string()))?,
        };
        let failed = (0..packets_per_doorbell).find_map(|_| match create_signal(&session) {
            Ok(signal) => {
                state.signals.push(signal);
                None
            }
            Err(error) => Some(error),
        });
        let agent = Self {
            status: AgentStatus::new(discovered.info.clone()),
            discovered,
            limit,
            packets_per_doorbell,
            frequency: frequency.max(1),
            state: Mutex::new(ManuallyDrop::new(state)),
            processes: AtomicBool::new(false),
            session: ManuallyDrop::new(session),
        };
        // Dropping the agent releases what was made so far.
        failed.map_or(Ok(agent), Err)
    }

    /// The lock of a living agent. A doorbell that does not return leaves it after the limit.
    fn lock(&self) -> Result<MutexGuard<'_, ManuallyDrop<State>>, AgentError> {
        self.status.alive()?;
        let patience = self.limit.saturating_mul(4);
        let state = self.state.try_lock_for(patience);
        let state = state
            .ok_or_else(|| self.status.lose(format!("a call into the runtime has not returned for {patience:?}")))?;
        self.status.alive()?;
        Ok(state)
    }

    fn load(&self, signal: hsa_signal_t) -> hsa_signal_value_t {
        // SAFETY: The signal is one of the agent's, which exist as long as it.
        unsafe { (self.session.api().hsa_signal_load_scacquire)(signal) }
    }

    /// Sends `packets`, the first of which is number `first` of its chain, with one doorbell.
    fn send(
        &self,
        state: &mut State,
        context: ContextId,
        chain: &Chain,
        packets: &[Packet],
        first: usize,
    ) -> Result<(), AgentError> {
        let State { contexts, kernargs, signals, doorbell, .. } = state;
        let Some(Context { queue, pdis, seen }) = contexts.get_mut(&context) else {
            return Err(AgentError::failed(format!("there is no context {}", context.0)));
        };
        if let Some(at) = packets.iter().position(|packet| packet.pdi_index >= pdis.len()) {
            let (asked, held) = (packets[at].pdi_index, pdis.len());
            let reason = format!("command {} names PDI {asked} of a context that holds {held}", first + at);
            return Err(AgentError::Failed { command: Some(first + at), reason });
        }
        let signals = &signals[..packets.len()];
        let end = Instant::now() + self.limit;
        while queue.pending() + packets.len() as u64 > queue.size() {
            // A runtime may move its read index a little after the last signal.
            if Instant::now() >= end {
                return Err(self.status.lose(format!("the runtime has left packets in its ring for {:?}", self.limit)));
            }
            std::thread::yield_now();
        }
        let before = queue.read_index();
        for (slot, (packet, signal)) in packets.iter().zip(signals).enumerate() {
            let arguments = kernargs.write(slot, chain.arguments_of(packet));
            // SAFETY: The signal is the agent's, and nothing waits for it: the packet that had it before has ended.
            unsafe { (self.session.api().hsa_signal_store_relaxed)(*signal, 1) };
            queue.write(slot as u64, packet, pdis[packet.pdi_index], *signal, arguments);
        }
        let known = seen.len();
        seen.extend(packets.iter().map(|packet| packet.pdi_index));
        self.status.contexts_created.fetch_add(u64::from(seen.len() > known), Ordering::Relaxed);
        let last = queue.publish(packets.len() as u64);
        if !doorbell.ring(queue.doorbell(), last, self.limit) {
            return Err(self.status.lose(format!(
                "a doorbell for {} packets has not returned for {:?}; the runtime or the kernel driver below it hangs",
                packets.len(),
                self.limit
            )));
        }
        self.wait(queue, signals, before, first, end)
    }

    /// Waits until every packet has ended.
    fn wait(
        &self,
        queue: &Queue,
        signals: &[hsa_signal_t],
        before: u64,
        first: usize,
        end: Instant,
    ) -> Result<(), AgentError> {
        let started = Instant::now();
        let mut completed = 0;
        loop {
            // The error is read first, so that signals before it are seen.
            let error = queue.error();
            while completed < signals.len() && self.load(signals[completed]) == 0 {
                completed += 1;
            }
            let Some(signal) = signals.get(completed) else {
                self.processes.store(true, Ordering::Relaxed);
                return Ok(());
            };
            let value = self.load(*signal);
            if value < 0 {
                return Err(failed_signal(
                    first + completed,
                    value,
                    error.map(|status| self.session.api().describe(status)),
                ));
            }
            if let Some(status) = error {
                // Without an earlier packet that completed, the failing one may be any.
                let command = (completed > 0).then_some(first + completed);
                let reason = format!(
                    "the runtime reports an error of the queue after {completed} of {} commands: {}",
                    signals.len(),
                    self.session.api().describe(status)
                );
                return Err(AgentError::Failed { command, reason });
            }
            let untouched = completed == 0 && queue.read_index() == before;
            if untouched && !self.processes.load(Ordering::Relaxed) && started.elapsed() >= FIRST_SIGN.min(self.limit) {
                return Err(AgentError::Unsupported(format!(
                    "{} ({}): this runtime accepts packets but never processes them, as ROCR 6.x does; install ROCR of ROCm \
                     7.0 or newer",
                    self.info().library.display(),
                    self.info().runtime
                )));
            }
            if Instant::now() >= end {
                return Err(self.status.lose(format!(
                    "command {} of a chain has not signalled for {:?}, and the runtime reported no error",
                    first + completed,
                    self.limit
                )));
            }
            let ticks =
                u64::try_from(GLANCE.as_nanos() * u128::from(self.frequency) / 1_000_000_000).unwrap_or(u64::MAX);
            let (condition, state) = (HSA_SIGNAL_CONDITION_LT, HSA_WAIT_STATE_BLOCKED);
            // SAFETY: As in `load`.
            unsafe { (self.session.api().hsa_signal_wait_scacquire)(*signal, condition, 1, ticks, state) };
        }
    }
}

/// The error of a packet whose signal became negative. Programs for these packets take such a value for an error and do not
/// say which; read as minus the state of the ERT command it distinguishes timeouts from the rest.
fn failed_signal(command: usize, value: hsa_signal_value_t, error: Option<String>) -> AgentError {
    let state = u32::try_from(value.unsigned_abs()).ok().map(hsa_amd_aie_ert_state);
    let name = state.and_then(hsa_amd_aie_ert_state::name).map_or(String::new(), |name| format!(" ({name})"));
    let error = error.map_or(String::new(), |error| format!("; the runtime says: {error}"));
    let reason = format!("command {command} ended with completion signal {value}{name}{error}");
    // How long it ran is not known.
    state_error(state.map_or(0, |state| state.0), Some(command), Duration::ZERO, Duration::MAX, reason)
}

fn create_signal(session: &Session) -> Result<hsa_signal_t, AgentError> {
    let mut signal = hsa_signal_t { handle: 0 };
    // SAFETY: There are no consumers, and `signal` is a place for one.
    let status = unsafe { (session.api().hsa_signal_create)(0, 0, std::ptr::null(), &raw mut signal) };
    session.check("hsa_signal_create", status).map(|()| signal)
}

impl Agent for KernelDispatchAgent {
    fn info(&self) -> &AgentInfo {
        &self.status.info
    }

    fn contexts_created(&self) -> u64 {
        self.status.contexts_created.load(Ordering::Relaxed)
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let _state = self.lock()?;
        let from = match pool {
            MemoryPool::Data => self.discovered.data,
            MemoryPool::DeviceHeap => self.discovered.heap,
        };
        let host = self.session.allocate(from, bytes).map_err(|cause| {
            AgentError::OutOfMemory(format!("the runtime has no {bytes} bytes of {} memory: {cause}", pool.name()))
        })?;
        let device_address = host.as_ptr().expose_provenance() as u64;
        Ok(Allocation { pool, host: host.cast(), length: bytes, device_address })
    }

    fn free(&self, allocation: Allocation) {
        // Memory of a lost agent may still be in use by it, so it stays.
        if let Ok(_state) = self.lock() {
            // SAFETY: The allocation is of this runtime, its owner gives it up, and nothing in flight uses it.
            if let Err(error) = unsafe { self.session.free(allocation.host.as_ptr().cast()) } {
                tracing::warn!("{} bytes at {:?}: {error}", allocation.length, allocation.host);
            }
        }
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        let mut state = self.lock()?;
        tracing::debug!("a queue for {} PDIs", pdis.len());
        let queue =
            Queue::create(&self.session, self.discovered.agent, self.discovered.queue_packets).map_err(|status| {
                let reason = format!(
                    "the runtime creates no queue beyond the {} of this program: {}",
                    state.contexts.len(),
                    self.session.api().describe(status)
                );
                // The kernel driver's rejection of a context reaches a program as an unspecific error.
                if status == HSA_STATUS_ERROR_OUT_OF_RESOURCES || !state.contexts.is_empty() {
                    AgentError::ContextsExhausted { reason, remedy: None }
                } else {
                    AgentError::failed(reason)
                }
            })?;
        let id = ContextId(state.next);
        state.next += 1;
        state.contexts.insert(id, Context { queue, pdis: pdis.to_vec(), seen: HashSet::new() });
        self.status.contexts_created.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    fn destroy_context(&self, context: ContextId) {
        if let Ok(mut state) = self.lock()
            && state.contexts.remove(&context).is_none()
        {
            tracing::warn!("there is no context {} to destroy", context.0);
        }
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError> {
        let mut state = self.lock()?;
        if let Some(at) = chain.packets.iter().position(|packet| packet.arguments.1 > ARGUMENTS) {
            let reason =
                format!("command {at} has {} arguments, this driver sends {ARGUMENTS}", chain.packets[at].arguments.1);
            return Err(AgentError::Failed { command: Some(at), reason });
        }
        let mut first = 0;
        for packets in chain.packets.chunks(self.packets_per_doorbell) {
            self.send(&mut state, context, chain, packets, first)?;
            first += packets.len();
        }
        Ok(0)
    }
}

impl Drop for KernelDispatchAgent {
    fn drop(&mut self) {
        if self.status.is_lost() || self.status.is_inherited() {
            // The runtime is in the middle of something and may use any of it, or it is that of the parent process: all of it stays,
            // started.
            return;
        }
        // SAFETY: Both are taken once, here, and not used again.
        let (mut state, session) =
            unsafe { (ManuallyDrop::take(self.state.get_mut()), ManuallyDrop::take(&mut self.session)) };
        state.contexts.clear();
        for signal in state.signals.drain(..) {
            // SAFETY: The signal is the agent's, and no packet has it.
            let status = unsafe { (session.api().hsa_signal_destroy)(signal) };
            if let Err(error) = session.check("hsa_signal_destroy", status) {
                tracing::warn!("{error}");
            }
        }
        // The rest of the state ends before the session: its parts hold it.
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_signals_tell_timeouts_from_other_failures() {
        let timeout = failed_signal(3, -8, None);
        assert!(matches!(&timeout, AgentError::Timeout { command: Some(3), .. }), "{timeout:?}");
        assert_eq!(timeout.to_string(), "command 3 ended with completion signal -8 (HSA_AMD_AIE_ERT_STATE_TIMEOUT)");
        for value in [-5, -6, -1, -4242, i64::MIN] {
            let error = failed_signal(0, value, Some("an error".into()));
            assert!(matches!(&error, AgentError::Failed { command: Some(0), .. }), "{error:?}");
            assert!(error.to_string().contains("the runtime says: an error"), "{error}");
        }
    }
}
