//! The runtime of a process: agents, queues, signals, and what they count.

use crate::faults::{Faults, LibraryFault};
use crate::memory::Memory;
use crate::queue::{ErrorCallback, Queue};
use crate::settings::Settings;
use crate::signal::Signal;
use aie_driver_mock::npu::SimulatedNpu;
use aie_driver_mock::npu::array::Array;
use aie_hal::ArchRegistry;
use aie_hal::KernelExecutor;
use hsa_sys::*;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of the CPU's agent; AIE agents follow it.
pub const CPU_AGENT: u64 = 1;

/// One AIE agent.
#[derive(Debug)]
pub struct Agent {
    /// Its silicon.
    pub npu: Arc<SimulatedNpu>,
    /// Its memory.
    pub memory: Memory,
    /// Held while it executes.
    pub array: Mutex<Array>,
}

/// What a program did with the runtime.
#[derive(Debug, Default)]
pub struct Counts {
    /// Doorbells with packets.
    pub doorbells: AtomicU64,
    /// Packets that completed.
    pub packets: AtomicU64,
    /// Errors of queues.
    pub queue_errors: AtomicU64,
}

/// The runtime between the first `hsa_init` and the last `hsa_shut_down`.
#[derive(Debug)]
pub struct Runtime {
    /// What it pretends to be.
    pub settings: Settings,
    /// The build string.
    pub build: CString,
    /// The AIE agents.
    pub agents: Vec<Agent>,
    /// Faults.
    pub faults: Faults,
    /// What the program did so far.
    pub counts: Counts,
    signals: Mutex<HashMap<u64, Arc<Signal>>>,
    /// By the address the program knows.
    queues: Mutex<HashMap<usize, Arc<Queue>>>,
    next: AtomicU64,
}

fn machine_memory() -> u64 {
    // SAFETY: The call takes a number and returns one.
    let of = |name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
    of(libc::_SC_PHYS_PAGES).saturating_mul(of(libc::_SC_PAGESIZE))
}

/// A runtime cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("unknown generation `{name}`; available: {known}")]
    Generation { name: String, known: String },
    #[error("no memory for agent {0}")]
    Memory(String),
}

