//! A simulated device: memory, loading, and the state that its chains see.

mod chain;

use self::chain::ChainScratch;
use crate::contexts::NpuContexts;
use crate::execution::Execution;
use crate::faults::Fault;
use crate::memory::{DeviceView, HeapAllocation, MockMemory};
use crate::npu::compiled::{CompiledArray, Kernel};
use crate::npu::fault_plan::FaultCounter;
use crate::npu::{self, Rejection, SimulatedNpu};
use crate::options::Options;
use aie_device_memory::Region;
use aie_hal::KernelExecutor;
use aie_hal::artifact::KernelArtifact;
use aie_hal::backend::{
    Array, ChainFailure, ChainView, CommandOrder, DeviceBackend, DeviceState, HeapContent, OpenDevice,
};
use aie_hal::buffer::{BufferParams, HostMemory, MemoryPool};
use aie_hal::device::DeviceInfo;
use aie_hal::error::DeviceError;
use aie_hal::host_function::HostFunctionError;
use aie_hal::{Arch, DeviceUri};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Alignment of PDIs and instruction streams in the device heap: a page, as the kernel driver hands them out.
const HEAP_ALIGNMENT: usize = 4096;
/// What is late of a result whose last cache line is.
const LATE_BYTES: usize = 64;

/// A live import: where it lies in host memory and the device's view of it.
type Import = (usize, Weak<Region>);

/// What everything made by one device refers to.
#[derive(Debug)]
pub(crate) struct MockDevice {
    state: DeviceState,
    array: Array<NpuContexts>,
    pub(crate) npu: Arc<SimulatedNpu>,
    pub(crate) faults: FaultCounter<Fault>,
    order: CommandOrder,
    execution: Execution,
    executor: Arc<dyn KernelExecutor>,
    /// Where compiled kernels run.
    compiled: Mutex<CompiledArray>,
    imports: Mutex<Vec<Import>>,
}

impl MockDevice {
    /// Opens one device. `capacity` is the size of its data pool in bytes.
    pub(crate) fn open(
        uri: DeviceUri,
        arch: &Arc<Arch>,
        options: &Options,
        capacity: usize,
        executor: Arc<dyn KernelExecutor>,
        compiled: CompiledArray,
    ) -> OpenDevice<Self> {
        let mut limits = arch.limits;
        limits.device_heap_bytes = options.heap.unwrap_or(limits.device_heap_bytes);
        let npu = Arc::new(SimulatedNpu::new(Arc::clone(arch), limits.device_heap_bytes));
        let info = DeviceInfo {
            uri,
            name: title(arch),
            driver: crate::SCHEME,
            simulated: true,
            arch: arch.name.clone(),
            coherent: options.coherent,
            import_obstacle: None,
        };
        OpenDevice::new(Self {
            state: DeviceState::new(info, Arc::clone(arch), limits, capacity),
            array: Array::new(NpuContexts(Arc::clone(&npu)), npu.limits()),
            npu,
            faults: FaultCounter::new(options.faults.clone()),
            order: if options.reverse { CommandOrder::Reversed } else { CommandOrder::Recorded },
            execution: options.execution,
            executor,
            compiled: Mutex::new(compiled),
            imports: Mutex::default(),
        })
    }

    fn out_of_memory(&self, requested: usize) -> DeviceError {
        let (pool, capacity) = (MemoryPool::Data.name(), self.state.capacity);
        DeviceError::OutOfMemory { pool, requested, available: 0, capacity }
    }

    fn heap(&self, bytes: usize, alignment: usize) -> Result<HeapAllocation, DeviceError> {
        HeapAllocation::new(&self.npu, bytes, alignment).map_err(|rejection| self.context_error(rejection))
    }

    /// Zeroed memory beside what is imported.
    fn elsewhere(&self, bytes: usize) -> Result<Region, DeviceError> {
        Region::zeroed(bytes, self.state.limits.granule).ok_or_else(|| self.out_of_memory(bytes))
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
        let region = Arc::new(self.elsewhere(length)?);
        if let (Some(target), Some(source)) = (region.span(0, length), host.span(0, length))
            && let Some(target) = target.writable()
        {
            target.copy_from(source);
        }
        imports.push((address, Arc::downgrade(&region)));
        Ok(DeviceView { region, offset: 0 })
    }
}

/// Product name of a simulated device.
pub(crate) fn title(arch: &Arch) -> String {
    format!("Simulated {} NPU ({})", arch.title, arch.name)
}

