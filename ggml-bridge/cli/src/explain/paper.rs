//! A device that only has numbers: graphs are planned on it, and never run.

use aie_hal::buffer::MemoryPool;
use aie_hal::{
    Arch, Buffer, BufferParams, Counters, Device, DeviceError, DeviceInfo, Executable, HostMemory, KernelArtifact,
    Limits, MemoryReport, Queue, Semaphore,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// The generation, limits and memory of another device.
#[derive(Debug)]
pub struct PaperDevice {
    of: Arc<dyn Device>,
}

impl PaperDevice {
    /// A device like `of`, which is left alone.
    pub fn of(of: Arc<dyn Device>) -> Self {
        Self { of }
    }
}

/// Memory that has a size and no bytes.
#[derive(Debug)]
pub struct PaperBuffer(pub usize);

/// A kernel that is loaded nowhere.
#[derive(Debug)]
struct PaperExecutable(KernelArtifact);

impl Executable for PaperExecutable {
    fn artifact(&self) -> &KernelArtifact {
        &self.0
    }
}

fn on_paper(what: &'static str) -> DeviceError {
    DeviceError::Unsupported(format!("{what} of a device on paper"))
}

impl Device for PaperDevice {
    fn info(&self) -> &DeviceInfo {
        self.of.info()
    }

    fn arch(&self) -> &Arc<Arch> {
        self.of.arch()
    }

    fn limits(&self) -> &Limits {
        self.of.limits()
    }

    fn memory(&self) -> MemoryReport {
        self.of.memory()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        Ok(Arc::new(PaperBuffer(params.size)))
    }

    fn import(&self, _memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(on_paper("imported memory"))
    }

    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(PaperExecutable(artifact.clone())))
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        Err(on_paper("a queue"))
    }

    fn create_semaphore(&self, _initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        Err(on_paper("a semaphore"))
    }
}

impl Buffer for PaperBuffer {
    fn size(&self) -> usize {
        self.0
    }

    fn pool(&self) -> MemoryPool {
        MemoryPool::Data
    }

    fn device_address(&self) -> u64 {
        0
    }

    fn map(&self, _range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        Err(on_paper("memory"))
    }

    fn read(&self, _offset: usize, _target: &mut [u8]) -> Result<(), DeviceError> {
        Err(on_paper("memory"))
    }

    fn write(&self, _offset: usize, _source: &[u8]) -> Result<(), DeviceError> {
        Err(on_paper("memory"))
    }

    fn flush(&self, _range: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn invalidate(&self, _range: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }
}