impl Runtime {
    /// Starts one.
    ///
    /// # Errors
    /// An unknown generation, or no memory for an agent.
    pub fn new(settings: Settings, executor: Arc<dyn KernelExecutor>) -> Result<Self, StartError> {
        let registry = ArchRegistry::builtin();
        let agent = |name: &String| {
            let arch = registry.get(name).ok_or_else(|| {
                let known = registry.names().collect::<Vec<_>>().join(", ");
                StartError::Generation { name: name.clone(), known }
            })?;
            let heap_bytes = arch.limits.device_heap_bytes;
            let array = Mutex::new(Array::new(Arc::clone(&arch), Arc::clone(&executor)));
            let npu = Arc::new(SimulatedNpu::new(arch, heap_bytes));
            let memory = Memory::new(&npu, machine_memory()).ok_or_else(|| StartError::Memory(name.clone()))?;
            Ok(Agent { npu, memory, array })
        };
        let agents = settings.agents.iter().map(agent).collect::<Result<_, StartError>>()?;
        let build = concat!(env!("CARGO_PKG_VERSION"), "-stand-in (no ROCR: AIE agents are simulated)");
        Ok(Self {
            build: CString::new(build).unwrap_or_default(),
            agents,
            faults: Faults::new(settings.faults.clone()),
            settings,
            counts: Counts::default(),
            signals: Mutex::default(),
            queues: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// Says something on standard error, if that is wanted.
    pub fn log(&self, text: &str) {
        if self.settings.log != 0 {
            eprintln!("hsa-stand-in: {text}");
        }
    }

    /// The AIE agent with a handle.
    pub fn agent(&self, handle: hsa_agent_t) -> Option<&Agent> {
        let index = handle.handle.checked_sub(CPU_AGENT + 1)?;
        self.agents.get(usize::try_from(index).ok()?)
    }

    /// Handles of all AIE agents.
    pub fn agent_handles(&self) -> impl Iterator<Item = hsa_agent_t> {
        (CPU_AGENT + 1..).take(self.agents.len()).map(|handle| hsa_agent_t { handle })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a signal of the program.
    pub fn create_signal(&self, value: hsa_signal_value_t) -> hsa_signal_t {
        let handle = self.number();
        self.signals.lock().insert(handle, Arc::new(Signal::new(value)));
        hsa_signal_t { handle }
    }

    /// The signal with a handle.
    pub fn signal(&self, signal: hsa_signal_t) -> Option<Arc<Signal>> {
        self.signals.lock().get(&signal.handle).cloned()
    }

    /// Destroys a signal; `false` when the program has none by this handle.
    pub fn destroy_signal(&self, signal: hsa_signal_t) -> bool {
        let mut signals = self.signals.lock();
        let destructible = signals.get(&signal.handle).is_some_and(|signal| signal.doorbell_of.is_none());
        destructible && signals.remove(&signal.handle).is_some()
    }

    /// Makes a queue with a hardware context of its own.
    ///
    /// # Errors
    /// The status for the program.
    pub fn create_queue(
        &self,
        handle: hsa_agent_t,
        size: u32,
        callback: Option<ErrorCallback>,
        data: *mut c_void,
    ) -> Result<Arc<Queue>, hsa_status_t> {
        let agent = self.agent(handle).ok_or(HSA_STATUS_ERROR_INVALID_AGENT)?;
        let limit = agent.npu.limits().queue_packets;
        if !size.is_power_of_two() || size as usize > limit {
            self.log(&format!("a queue of {size} packets is not a power of two up to {limit}"));
            return Err(HSA_STATUS_ERROR_INVALID_ARGUMENT);
        }
        if self.faults.hits(LibraryFault::Queue) {
            self.log("no queue, as the fault plan says");
            return Err(HSA_STATUS_ERROR_OUT_OF_RESOURCES);
        }
        let context = agent.npu.create_context(agent.npu.arch().array.columns).map_err(|rejection| {
            self.log(&format!("no queue: {rejection}"));
            HSA_STATUS_ERROR_OUT_OF_RESOURCES
        })?;
        let (id, doorbell) = (self.number(), hsa_signal_t { handle: self.number() });
        // Handles of AIE agents follow the CPU's.
        let index = (handle.handle - CPU_AGENT - 1) as usize;
        let Some(queue) = Queue::new(index, id, size, doorbell, context, (callback, data)).map(Arc::new) else {
            // The context exists, so destroying it cannot be rejected.
            let _ = agent.npu.destroy_context(context);
            return Err(HSA_STATUS_ERROR_OUT_OF_RESOURCES);
        };
        self.signals.lock().insert(doorbell.handle, Arc::new(Signal::doorbell(Arc::downgrade(&queue))));
        self.queues.lock().insert(queue.handle().addr(), Arc::clone(&queue));
        Ok(queue)
    }

    /// The queue a program means.
    pub fn queue(&self, handle: *const hsa_queue_t) -> Option<Arc<Queue>> {
        self.queues.lock().get(&handle.addr()).cloned()
    }

    /// Destroys a queue and its context; `false` when there is none.
    pub fn destroy_queue(&self, handle: *const hsa_queue_t) -> bool {
        let Some(queue) = self.queues.lock().remove(&handle.addr()) else { return false };
        self.signals.lock().remove(&queue.public.doorbell_signal.handle);
        // It processes nothing more, even if it is still referenced.
        let mut progress = queue.progress.lock();
        progress.failed = true;
        if let (Some(agent), Some(context)) = (self.agents.get(queue.agent), progress.context.take()) {
            // The context exists, so destroying it cannot be rejected.
            let _ = agent.npu.destroy_context(context);
        }
        true
    }

    /// Counts, and what exists now, `users` uses of the runtime among it.
    pub fn report(&self, users: usize) -> Value {
        let signals = self.signals.lock().values().filter(|signal| signal.doorbell_of.is_none()).count();
        json!({
            "doorbells": self.counts.doorbells,
            "packets": self.counts.packets,
            "queue_errors": self.counts.queue_errors,
            "contexts_created": self.agents.iter().map(|agent| agent.npu.counts().contexts_created).sum::<u64>(),
            "virtual_ns": self.agents.iter().map(|agent| agent.npu.elapsed_ns()).sum::<u64>(),
            "open": {
                "users": users,
                "queues": self.queues.lock().len(),
                "signals": signals,
                "allocations": self.agents.iter().map(|agent| agent.memory.count()).sum::<usize>(),
            },
        })
    }
}
