//! The device: memory accounting, loading, and what its queues share.

use crate::buffer::{DeviceView, MockBuffer};
use crate::contexts::NpuContexts;
use crate::executable::{HeapAllocation, MockExecutable, PdiTable};
use crate::faults::FaultState;
use crate::npu::Npu;
use crate::options::Options;
use aie_device_memory::Region;
use aie_hal::artifact::KernelArtifact;
use aie_hal::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use aie_hal::context_planner::ContextPlanner;
use aie_hal::counters::Counters;
use aie_hal::device::{Device, DeviceInfo, Limits, MemoryReport};
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use aie_hal::host_function::KernelExecutor;
use aie_hal::queue::Queue;
use aie_hal::semaphore::{Semaphore, TimelineSemaphore};
use aie_hal::submission_queue::{QueueHandle, SubmissionQueue};
use aie_hal::{Arch, DeviceUri};
use parking_lot::Mutex;
use std::fmt::{Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Counters that are raised outside the NPU core.
#[derive(Debug, Default)]
pub(crate) struct CounterCells {
    pub(crate) submissions: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) host_calls: AtomicU64,
    pub(crate) doorbells: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) bytes_flushed: AtomicU64,
    pub(crate) bytes_invalidated: AtomicU64,
}

/// Buffers by pool, in bytes.
#[derive(Debug, Default)]
struct Usage {
    data: usize,
    heap: usize,
    peak: usize,
    allocations: u64,
}

/// A live import: where it lies in host memory and the device's view of it.
type Import = (usize, Weak<Region>);

/// What everything made by one device refers to.
pub(crate) struct DeviceShared {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) npu: Arc<Npu>,
    pub(crate) faults: FaultState,
    pub(crate) counters: CounterCells,
    /// Also the execution lock: who holds it has the array to himself.
    pub(crate) contexts: Mutex<ContextPlanner<NpuContexts>>,
    pub(crate) context_host: NpuContexts,
    pub(crate) reverse: bool,
    /// The URI, for messages.
    name: String,
    executor: Arc<dyn KernelExecutor>,
    /// Bytes of the data pool.
    capacity: usize,
    usage: Mutex<Usage>,
    pdis: Mutex<PdiTable>,
    imports: Mutex<Vec<Import>>,
    queues: Mutex<Vec<QueueHandle>>,
    lost: OnceLock<DeviceError>,
}

impl Debug for DeviceShared {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceShared").field("uri", &self.name).field("lost", &self.lost.get()).finish_non_exhaustive()
    }
}

impl DeviceShared {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<DeviceError> {
        self.lost.get().cloned()
    }

    fn alive(&self) -> Result<(), DeviceError> {
        self.lost().map_or(Ok(()), Err)
    }

    /// Loses the device and wakes its queues; returns the first cause.
    pub(crate) fn lose(&self, cause: String) -> DeviceError {
        let first = self.lost.get_or_init(|| DeviceError::Lost(cause)).clone();
        let queues = self.queues.lock().clone();
        queues.iter().for_each(QueueHandle::wake);
        first
    }

    /// Takes memory from a pool's account, and an address in the device heap.
    fn charge(&self, params: &BufferParams) -> Result<(usize, Option<u64>), DeviceError> {
        let out_of_memory = |available| DeviceError::OutOfMemory {
            pool: MemoryPool::Data.name(),
            requested: params.size,
            available,
            capacity: self.capacity,
        };
        let mut usage = self.usage.lock();
        let (charged, address) = match params.pool {
            MemoryPool::Data => {
                let available = self.capacity - usage.data;
                let charged = params.size.checked_next_multiple_of(self.limits.granule).filter(|c| *c <= available);
                let charged = charged.ok_or_else(|| out_of_memory(available))?;
                usage.data += charged;
                (charged, None)
            }
            MemoryPool::DeviceHeap => {
                let address = self.npu.heap_allocate(params.size, params.alignment);
                let address = address.map_err(|r| r.into_device_error(&self.name))?;
                usage.heap += params.size;
                (params.size, Some(address))
            }
        };
        usage.peak = usage.peak.max(usage.data + usage.heap);
        usage.allocations += 1;
        Ok((charged, address))
    }

