//! One NPU, shared by the logical devices that are opened on it: memory, contexts, and whether it is lost.
//!
//! At the end of the process what the kernel driver holds for NPUs that are still open is released: devices in statics are
//! never dropped, and llama.cpp keeps its backends in such. Only the process that opened an NPU releases it: a forked child runs the same
//! exit handlers, and shares the kernel's objects with its parent.

use crate::agent::{AT_EXIT_LIMIT, Agent, AgentError};
use crate::coherence::Written;
use crate::contexts::AgentContexts;
use crate::limits::pdis_per_context;
use crate::pool::{Block, Pool};
use aie_hal::backend::{Array, HeapContent};
use aie_hal::error::DeviceError;
use aie_hal::{Arch, BufferParams, Limits, MemoryPool, OwningProcess};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// An NPU that is open, with its memory and contexts. Thread-safe; closed when the last reference goes.
pub struct OpenNpu {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) arch: Arc<Arch>,
    pub(crate) limits: Limits,
    pub(crate) pool: Arc<Pool>,
    pub(crate) array: Array<AgentContexts>,
    /// What the NPU has written and the host may have stale copies of; unused where the runtime maintains caches.
    pub(crate) written: Written,
    pub(crate) owner: OwningProcess,
    /// What has to stay open below, if anything; the last field, so that everything of it is gone before.
    _runtime: Option<Arc<dyn Any + Send + Sync>>,
}

impl Debug for OpenNpu {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenNpu").field("agent", &self.agent).field("array", &self.array).finish_non_exhaustive()
    }
}

impl OpenNpu {
    /// `agent` as an NPU of generation `arch`. It is closed at the end of the process at the latest. `runtime` is what has to stay open
    /// below, if anything; it goes last.
    pub fn new(agent: Arc<dyn Agent>, arch: Arc<Arch>, runtime: Option<Arc<dyn Any + Send + Sync>>) -> Arc<Self> {
        let mut limits = arch.limits;
        let pool = Pool::new(Arc::clone(&agent), limits.contexts);
        limits.device_heap_bytes = limits.device_heap_bytes.min(pool.heap_capacity);
        limits.pdis_per_context = limits.pdis_per_context.min(pdis_per_context().unwrap_or(usize::MAX));
        let array = Array::new(AgentContexts::new(Arc::clone(&agent)), &limits);
        let (written, owner) = (Written::default(), OwningProcess::current());
        let npu = Arc::new(Self { agent, arch, limits, pool, array, written, owner, _runtime: runtime });
        close_at_exit(&npu);
        npu
    }

    /// Puts bytes into the device heap.
    pub(crate) fn upload(&self, bytes: &[u8], content: HeapContent) -> Result<Block, DeviceError> {
        let params = BufferParams { size: bytes.len(), alignment: 4096, pool: MemoryPool::DeviceHeap };
        let block = self.with_room(|| match content {
            HeapContent::Pdi => self.pool.allocate(&params),
            HeapContent::Instructions => self.pool.instructions(bytes.len()),
        })?;
        write_heap(&block, 0, bytes);
        Ok(block)
    }

    /// Memory of the device heap.
    pub(crate) fn heap(&self, params: &BufferParams) -> Result<Block, DeviceError> {
        self.with_room(|| self.pool.allocate(params))
    }

    /// Allocates from the device heap; when it is full, takes back first what only contexts hold of unloaded PDIs.
    fn with_room(&self, allocate: impl Fn() -> Result<Block, DeviceError>) -> Result<Block, DeviceError> {
        match self.noticing_loss(allocate()) {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.array.discard_unloaded();
                self.noticing_loss(allocate())
            }
            other => other,
        }
    }

    /// Loses the NPU when that is what `result` says.
    pub(crate) fn noticing_loss<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        result.map_err(|cause| match cause {
            DeviceError::Lost(cause) => self.array.lose(cause),
            other => other,
        })
    }

    /// An agent's error as one of the HAL. `what` says what was tried.
    pub(crate) fn error(&self, what: &str, cause: AgentError) -> DeviceError {
        match cause {
            AgentError::Lost(cause) => self.array.lose(cause),
            AgentError::Timeout { reason, .. } => DeviceError::Timeout(format!("{what} never signalled: {reason}")),
            AgentError::Unsupported(reason) | AgentError::Unusable { reason, .. } => {
                DeviceError::Unsupported(format!("{what}: {reason}"))
            }
            AgentError::Failed { reason, .. }
            | AgentError::OutOfMemory(reason)
            | AgentError::ContextsExhausted { reason, .. } => DeviceError::Execution(format!("{what}: {reason}")),
        }
    }

    /// Gives contexts and unused memory back. Work that is still in flight is not waited for.
    fn close(&self) {
        self.array.clear(AT_EXIT_LIMIT);
        self.array.lose("the process is ending".to_owned());
        self.pool.close();
        self.agent.close();
    }
}

/// The NPUs to close at the end of the process.
pub(crate) static OPEN: Mutex<Vec<Weak<OpenNpu>>> = Mutex::new(Vec::new());
/// The process that opened the first.
static OWNER: OnceLock<OwningProcess> = OnceLock::new();

/// Writes bytes of the device heap, as far as they lie inside the block.
pub(crate) fn write_heap(block: &Block, offset: usize, bytes: &[u8]) {
    if let Some(span) = block.region.writable(offset, bytes.len()) {
        span.write(bytes);
        // The runtime writes back arguments, and not what it does not know.
        span.write_back();
    }
}

fn close_at_exit(npu: &Arc<OpenNpu>) {
    OWNER.get_or_init(|| {
        // SAFETY: the handler is a function of this library, which stays loaded as long as it is registered.
        if unsafe { libc::atexit(close_all) } != 0 {
            tracing::debug!("what is open at the end of the process is left to the kernel");
        }
        OwningProcess::current()
    });
    let mut open = OPEN.lock();
    open.retain(|npu| npu.strong_count() > 0);
    open.push(Arc::downgrade(npu));
}

pub(crate) extern "C" fn close_all() {
    // A panic must not cross into C, and at this point no one could do anything about one.
    let _ = std::panic::catch_unwind(|| {
        // Threads of a parent may have held the lock when this process was forked, and then it is never released here.
        let is_child = !OWNER.get().is_some_and(|owner| owner.is_current());
        let limit = if is_child { Duration::ZERO } else { AT_EXIT_LIMIT };
        let Some(open) = OPEN.try_lock_for(limit).map(|open| open.clone()) else { return };
        open.iter().filter_map(Weak::upgrade).filter(|npu| npu.owner.is_current()).for_each(|npu| npu.close());
    });
}

#[cfg(test)]
mod tests;
