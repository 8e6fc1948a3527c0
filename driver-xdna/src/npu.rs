//! One NPU, shared by the logical devices that are opened on it: memory, contexts, and whether it is lost.

use crate::agent::{Agent, AgentError, ContextId, PdiRef};
use crate::at_exit::{self, AT_EXIT_LIMIT};
use crate::coherence::Written;
use crate::executable::{LoadedPdi, PdiTable, XdnaExecutable};
use crate::pool::{Block, Pool};
use crate::runtime::Runtime;
use aie_hal::artifact::KernelArtifact;
use aie_hal::context_planner::{ContextHost, ContextPlanner};
use aie_hal::error::DeviceError;
use aie_hal::submission_queue::QueueHandle;
use aie_hal::{Arch, BufferParams, Limits, MemoryPool};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What only one thread at a time may do: plan contexts and run chains.
#[derive(Default)]
pub(crate) struct Array {
    pub(crate) planner: ContextPlanner<Contexts>,
    /// The context that ran last.
    pub(crate) active: Option<ContextId>,
}

/// An NPU that is open.
pub(crate) struct Npu {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) arch: Arc<Arch>,
    pub(crate) limits: Limits,
    pub(crate) pool: Arc<Pool>,
    pub(crate) contexts: Contexts,
    /// The execution lock.
    pub(crate) array: Mutex<Array>,
    /// What the NPU has written and the host may have stale copies of; unused where the runtime maintains caches.
    pub(crate) written: Written,
    pdis: Mutex<PdiTable>,
    lost: OnceLock<DeviceError>,
    queues: Mutex<Vec<QueueHandle>>,
    /// Keeps the session, where there is one; the last field, so that everything of it is gone before.
    _runtime: Option<Arc<Runtime>>,
}

impl Debug for Npu {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Npu").field("agent", &self.agent).field("lost", &self.lost.get()).finish_non_exhaustive()
    }
}

impl Npu {
    /// `agent` as an NPU of generation `arch`. It is closed at the end of the process at the latest.
    pub(crate) fn new(agent: Arc<dyn Agent>, arch: Arc<Arch>, runtime: Option<Arc<Runtime>>) -> Arc<Self> {
        let mut limits = Limits::from_arch(&arch);
        let pool = Pool::new(Arc::clone(&agent), limits.contexts);
        limits.device_heap_bytes = limits.device_heap_bytes.min(pool.heap_capacity());
        let contexts = Contexts { agent: Arc::clone(&agent), limits, held: Mutex::default() };
        let npu = Arc::new(Self {
            agent,
            arch,
            limits,
            pool,
            contexts,
            array: Mutex::default(),
            written: Written::default(),
            pdis: Mutex::default(),
            lost: OnceLock::new(),
            queues: Mutex::default(),
            _runtime: runtime,
        });
        at_exit::register(&npu);
        npu
    }

    /// Why the NPU is lost, if it is.
    pub(crate) fn lost(&self) -> Option<DeviceError> {
        self.lost.get().cloned()
    }

    /// # Errors
    /// [`DeviceError::Lost`] with the first cause.
    pub(crate) fn alive(&self) -> Result<(), DeviceError> {
        self.lost().map_or(Ok(()), Err)
    }

    /// Loses the NPU and wakes its queues; returns the first cause.
    pub(crate) fn lose(&self, cause: String) -> DeviceError {
        let first = self.lost.get_or_init(|| DeviceError::Lost(cause)).clone();
        let queues = self.queues.lock().clone();
        queues.iter().for_each(QueueHandle::wake);
        first
    }

    /// A chain has ended, or failed, that may have written these device addresses.
    pub(crate) fn wrote(&self, ranges: &[Range<u64>]) {
        if self.agent.caches().is_some() {
            self.written.note(ranges);
        }
    }

    /// The process ends: gives contexts and unused memory back. Work that is still under way is not waited for.
    pub(crate) fn close(&self) {
        if let Some(mut array) = self.array.try_lock_for(AT_EXIT_LIMIT)
            && let Err(cause) = array.planner.clear(&self.contexts)
        {
            tracing::debug!("contexts: {cause}");
        }
        self.lose("the process is ending".to_owned());
        self.pool.close();
    }

    /// Remembers a queue, so that it hears of a loss.
    pub(crate) fn add_queue(&self, queue: QueueHandle) {
        let mut queues = self.queues.lock();
        queues.retain(QueueHandle::is_alive);
        queues.push(queue);
    }