    /// Gives back what `charge` took.
    pub(crate) fn release(&self, pool: MemoryPool, charged: usize, device_address: u64) {
        let mut usage = self.usage.lock();
        match pool {
            MemoryPool::Data => usage.data -= charged,
            MemoryPool::DeviceHeap => {
                usage.heap -= charged;
                self.npu.heap_free(device_address);
            }
        }
    }

    /// The device's view of imported memory that is not coherent. It starts equal to the host's, as pinning pages writes their
    /// cache lines back. Imports inside one another share a view, as they share the memory.
    fn import_view(&self, host: &Region) -> Result<DeviceView, DeviceError> {
        let (address, length) = (host.address(), host.length());
        let mut imports = self.imports.lock();
        imports.retain(|(_, view)| view.strong_count() > 0);
        for (start, view) in imports.iter() {
            let Some(region) = view.upgrade() else { continue };
            let (start, end) = (*start, start + region.length());
            if start <= address && address + length <= end {
                return Ok(DeviceView { region, offset: address - start });
            }
            if start < address + length && address < end {
                return Err(DeviceError::Unsupported(format!(
                    "import of {length} bytes at {address:#x}: it overlaps the import of {} bytes at {start:#x} without lying \
                     inside it, and the two could not agree without coherent memory; import the whole range once",
                    region.length()
                )));
            }
        }
        let region = Region::zeroed(length, self.limits.granule).map(Arc::new).ok_or(DeviceError::OutOfMemory {
            pool: MemoryPool::Data.name(),
            requested: length,
            available: 0,
            capacity: self.capacity,
        })?;
        if let (Some(target), Some(source)) = (region.span(0, length), host.span(0, length)) {
            target.copy_from(source);
        }
        imports.push((address, Arc::downgrade(&region)));
        Ok(DeviceView { region, offset: 0 })
    }
}

/// A simulated NPU, opened.
#[derive(Debug)]
pub(crate) struct MockDevice {
    shared: Arc<DeviceShared>,
}

impl MockDevice {
    /// Opens one device. `capacity` is the size of its data pool in bytes.
    pub(crate) fn new(
        uri: DeviceUri,
        arch: &Arc<Arch>,
        options: &Options,
        capacity: usize,
        executor: Arc<dyn KernelExecutor>,
    ) -> Self {
        let mut limits = Limits::from_arch(arch);
        limits.device_heap_bytes = options.heap.unwrap_or(limits.device_heap_bytes);
        let npu = Arc::new(Npu::new(Arc::clone(arch), limits.device_heap_bytes));
        let context_host = NpuContexts(Arc::clone(&npu));
        let name = uri.to_string();
        let info = DeviceInfo {
            uri,
            name: title(arch),
            driver: crate::SCHEME,
            arch: arch.name.clone(),
            coherent: options.coherent,
            host_import: true,
        };
        let shared = DeviceShared {
            info,
            limits,
            npu,
            faults: FaultState::new(options.faults.clone()),
            counters: CounterCells::default(),
            contexts: Mutex::default(),
            context_host,
            reverse: options.reverse,
            name,
            executor,
            capacity,
            usage: Mutex::default(),
            pdis: Mutex::default(),
            imports: Mutex::default(),
            queues: Mutex::default(),
            lost: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }
}

/// Product name of a simulated device.
pub(crate) fn title(arch: &Arch) -> String {
    format!("Simulated {} NPU ({})", arch.title, arch.name)
}

impl Device for MockDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn arch(&self) -> &Arc<Arch> {
        self.shared.npu.arch()
    }

    fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn memory(&self) -> MemoryReport {
        let used = self.shared.usage.lock().data;
        MemoryReport { total: self.shared.capacity as u64, free: (self.shared.capacity - used) as u64 }
    }

