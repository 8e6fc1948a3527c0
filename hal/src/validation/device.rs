//! The device: arguments of everything it makes.

use super::Owner;
use super::object::{ValidatedBuffer, ValidatedExecutable, ValidatedSemaphore};
use super::queue::ValidatedQueue;
use crate::arch::Arch;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, BufferParams, HostMemory};
use crate::counters::Counters;
use crate::device::{Clocks, Device, DeviceInfo, Limits, MemoryReport};
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::queue::Queue;
use crate::semaphore::{MAX_VALUE, Semaphore};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct ValidatedDevice {
    pub(super) owner: Arc<Owner>,
}

impl ValidatedDevice {
    fn check_limit(&self, what: &'static str, requested: usize, limit: usize) -> Result<(), DeviceError> {
        if requested <= limit {
            return Ok(());
        }
        Err(DeviceError::LimitExceeded { what, requested, limit, device: self.owner.name() })
    }

    fn check_allocation(&self, params: &BufferParams) -> Result<(), DeviceError> {
        let (limits, pool) = (self.owner.inner.limits(), params.pool.name());
        if params.size == 0 {
            return Err(DeviceError::InvalidArgument(format!(
                "allocation of 0 bytes of {pool} memory; a buffer has at least 1 byte"
            )));
        }
        if !params.alignment.is_power_of_two() {
            return Err(DeviceError::InvalidArgument(format!(
                "alignment {} of an allocation of {} bytes of {pool} memory is not a power of two; 1 to {} are possible",
                params.alignment, params.size, limits.max_alignment
            )));
        }
        self.check_limit("alignment of a buffer in bytes", params.alignment, limits.max_alignment)?;
        self.check_limit("size of a buffer in bytes", params.size, limits.max_buffer_bytes)
    }

    fn wrap_buffer(&self, inner: Arc<dyn Buffer>) -> Arc<dyn Buffer> {
        Arc::new(ValidatedBuffer { inner, owner: Arc::clone(&self.owner) })
    }
}

impl Device for ValidatedDevice {
    fn info(&self) -> &DeviceInfo {
        self.owner.inner.info()
    }

    fn arch(&self) -> &Arc<Arch> {
        self.owner.inner.arch()
    }

    fn limits(&self) -> &Limits {
        self.owner.inner.limits()
    }

    fn memory(&self) -> MemoryReport {
        self.owner.inner.memory()
    }

    fn counters(&self) -> Counters {
        self.owner.inner.counters()
    }

    fn clocks(&self) -> Option<Clocks> {
        self.owner.inner.clocks()
    }

    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        self.owner.alive()?;
        self.check_allocation(params)?;
        self.owner.observe(self.owner.inner.allocate(params)).map(|buffer| self.wrap_buffer(buffer))
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        self.owner.alive()?;
        if memory.span().length() == 0 {
            return Err(DeviceError::InvalidArgument("import of 0 bytes; a buffer has at least 1 byte".into()));
        }
        self.owner.observe(self.owner.inner.import(memory)).map(|buffer| self.wrap_buffer(buffer))
    }

    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        self.owner.alive()?;
        let arch = &self.owner.inner.info().arch;
        if artifact.arch() != arch {
            return Err(DeviceError::InvalidArtifact {
                name: artifact.name().to_owned(),
                reason: format!(
                    "it is for generation {}, {} is {arch}; build it for {arch}",
                    artifact.arch(),
                    self.owner.name()
                ),
            });
        }
        let limit = self.owner.inner.limits().kernel_arguments;
        self.check_limit("arguments of a kernel", artifact.argument_count(), limit)?;
        let inner = self.owner.observe(self.owner.inner.load_executable(artifact))?;
        Ok(Arc::new(ValidatedExecutable { inner, owner: Arc::clone(&self.owner) }))
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        self.owner.alive()?;
        let inner = self.owner.observe(self.owner.inner.create_queue())?;
        Ok(Arc::new(ValidatedQueue { inner, owner: Arc::clone(&self.owner) }))
    }

    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        self.owner.alive()?;
        if initial > MAX_VALUE {
            return Err(DeviceError::InvalidArgument(format!(
                "a semaphore starting at {initial}; the largest value is {MAX_VALUE}"
            )));
        }
        let inner = self.owner.observe(self.owner.inner.create_semaphore(initial))?;
        Ok(Arc::new(ValidatedSemaphore { inner, owner: Arc::clone(&self.owner) }))
    }
}
