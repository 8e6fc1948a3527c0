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
use crate::driver::{DeviceListing, Driver};
use crate::error::{DeviceError, DriverError, SubmitError};
use crate::executable::Executable;
use crate::host_function::{HostFunction, HostFunctionError, KernelExecutor};
use crate::queue::{Queue, Submission};
use crate::semaphore::{Failure, Listener, ListenerId, Semaphore, WaitError};
use crate::uri::DeviceUri;
use async_trait::async_trait;
use mockall::mock;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

mock! {
    /// Double of [`crate::Driver`].
    #[derive(Debug)]
    pub Driver {}

    impl Driver for Driver {
        fn scheme(&self) -> &'static str;
        fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError>;
        fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError>;
    }
}

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
    /// Double of [`crate::KernelExecutor`].
    #[derive(Debug)]
    pub KernelExecutor {}

    impl KernelExecutor for KernelExecutor {
        fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError>;
    }
}

mock! {
    /// Double of [`crate::Kernel`].
    #[derive(Debug)]
    pub HostFunction {}

    impl HostFunction for HostFunction {
        fn name(&self) -> &str;
        fn input_count(&self) -> usize;
        fn run<'a>(&self, inputs: &[&'a [u8]], output: &mut [u8]) -> Result<(), HostFunctionError>;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_list::{BufferRef, CommandList};
    use crate::queue::TimelinePoint;
    use crate::validation::{wrap_device, wrap_driver};
    use mockall::predicate::eq;
    use std::sync::atomic::Ordering;

    fn info() -> DeviceInfo {
        let uri = DeviceUri::parse("double:0").unwrap();
        DeviceInfo {
            uri,
            name: "Double".into(),
            driver: "double",
            arch: "aie2p".into(),
            coherent: true,
            host_import: true,
        }
    }

    fn device() -> MockDevice {
        let arch = crate::ArchRegistry::builtin().get("aie2p").unwrap();
        let mut device = MockDevice::new();
        device.expect_limits().return_const(Limits::from_arch(&arch));
        device.expect_info().return_const(info());
        device
    }

    /// Memory that outlives the test, as a double's slice has to.
    fn memory(size: usize) -> &'static [AtomicU8] {
        Box::leak((0..size).map(|_| AtomicU8::new(0)).collect())
    }

    fn buffer(address: u64) -> MockBuffer {
        let mut buffer = MockBuffer::new();
        buffer.expect_size().return_const(16_usize);
        buffer.expect_device_address().return_const(address);
        buffer
    }

    #[test]
    fn a_submission_reaches_the_doubles_through_the_validation_layer() {
        let mut device = device();
        device.expect_allocate().times(1).returning(|_| Ok(Arc::new(buffer(0x1000))));
        device.expect_create_semaphore().with(eq(0)).times(1).returning(|_| {
            let mut semaphore = MockSemaphore::new();
            semaphore.expect_query().returning(|| Ok(0));
            Ok(Arc::new(semaphore))
        });
        device.expect_create_queue().times(1).returning(|| {
            let mut queue = MockQueue::new();
            let as_expected = |s: &Submission| s.commands.as_ref().is_some_and(|c| c.commands().len() == 1);
            queue.expect_submit().withf(as_expected).times(1).returning(|_| Ok(()));
            queue.expect_idle().times(1).returning(|| Ok(()));
            queue.expect_wait_idle().with(eq(None)).times(1).returning(|_| Ok(()));
            queue.expect_flush().times(1).returning(|| Err(DeviceError::Lost("gone".into())));
            Ok(Arc::new(queue))
        });
        let device = wrap_device(Arc::new(device));
        let buffer = device.allocate(&BufferParams::data(16)).unwrap();
        let mut list = CommandList::builder();
        list.fill(&[1], BufferRef::direct(&buffer, 0, 16)).unwrap();
        let signals = vec![TimelinePoint { semaphore: device.create_semaphore(0).unwrap(), value: 1 }];
        let queue = device.create_queue().unwrap();
        let commands = Some(Arc::new(list.finish()));
        queue.submit(Submission { commands, signals, ..Submission::default() }).unwrap();
        futures::executor::block_on(queue.idle()).unwrap();
        queue.wait_idle(None).unwrap();
        assert_eq!(queue.flush(), Err(DeviceError::Lost("gone".into())));
        assert_eq!(queue.submit(Submission::default()).unwrap_err().to_string(), "device lost: gone");
    }

    #[test]
    fn a_driver_can_be_made_to_fail() {
        let mut driver = MockDriver::new();
        driver.expect_scheme().return_const("double");
        driver.expect_enumerate().returning(|| Err(DriverError::Runtime("no library".into())));
        driver.expect_open().times(1).returning(|_| Ok(vec![Arc::new(device())]));
        let driver = wrap_driver(Arc::new(driver));
        assert!(driver.enumerate().is_err());
        let devices = driver.open(&DeviceUri::parse("double:0").unwrap()).unwrap();
        assert_eq!(devices[0].info().name, "Double");
    }

    #[test]
    fn a_buffer_hands_out_the_memory_it_was_given() {
        let bytes = memory(4);
        let mut buffer = buffer(0);
        buffer.expect_map().with(eq(0..4)).times(1).returning(|_| Ok(bytes));
        buffer.expect_write().withf(|offset, source| (*offset, source) == (2, &[7])).returning(|offset, source| {
            bytes[offset].store(source[0], Ordering::Relaxed);
            Ok(())
        });
        let buffer: Arc<dyn Buffer> = Arc::new(buffer);
        buffer.write(2, &[7]).unwrap();
        assert_eq!(buffer.map(0..4).unwrap()[2].load(Ordering::Relaxed), 7);
        assert!(buffer.as_any().is::<MockBuffer>());
    }

    #[test]
    fn an_executor_prepares_a_kernel() {
        let mut executor = MockKernelExecutor::new();
        executor.expect_prepare().times(1).returning(|_| {
            let mut kernel = MockKernel::new();
            kernel.expect_name().return_const("negate".to_owned());
            kernel.expect_run().returning(|inputs, output| {
                output[0] = !inputs[0][0];
                Ok(())
            });
            Ok(Arc::new(kernel))
        });
        let instructions =
            crate::format::instructions::InstructionWriter::new(crate::format::instructions::Header::aie2p(1));
        let pdi = crate::format::reference::wrap(b"negate").unwrap();
        let artifact = KernelArtifact::new("negate", "aie2p", 4, pdi, instructions.finish().unwrap()).unwrap();
        let mut executable = MockExecutable::new();
        executable.expect_artifact().return_const(artifact);
        let executable: Arc<dyn Executable> = Arc::new(executable);
        let kernel = executor.prepare(executable.artifact()).unwrap();
        let mut output = [0];
        kernel.run(&[&[0x0f]], &mut output).unwrap();
        assert_eq!((kernel.name(), output), ("negate", [0xf0]));
    }
}