impl DeviceBackend for MockDevice {
    type Memory = MockMemory;
    type Heap = HeapAllocation;
    /// What the executor made of it; with an error, dispatches time out.
    type Kernel = Result<Kernel, HostFunctionError>;
    type Contexts = NpuContexts;
    type ChainScratch = ChainScratch;

    const TRANSFERS_ON_HOST: bool = false;
    const CHAINS_SHARE_DOORBELL: bool = true;
    const BATCH: usize = 1;

    fn state(&self) -> &DeviceState {
        &self.state
    }

    fn array(&self) -> &Array<NpuContexts> {
        &self.array
    }

    fn order(&self) -> CommandOrder {
        self.order
    }

    fn virtual_ns(&self) -> u64 {
        self.npu.elapsed_ns()
    }

    fn bundles(&self) -> u64 {
        self.compiled.lock().bundles()
    }

    fn allocate(&self, params: &BufferParams) -> Result<MockMemory, DeviceError> {
        if self.faults.hits(Fault::Alloc) {
            return Err(self.out_of_memory(params.size));
        }
        let heap = match params.pool {
            MemoryPool::Data => None,
            MemoryPool::DeviceHeap => Some(self.heap(params.size, params.alignment)?),
        };
        let region = || {
            let region = match self.execution {
                Execution::Plan => Region::reserved(params.size, params.alignment),
                _ => Region::zeroed(params.size, params.alignment),
            };
            region.ok_or_else(|| self.out_of_memory(params.size))
        };
        let view = if self.state.info.coherent { None } else { Some(DeviceView::of(region()?)) };
        Ok(MockMemory { host: region()?, view, heap })
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<MockMemory, DeviceError> {
        let host = match self.faults.hits(Fault::Import) {
            true => self.elsewhere(memory.span().length())?,
            false => Region::borrowed(memory),
        };
        let view = if self.state.info.coherent { None } else { Some(self.import_view(&host)?) };
        Ok(MockMemory { host, view, heap: None })
    }

    fn upload(&self, bytes: &[u8], content: HeapContent) -> Result<HeapAllocation, DeviceError> {
        let mut allocation = self.heap(bytes.len(), HEAP_ALIGNMENT)?;
        if content == HeapContent::Pdi {
            allocation.descriptors = npu::descriptors(bytes, self.npu.arch());
        }
        Ok(allocation)
    }

    /// Chains have their instructions from the artifact; of the heap only the room counts.
    fn rewrite(&self, _: &HeapAllocation, _: usize, _: &[u8]) {}

    fn prepare(&self, artifact: &KernelArtifact) -> Self::Kernel {
        let kernel = Kernel::prepare(artifact, &*self.executor);
        if let Err(reason) = &kernel {
            tracing::warn!("kernel `{}` loads, but its dispatches will time out: {reason}", artifact.name());
        }
        kernel
    }

    fn flush(&self, memory: &MockMemory, range: Range<usize>) {
        if !self.faults.hits(Fault::Stale) {
            memory.host_to_device(range);
        }
    }

    fn invalidate(&self, memory: &MockMemory, mut range: Range<usize>) {
        if self.faults.hits(Fault::Late) {
            range.end = range.end.saturating_sub(LATE_BYTES).max(range.start);
        }
        if !self.faults.hits(Fault::Stale) {
            memory.device_to_host(range);
        }
    }

    fn invalidate_written(&self, memory: &MockMemory, range: Range<usize>) -> u64 {
        let bytes = range.len() as u64;
        memory.device_to_host(range);
        bytes
    }

    fn flush_written(&self, memory: &MockMemory, range: Range<usize>) {
        memory.host_to_device(range);
    }

    fn note_transfer(&self, bytes: u64) {
        self.npu.charge_bytes(bytes);
    }

    fn contexts_created(&self) -> u64 {
        self.npu.counts().contexts_created
    }

    fn context_error(&self, cause: Rejection) -> DeviceError {
        cause.into_device_error(&self.state.name)
    }

    fn start(&self, scratch: &mut ChainScratch, chain: &ChainView<'_, Self>) -> Result<u64, ChainFailure> {
        match self.execution {
            Execution::Plan => Ok(0),
            _ => chain::run(self, scratch, chain).map(|()| 0),
        }
    }
}

#[cfg(test)]
mod tests;
