//! An open device.

use super::stream::Stream;
use super::{DeviceBackend, DeviceBuffer, HeapContent, LoadedKernel};
use crate::arch::Arch;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use crate::counters::Counters;
use crate::device::{Clocks, Device, DeviceInfo, Limits, MemoryReport};
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::queue::Queue;
use crate::semaphore::{Semaphore, TimelineSemaphore};
use crate::submission_queue::{QueueHandle, SubmissionQueue};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Identity, limits and accounts of a logical device.
#[derive(Debug)]
pub struct DeviceState {
    /// Who the device is.
    pub info: DeviceInfo,
    /// Its URI, for messages.
    pub name: String,
    /// Its generation.
    pub arch: Arc<Arch>,
    /// What it does not exceed.
    pub limits: Limits,
    /// Bytes of data memory.
    pub capacity: usize,
    account: Mutex<Account>,
    queues: Mutex<Vec<QueueHandle>>,
}

#[derive(Debug, Default)]
struct Account {
    counters: Counters,
    /// Bytes of data memory in use, in granules.
    used: usize,
}

impl DeviceState {
    /// A device with `capacity` bytes of data memory.
    pub fn new(info: DeviceInfo, arch: Arc<Arch>, limits: Limits, capacity: usize) -> Self {
        let name = info.uri.to_string();
        Self { info, name, arch, limits, capacity, account: Mutex::default(), queues: Mutex::default() }
    }

    /// Changes the counters.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.account.lock().counters);
    }

    /// Takes memory from the account; returns the bytes taken.
    fn charge(&self, params: &BufferParams) -> Result<usize, DeviceError> {
        let mut account = self.account.lock();
        let accounted = match params.pool {
            MemoryPool::DeviceHeap => params.size,
            MemoryPool::Data => {
                let available = self.capacity - account.used;
                let granules = params.size.checked_next_multiple_of(self.limits.granule.max(1));
                let accounted = granules.filter(|bytes| *bytes <= available).ok_or(DeviceError::OutOfMemory {
                    pool: params.pool.name(),
                    requested: params.size,
                    available,
                    capacity: self.capacity,
                })?;
                account.used += accounted;
                accounted
            }
        };
        account.counters.allocated_bytes += accounted as u64;
        Ok(accounted)
    }

    /// Releases what `charge` took.
    pub(super) fn release(&self, pool: MemoryPool, accounted: usize) {
        let mut account = self.account.lock();
        account.counters.allocated_bytes -= accounted as u64;
        if pool == MemoryPool::Data {
            account.used -= accounted;
        }
    }
}

/// A logical device on a backend.
#[derive(Debug)]
pub struct OpenDevice<B: DeviceBackend> {
    backend: Arc<B>,
}

impl<B: DeviceBackend> OpenDevice<B> {
    /// The device of `backend`.
    pub fn new(backend: B) -> Self {
        Self { backend: Arc::new(backend) }
    }
}

impl<B: DeviceBackend> Device for OpenDevice<B> {
    fn info(&self) -> &DeviceInfo {
        &self.backend.state().info
    }

    fn arch(&self) -> &Arc<Arch> {
        &self.backend.state().arch
    }

    fn limits(&self) -> &Limits {
        &self.backend.state().limits
    }

    fn memory(&self) -> MemoryReport {
        let state = self.backend.state();
        let free = state.capacity - state.account.lock().used;
        MemoryReport { total: state.capacity as u64, free: free as u64 }
    }

    fn counters(&self) -> Counters {
        let counters = self.backend.state().account.lock().counters;
        Counters { virtual_ns: self.backend.virtual_ns(), bundles: self.backend.bundles(), ..counters }
    }

    fn clocks(&self) -> Option<Clocks> {
        self.backend.clocks()
    }

    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        let (backend, state) = (&self.backend, self.backend.state());
        backend.array().alive()?;
        let accounted = state.charge(params)?;
        let memory = backend.allocate(params).inspect_err(|_| state.release(params.pool, accounted))?;
        state.count(|counters| {
            counters.allocations += 1;
            counters.peak_bytes = counters.peak_bytes.max(counters.allocated_bytes);
        });
        Ok(Arc::new(DeviceBuffer { memory, pool: params.pool, device: Arc::clone(backend), accounted }))
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        let device = Arc::clone(&self.backend);
        device.array().alive()?;
        // Not even an unchecked caller may have pages mapped that no byte of the memory is in.
        if memory.span().length() == 0 {
            return Err(DeviceError::InvalidArgument("imported memory needs at least 1 byte".into()));
        }
        Ok(Arc::new(DeviceBuffer { memory: device.import(memory)?, pool: MemoryPool::Data, device, accounted: 0 }))
    }

    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        let device = Arc::clone(&self.backend);
        device.array().alive()?;
        if !artifact.has_completion_token() {
            tracing::warn!(
                "kernel `{}` waits for no transfer; on hardware it completes before its output is written",
                artifact.name()
            );
        }
        let upload = |bytes: &[u8]| device.upload(bytes, HeapContent::Pdi);
        let pdi = device.array().pdis.lock().load(artifact, upload)?;
        let Stream { artifact, instructions } = Stream::load(&*device, artifact)?;
        let kernel = device.prepare(&artifact);
        Ok(Arc::new(LoadedKernel { artifact, pdi, instructions, kernel, device, traffic: OnceLock::new() }))
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        let (array, state) = (self.backend.array(), self.backend.state());
        array.alive()?;
        let mut queues = state.queues.lock();
        queues.retain(QueueHandle::is_alive);
        let (requested, limit) = (queues.len() + 1, state.limits.queues);
        if requested > limit {
            let device = state.name.clone();
            return Err(DeviceError::LimitExceeded { what: "queues", requested, limit, device });
        }
        let queue = SubmissionQueue::new(&self.backend)?;
        queues.push(queue.handle());
        array.add_queue(queue.handle());
        Ok(Arc::new(queue))
    }

    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        self.backend.array().alive()?;
        Ok(Arc::new(TimelineSemaphore::new(initial)))
    }
}
