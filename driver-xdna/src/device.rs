//! A logical device: its own counters and queues, on an NPU that it may share.

use crate::agent::AgentError;
use crate::buffer::XdnaBuffer;
use crate::imported;
use crate::npu::Npu;
use aie_hal::artifact::KernelArtifact;
use aie_hal::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use aie_hal::counters::Counters;
use aie_hal::device::{Device, DeviceInfo, Limits, MemoryReport};
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use aie_hal::queue::Queue;
use aie_hal::semaphore::{Semaphore, TimelineSemaphore};
use aie_hal::submission_queue::{QueueHandle, SubmissionQueue};
use aie_hal::{Arch, DeviceUri};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of one logical device.
#[derive(Debug, Default)]
pub(crate) struct CounterCells {
    pub(crate) submissions: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) host_calls: AtomicU64,
    pub(crate) chains: AtomicU64,
    pub(crate) contexts_created: AtomicU64,
    pub(crate) context_switches: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) bytes_flushed: AtomicU64,
    pub(crate) bytes_invalidated: AtomicU64,
    pub(crate) allocations: AtomicU64,
    pub(crate) allocated: AtomicU64,
    pub(crate) peak: AtomicU64,
}

/// What everything made by one logical device refers to.
#[derive(Debug)]
pub(crate) struct DeviceShared {
    pub(crate) info: DeviceInfo,
    pub(crate) npu: Arc<Npu>,
    pub(crate) counters: CounterCells,
    /// Bytes of data memory.
    pub(crate) capacity: usize,
    /// Bytes of data memory in use, in granules.
    pub(crate) used: AtomicUsize,
    /// Most commands of a chain.
    pub(crate) chain_commands: usize,
    /// Tells the logical devices of this process apart.
    pub(crate) number: usize,
    /// The URI, for messages.
    pub(crate) name: String,
    queues: Mutex<Vec<QueueHandle>>,
}

impl DeviceShared {
    /// Takes data memory from the account.
    fn charge(&self, params: &BufferParams, accounted: usize) -> Result<(), DeviceError> {
        let add = |used: usize| used.checked_add(accounted).filter(|used| *used <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(used) => Err(DeviceError::OutOfMemory {
                pool: params.pool.name(),
                requested: params.size,
                available: self.capacity.saturating_sub(used),
                capacity: self.capacity,
            }),
        }
    }
}

static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A logical device.
#[derive(Debug)]
pub(crate) struct XdnaDevice {
    shared: Arc<DeviceShared>,
}

impl XdnaDevice {
    /// A logical device on `npu`. `memory`: most bytes of data memory; `chain`: most dispatches in one doorbell.
    pub(crate) fn new(
        uri: DeviceUri,
        title: String,
        npu: Arc<Npu>,
        memory: Option<usize>,
        chain: Option<usize>,
    ) -> Self {
        let name = uri.to_string();
        let arch = npu.arch.name.clone();
        // Where the runtime maintains caches host and device agree whenever a chain starts or has ended.
        let info = DeviceInfo {
            uri,
            name: title,
            driver: crate::SCHEME,
            arch,
            coherent: npu.agent.caches().is_none(),
            host_import: npu.agent.imports_files(),
        };
        let limit = npu.limits.commands_per_chain;
        let pool = usize::try_from(npu.agent.info().data_bytes).unwrap_or(usize::MAX);
        let shared = DeviceShared {
            info,
            counters: CounterCells::default(),
            capacity: memory.unwrap_or(pool).min(pool),
            used: AtomicUsize::new(0),
            chain_commands: chain.unwrap_or(limit).clamp(1, limit.max(1)),
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            name,
            queues: Mutex::default(),
            npu,
        };
        Self { shared: Arc::new(shared) }
    }
}

