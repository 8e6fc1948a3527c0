//! A device that only notes what reaches it. Addresses are made up; there is no memory behind them to run commands on.

use crate::arch::{Arch, ArchRegistry};
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use crate::counters::Counters;
use crate::device::{Device, DeviceInfo, Limits, MemoryReport};
use crate::error::{DeviceError, SubmitError};
use crate::executable::Executable;
use crate::queue::{Queue, Submission};
use crate::semaphore::{Semaphore, TimelineSemaphore};
use crate::uri::DeviceUri;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct FakeBuffer {
    bytes: Vec<AtomicU8>,
    address: u64,
}

impl Buffer for FakeBuffer {
    fn size(&self) -> usize {
        self.bytes.len()
    }
    fn pool(&self) -> MemoryPool {
        MemoryPool::Data
    }
    fn device_address(&self) -> u64 {
        self.address
    }
    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        Ok(&self.bytes[range])
    }
    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        let _ = &self.bytes[offset..offset + target.len()];
        Ok(())
    }
    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        let _ = &self.bytes[offset..offset + source.len()];
        Ok(())
    }
    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.map(range).map(drop)
    }
    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.map(range).map(drop)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
pub(super) struct FakeExecutable(KernelArtifact);

impl Executable for FakeExecutable {
    fn artifact(&self) -> &KernelArtifact {
        &self.0
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) submissions: Mutex<Vec<Submission>>,
    pub(super) loss: Mutex<Option<String>>,
}

impl Log {
    fn alive(&self) -> Result<(), DeviceError> {
        self.loss.lock().clone().map_or(Ok(()), |cause| Err(DeviceError::Lost(cause)))
    }
}

#[derive(Debug)]
pub(super) struct FakeQueue(Arc<Log>);

#[async_trait]
impl Queue for FakeQueue {
    fn submit(&self, submission: Submission) -> Result<(), SubmitError> {
        self.0.alive()?;
        self.0.submissions.lock().push(submission);
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.alive()
    }
    fn wait_idle(&self, _: Option<Duration>) -> Result<(), DeviceError> {
        self.0.alive()
    }
    async fn idle(&self) -> Result<(), DeviceError> {
        self.0.alive()
    }
}

#[derive(Debug)]
pub(super) struct FakeDevice {
    info: DeviceInfo,
    arch: Arc<Arch>,
    limits: Limits,
    pub(super) log: Arc<Log>,
    next_address: Mutex<u64>,
}

impl FakeDevice {
    pub(super) fn new(path: &str) -> Arc<Self> {
        let uri = DeviceUri::parse(&format!("fake:{path}")).unwrap();
        let arch = ArchRegistry::builtin().get("aie2p").unwrap();
        let info = DeviceInfo {
            uri,
            name: "Fake".into(),
            driver: "fake",
            arch: arch.name.clone(),
            coherent: true,
            host_import: true,
        };
        let limits = Limits::from_arch(&arch);
        Arc::new(Self { info, arch, limits, log: Arc::default(), next_address: Mutex::new(0x1000) })
    }
}

impl Device for FakeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn arch(&self) -> &Arc<Arch> {
        &self.arch
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn memory(&self) -> MemoryReport {
        MemoryReport { total: 0, free: 0 }
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        self.log.alive()?;
        let mut next = self.next_address.lock();
        let bytes = (0..params.size).map(|_| AtomicU8::new(0)).collect();
        let buffer = FakeBuffer { bytes, address: *next };
        *next += 0x1000;
        Ok(Arc::new(buffer))
    }
    /// Every import is of the memory at the same address.
    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        let bytes = memory.bytes().iter().map(|_| AtomicU8::new(0)).collect();
        Ok(Arc::new(FakeBuffer { bytes, address: 0x100_0000 }))
    }
    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(FakeExecutable(artifact.clone())))
    }
    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        Ok(Arc::new(FakeQueue(Arc::clone(&self.log))))
    }
    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        Ok(Arc::new(TimelineSemaphore::new(initial)))
    }
}
