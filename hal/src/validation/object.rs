//! Buffers, executables and semaphores: the objects that submissions refer to.

use super::Owner;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, MemoryPool};
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::semaphore::{Failure, Listener, ListenerId, Semaphore, WaitError};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ValidatedBuffer {
    pub(super) inner: Arc<dyn Buffer>,
    pub(super) owner: Arc<Owner>,
}

impl ValidatedBuffer {
    fn check(&self, start: usize, end: Option<usize>) -> Result<(), DeviceError> {
        let size = self.inner.size();
        match end {
            Some(end) if start <= end && end <= size => Ok(()),
            Some(end) => Err(DeviceError::InvalidArgument(format!(
                "range {start}..{end} is not inside the buffer of {size} bytes; ranges are relative to the buffer's start"
            ))),
            None => Err(DeviceError::InvalidArgument(format!(
                "a range at {start} ends beyond any address; the buffer has {size} bytes"
            ))),
        }
    }
}

impl Buffer for ValidatedBuffer {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn pool(&self) -> MemoryPool {
        self.inner.pool()
    }

    fn device_address(&self) -> u64 {
        self.inner.device_address()
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        self.check(range.start, Some(range.end))?;
        self.inner.map(range)
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, offset.checked_add(target.len()))?;
        self.inner.read(offset, target)
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, offset.checked_add(source.len()))?;
        self.inner.write(offset, source)
    }

    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(range.start, Some(range.end))?;
        self.inner.flush(range)
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(range.start, Some(range.end))?;
        self.inner.invalidate(range)
    }

    fn invalidate_written(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(range.start, Some(range.end))?;
        self.inner.invalidate_written(range)
    }
}

#[derive(Debug)]
pub(super) struct ValidatedExecutable {
    pub(super) inner: Arc<dyn Executable>,
    pub(super) owner: Arc<Owner>,
}

impl Executable for ValidatedExecutable {
    fn artifact(&self) -> &KernelArtifact {
        self.inner.artifact()
    }
}

/// Adds nothing but the owner: a semaphore checks its own values.
#[derive(Debug)]
pub(super) struct ValidatedSemaphore {
    pub(super) inner: Arc<dyn Semaphore>,
    pub(super) owner: Arc<Owner>,
}

#[async_trait]
impl Semaphore for ValidatedSemaphore {
    fn query(&self) -> Result<u64, Failure> {
        self.inner.query()
    }

    fn signal(&self, value: u64) -> Result<(), WaitError> {
        self.inner.signal(value)
    }

    fn fail(&self, cause: Failure) {
        self.inner.fail(cause);
    }

    fn poll(&self, value: u64) -> Result<bool, Failure> {
        self.inner.poll(value)
    }

    fn subscribe(&self, value: u64, listener: Listener) -> ListenerId {
        self.inner.subscribe(value, listener)
    }

    fn unsubscribe(&self, id: ListenerId) {
        self.inner.unsubscribe(id);
    }

    fn wait_blocking(&self, value: u64, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.inner.wait_blocking(value, timeout)
    }

    async fn wait(&self, value: u64) -> Result<(), WaitError> {
        self.inner.wait(value).await
    }
}
