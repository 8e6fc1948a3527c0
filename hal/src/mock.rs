//! Doubles of the traits, made with mockall, for tests in which a whole simulated device would hide the point.
//!
//! Behind the feature `mock`, which only `dev-dependencies` should enable. A call that was not expected panics, as mockall
//! does everywhere.
//!
//! Two differences from the traits: `expect_map` of [`MockBuffer`] returns memory that lives for ever (`Box::leak`), because
//! mockall cannot express a result that borrows from the double; and `as_any` needs no expectation.

use crate::arch::Arch;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use crate::counters::Counters;
use crate::device::{Device, DeviceInfo, Limits, MemoryReport};
use crate::error::{DeviceError, SubmitError};
use crate::executable::Executable;
use crate::queue::{Queue, Submission};
use crate::semaphore::{Failure, Listener, ListenerId, Semaphore, WaitError};
use async_trait::async_trait;
use mockall::mock;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

mock! {
    /// Double of [`crate::Device`].
    #[derive(Debug)]
    pub Device {}

    impl Device for Device {
        fn info(&self) -> &DeviceInfo;
        fn arch(&self) -> &Arc<Arch>;
        fn limits(&self) -> &Limits;
        fn memory(&self) -> MemoryReport;
        fn counters(&self) -> Counters;
        fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError>;
        fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError>;
        fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError>;
        fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError>;
        fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError>;
    }
}

mock! {
    /// Double of [`crate::Queue`].
    #[derive(Debug)]
    pub Queue {}

    #[async_trait]
    impl Queue for Queue {
        fn submit(&self, submission: Submission) -> Result<(), SubmitError>;
        fn flush(&self) -> Result<(), DeviceError>;
        fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), DeviceError>;
        async fn idle(&self) -> Result<(), DeviceError>;
    }
}

mock! {
    /// Double of [`crate::Semaphore`].
    #[derive(Debug)]
    pub Semaphore {}

    #[async_trait]
    impl Semaphore for Semaphore {
        fn query(&self) -> Result<u64, Failure>;
        fn signal(&self, value: u64) -> Result<(), WaitError>;
        fn fail(&self, cause: Failure);
        fn poll(&self, value: u64) -> Result<bool, Failure>;
        fn subscribe(&self, value: u64, listener: Listener) -> ListenerId;
        fn unsubscribe(&self, id: ListenerId);
        fn wait_blocking(&self, value: u64, timeout: Option<Duration>) -> Result<(), WaitError>;
        async fn wait(&self, value: u64) -> Result<(), WaitError>;
    }
}

mock! {
    /// Double of [`crate::Executable`].
    #[derive(Debug)]
    pub Executable {
        /// See [`crate::Executable::artifact`].
        pub fn artifact(&self) -> &KernelArtifact;
    }
}

impl Executable for MockExecutable {
    fn artifact(&self) -> &KernelArtifact {
        // The inherent method, which has the expectations.
        MockExecutable::artifact(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

mock! {
    /// Double of [`crate::Buffer`].
    #[derive(Debug)]
    pub Buffer {
        /// See [`crate::Buffer::size`].
        pub fn size(&self) -> usize;
        /// See [`crate::Buffer::pool`].
        pub fn pool(&self) -> MemoryPool;
        /// See [`crate::Buffer::device_address`].
        pub fn device_address(&self) -> u64;
        /// See [`crate::Buffer::map`].
        pub fn map(&self, range: Range<usize>) -> Result<&'static [AtomicU8], DeviceError>;
        /// See [`crate::Buffer::read`].
        pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError>;
        /// See [`crate::Buffer::write`].
        pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError>;
        /// See [`crate::Buffer::flush`].
        pub fn flush(&self, range: Range<usize>) -> Result<(), DeviceError>;
        /// See [`crate::Buffer::invalidate`].
        pub fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError>;
    }
}

impl Buffer for MockBuffer {
    fn size(&self) -> usize {
        MockBuffer::size(self)
    }

    fn pool(&self) -> MemoryPool {
        MockBuffer::pool(self)
    }

    fn device_address(&self) -> u64 {
        MockBuffer::device_address(self)
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        MockBuffer::map(self, range)
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        MockBuffer::read(self, offset, target)
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        MockBuffer::write(self, offset, source)
    }

    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        MockBuffer::flush(self, range)
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        MockBuffer::invalidate(self, range)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