    /// Loads a kernel for logical device `device`.
    pub(crate) fn load(
        self: &Arc<Self>,
        artifact: &KernelArtifact,
        device: usize,
    ) -> Result<XdnaExecutable, DeviceError> {
        let pdi = self.pdis.lock().load(artifact, |bytes| {
            let params = BufferParams { size: bytes.len(), alignment: 4096, pool: MemoryPool::DeviceHeap };
            self.upload(bytes, || self.pool.allocate(&params))
        })?;
        let instructions = artifact.instructions();
        let instructions = self.upload(instructions, || self.pool.instructions(instructions.len()))?;
        Ok(XdnaExecutable { artifact: artifact.clone(), pdi, instructions, device, _npu: Arc::clone(self) })
    }

    /// Memory of the device heap.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Lost`].
    pub(crate) fn heap(&self, params: &BufferParams) -> Result<Block, DeviceError> {
        self.with_room(|| self.pool.allocate(params))
    }

    /// Allocates from the device heap; when it is full, takes back first what only contexts hold of unloaded PDIs.
    fn with_room(&self, allocate: impl Fn() -> Result<Block, DeviceError>) -> Result<Block, DeviceError> {
        let allocate = || {
            allocate().map_err(|cause| match cause {
                DeviceError::Lost(cause) => self.lose(cause),
                other => other,
            })
        };
        match allocate() {
            Err(DeviceError::OutOfMemory { .. }) => {
                let stale = self.array.lock().planner.discard_unloaded(&self.contexts);
                if let Err(cause) = stale {
                    tracing::warn!("contexts with unloaded PDIs: {cause}");
                }
                allocate()
            }
            other => other,
        }
    }

    fn upload(&self, bytes: &[u8], allocate: impl Fn() -> Result<Block, DeviceError>) -> Result<Block, DeviceError> {
        let block = self.with_room(allocate)?;
        if let Some(span) = block.region.span(0, bytes.len()) {
            span.write(bytes);
            // The runtime writes back arguments, and not what it does not know.
            span.write_back();
        }
        Ok(block)
    }
}

impl Drop for Npu {
    fn drop(&mut self) {
        if let Err(cause) = self.array.get_mut().planner.clear(&self.contexts) {
            tracing::debug!("contexts: {cause}");
        }
    }
}

/// Makes the contexts of an agent. Keeps the PDIs of a context in memory as long as it exists.
#[derive(Debug)]
pub(crate) struct Contexts {
    agent: Arc<dyn Agent>,
    limits: Limits,
    held: Mutex<HashMap<ContextId, Vec<Arc<Block>>>>,
}

impl ContextHost for Contexts {
    type Pdi = LoadedPdi;
    type Context = ContextId;
    type Error = AgentError;

    fn pdis_per_context(&self) -> usize {
        self.limits.pdis_per_context
    }

    fn contexts(&self) -> usize {
        self.limits.contexts
    }

    fn create(&self, pdis: &[Arc<LoadedPdi>]) -> Result<ContextId, AgentError> {
        let references: Vec<PdiRef> = pdis.iter().map(|pdi| pdi.reference()).collect();
        let context = self.agent.create_context(&references)?;
        self.held.lock().insert(context, pdis.iter().map(|pdi| Arc::clone(&pdi.memory)).collect());
        Ok(context)
    }

    fn destroy(&self, context: ContextId) -> Result<(), AgentError> {
        self.agent.destroy_context(context);
        let held = self.held.lock().remove(&context);
        // Not under the lock: this may give memory back to the runtime.
        drop(held);
        Ok(())
    }

    fn is_exhausted(&self, error: &AgentError) -> bool {
        matches!(error, AgentError::ContextsExhausted(_) | AgentError::OutOfMemory(_))
    }
}

impl LoadedPdi {
    pub(crate) fn reference(&self) -> PdiRef {
        PdiRef { address: self.memory.device_address, bytes: self.bytes }
    }
}

/// An agent's error as one of the HAL. `what` says what was tried.
pub(crate) fn device_error(npu: &Npu, what: &str, cause: AgentError) -> DeviceError {
    match cause {
        AgentError::Lost(cause) => npu.lose(cause),
        AgentError::Timeout { reason, .. } => DeviceError::Timeout(format!("{what} never signalled: {reason}")),
        AgentError::Unsupported(reason) => DeviceError::Unsupported(format!("{what}: {reason}")),
        AgentError::Failed { reason, .. } | AgentError::OutOfMemory(reason) | AgentError::ContextsExhausted(reason) => {
            DeviceError::Execution(format!("{what}: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests;