    fn counters(&self) -> Counters {
        let shared = &self.shared;
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let (cells, npu) = (&shared.counters, shared.npu.counts());
        let usage = shared.usage.lock();
        Counters {
            submissions: get(&cells.submissions),
            dispatches: get(&cells.dispatches),
            host_calls: get(&cells.host_calls),
            chains: npu.chains,
            doorbells: get(&cells.doorbells),
            contexts_created: npu.contexts_created,
            context_switches: npu.context_switches,
            bytes_copied: get(&cells.bytes_copied),
            bytes_flushed: get(&cells.bytes_flushed),
            bytes_invalidated: get(&cells.bytes_invalidated),
            allocations: usage.allocations,
            allocated_bytes: (usage.data + usage.heap) as u64,
            peak_bytes: usage.peak as u64,
            virtual_ns: shared.npu.elapsed_ns(),
        }
    }

    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        let shared = &self.shared;
        shared.alive()?;
        shared.limits.check_buffer(params, &shared.name)?;
        if shared.faults.allocation() {
            let (pool, requested) = (params.pool.name(), params.size);
            return Err(DeviceError::OutOfMemory { pool, requested, available: 0, capacity: shared.capacity });
        }
        let (charged, heap_address) = shared.charge(params)?;
        let region = || Region::zeroed(params.size, params.alignment);
        let view = if shared.info.coherent { Some(None) } else { region().map(Arc::new).map(Some) };
        let (Some(host), Some(view)) = (region(), view) else {
            shared.release(params.pool, charged, heap_address.unwrap_or_default());
            let (pool, requested) = (params.pool.name(), params.size);
            return Err(DeviceError::OutOfMemory { pool, requested, available: 0, capacity: shared.capacity });
        };
        let seen = view.as_ref().map_or(host.address(), |region| region.address());
        Ok(Arc::new(MockBuffer {
            device: Arc::clone(shared),
            pool: params.pool,
            host,
            view: view.map(|region| DeviceView { region, offset: 0 }),
            device_address: heap_address.unwrap_or(seen as u64),
            charged,
        }))
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        let shared = &self.shared;
        shared.alive()?;
        let host = Region::borrowed(memory);
        if host.length() == 0 {
            return Err(DeviceError::InvalidArgument("imported memory needs at least 1 byte".into()));
        }
        let view = match shared.info.coherent {
            true => None,
            false => Some(shared.import_view(&host)?),
        };
        let seen = view.as_ref().map_or(host.address(), |v| v.region.address() + v.offset);
        Ok(Arc::new(MockBuffer {
            device: Arc::clone(shared),
            pool: MemoryPool::Data,
            host,
            view,
            device_address: seen as u64,
            charged: 0,
        }))
    }

    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        let shared = &self.shared;
        shared.alive()?;
        shared.limits.check_kernel(artifact, &shared.info.arch, &shared.name)?;
        let pdi = shared.pdis.lock().load(&shared.npu, artifact, &shared.name)?;
        let instructions = HeapAllocation::new(&shared.npu, artifact.instructions().len(), &shared.name)?;
        let kernel = shared.executor.prepare(artifact);
        if let Err(reason) = &kernel {
            tracing::warn!("kernel `{}` loads, but its dispatches will time out: {reason}", artifact.name());
        }
        if !artifact.has_completion_token() {
            tracing::warn!(
                "kernel `{}` waits for no transfer; on hardware it would complete before its output is written",
                artifact.name()
            );
        }
        Ok(Arc::new(MockExecutable {
            artifact: artifact.clone(),
            pdi,
            _instructions: instructions,
            kernel,
            device: Arc::clone(shared),
        }))
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        let shared = &self.shared;
        shared.alive()?;
        let mut queues = shared.queues.lock();
        queues.retain(QueueHandle::is_alive);
        let (requested, limit) = (queues.len() + 1, shared.limits.queues);
        if requested > limit {
            let device = shared.name.clone();
            return Err(DeviceError::LimitExceeded { what: "queues", requested, limit, device });
        }
        let queue = SubmissionQueue::new(shared)?;
        queues.push(queue.handle());
        Ok(Arc::new(queue))
    }

    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        self.shared.alive()?;
        Ok(Arc::new(TimelineSemaphore::new(initial)))
    }
}

#[cfg(test)]
mod tests;
