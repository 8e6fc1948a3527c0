//! Doubles of the traits, made with mockall, for tests in which a whole simulated device would hide the point.
//!
//! Behind the feature `mock`, which only `dev-dependencies` should enable; this crate's own tests have them too. A call that was not expected panics, as mockall
//! does everywhere.
//!
//! One difference from the traits: `expect_map` of [`MockBuffer`] returns memory that lives forever (`Box::leak`), because
//! mockall cannot express a result that borrows from the double.
//!
//! [`MockDevice::identified`], [`MockBuffer::with_memory`] and [`MockExecutable::of`] have the expectations that most tests need.

use crate::arch::ArchRegistry;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, MemoryPool};
use crate::device::DeviceInfo;
use crate::error::DeviceError;
use crate::uri::DeviceUri;
use mockall::mock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::device::MockDevice;
pub use crate::driver::MockDriver;
pub use crate::executable::MockExecutable;
pub use crate::queue::MockQueue;
pub use crate::semaphore::MockSemaphore;

mock! {
    /// Double of [`crate::Buffer`].
    #[derive(Debug)]
    pub Buffer {}

    impl Buffer for Buffer {
        fn size(&self) -> usize;
        fn pool(&self) -> MemoryPool;
        fn device_address(&self) -> u64;
        fn map(&self, range: Range<usize>) -> Result<&'static [AtomicU8], DeviceError>;
        fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError>;
        fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError>;
        fn flush(&self, range: Range<usize>) -> Result<(), DeviceError>;
        fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError>;
        fn invalidate_written(&self, range: Range<usize>) -> Result<(), DeviceError>;
    }
}

impl MockDevice {
    /// The device of `uri`, of generation aie2p. It knows its identity, limits and generation, and nothing else.
    ///
    /// # Panics
    /// When `uri` is not one.
    pub fn identified(uri: &str) -> Self {
        let arch = ArchRegistry::builtin().get("aie2p").expect("a built-in generation");
        let uri = DeviceUri::parse(uri).expect("a device URI");
        let mut device = Self::new();
        device.expect_limits().return_const(arch.limits);
        device.expect_info().return_const(DeviceInfo {
            name: "Double".into(),
            driver: "double",
            simulated: false,
            uri,
            arch: arch.name.clone(),
            coherent: true,
            import_obstacle: None,
        });
        device.expect_arch().return_const(arch);
        device
    }

    /// Makes it load kernels.
    pub fn load_kernels(&mut self) {
        self.expect_load_executable().returning(|artifact| Ok(Arc::new(MockExecutable::of(artifact))));
    }
}

impl MockExecutable {
    /// A loaded `artifact`.
    pub fn of(artifact: &KernelArtifact) -> Self {
        let mut executable = Self::new();
        executable.expect_artifact().return_const(artifact.clone());
        executable
    }
}

impl MockBuffer {
    /// A buffer of `size` bytes of memory, which lives forever. Flush and invalidate are not expected yet.
    pub fn with_memory(size: usize) -> Self {
        let bytes: &'static [AtomicU8] = Box::leak((0..size).map(|_| AtomicU8::new(0)).collect());
        let mut buffer = Self::new();
        buffer.expect_size().return_const(size);
        buffer.expect_map().returning(move |range| Ok(&bytes[range]));
        buffer.expect_read().returning(move |offset, target| {
            let source = &bytes[offset..][..target.len()];
            target.iter_mut().zip(source).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
            Ok(())
        });
        buffer.expect_write().returning(move |offset, source| {
            let target = &bytes[offset..][..source.len()];
            source.iter().zip(target).for_each(|(from, to)| to.store(*from, Ordering::Relaxed));
            Ok(())
        });
        buffer
    }
}