impl Device for XdnaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn arch(&self) -> &Arc<Arch> {
        &self.shared.npu.arch
    }

    fn limits(&self) -> &Limits {
        &self.shared.npu.limits
    }

    fn memory(&self) -> MemoryReport {
        let DeviceShared { capacity, used, .. } = &*self.shared;
        MemoryReport { total: *capacity as u64, free: capacity.saturating_sub(used.load(Ordering::Relaxed)) as u64 }
    }

    fn counters(&self) -> Counters {
        let cells = &self.shared.counters;
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counters {
            submissions: get(&cells.submissions),
            dispatches: get(&cells.dispatches),
            host_calls: get(&cells.host_calls),
            chains: get(&cells.chains),
            // Every chain has a doorbell of its own: the runtime makes one chain of what is pending.
            doorbells: get(&cells.chains),
            contexts_created: get(&cells.contexts_created),
            context_switches: get(&cells.context_switches),
            bytes_copied: get(&cells.bytes_copied),
            bytes_flushed: get(&cells.bytes_flushed),
            bytes_invalidated: get(&cells.bytes_invalidated),
            allocations: get(&cells.allocations),
            allocated_bytes: get(&cells.allocated),
            peak_bytes: get(&cells.peak),
            virtual_ns: 0,
        }
    }

    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        let (shared, npu) = (&self.shared, &self.shared.npu);
        npu.alive()?;
        npu.limits.check_buffer(params, &shared.name)?;
        let (block, accounted) = match params.pool {
            MemoryPool::Data => {
                let accounted = params.size.next_multiple_of(npu.limits.granule.max(1));
                shared.charge(params, accounted)?;
                let block = npu.pool.allocate(params);
                if block.is_err() {
                    shared.used.fetch_sub(accounted, Ordering::Relaxed);
                }
                (block, accounted)
            }
            MemoryPool::DeviceHeap => (npu.heap(params), params.size),
        };
        let block = block.map_err(|cause| match cause {
            DeviceError::Lost(cause) => npu.lose(cause),
            other => other,
        })?;
        let counters = &shared.counters;
        counters.allocations.fetch_add(1, Ordering::Relaxed);
        let allocated = counters.allocated.fetch_add(accounted as u64, Ordering::Relaxed) + accounted as u64;
        counters.peak.fetch_max(allocated, Ordering::Relaxed);
        Ok(Arc::new(XdnaBuffer { block, pool: params.pool, device: Arc::clone(shared), accounted }))
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        let (shared, npu) = (&self.shared, &self.shared.npu);
        npu.alive()?;
        let bytes = memory.bytes().len();
        let block = imported::import(&npu.agent, memory).map_err(|cause| match cause {
            AgentError::Lost(cause) => npu.lose(cause),
            other => DeviceError::Unsupported(format!(
                "import of {bytes} bytes: {other}; copy them into a buffer of {}",
                shared.name
            )),
        })?;
        Ok(Arc::new(XdnaBuffer { block, pool: MemoryPool::Data, device: Arc::clone(shared), accounted: 0 }))
    }

    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        let (shared, npu) = (&self.shared, &self.shared.npu);
        npu.alive()?;
        npu.limits.check_kernel(artifact, &shared.info.arch, &shared.name)?;
        if !artifact.has_completion_token() {
            tracing::warn!(
                "kernel `{}` waits for no transfer; it completes before its output is written",
                artifact.name()
            );
        }
        Ok(Arc::new(npu.load(artifact, shared.number)?))
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        let shared = &self.shared;
        shared.npu.alive()?;
        let mut queues = shared.queues.lock();
        queues.retain(QueueHandle::is_alive);
        let (requested, limit) = (queues.len() + 1, shared.npu.limits.queues);
        if requested > limit {
            let device = shared.name.clone();
            return Err(DeviceError::LimitExceeded { what: "queues", requested, limit, device });
        }
        let queue = SubmissionQueue::new(shared)?;
        queues.push(queue.handle());
        shared.npu.add_queue(queue.handle());
        Ok(Arc::new(queue))
    }

    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        self.shared.npu.alive()?;
        Ok(Arc::new(TimelineSemaphore::new(initial)))
    }
}

#[cfg(test)]
mod tests;
