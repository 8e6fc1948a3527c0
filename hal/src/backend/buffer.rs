//! Buffers of an open device.

use super::{DeviceBackend, DeviceMemory as _};
use crate::buffer::{Buffer, MemoryPool};
use crate::error::DeviceError;
use aie_device_memory::{Span, WritableSpan};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// A buffer of the device `B`.
#[derive(Debug)]
pub struct DeviceBuffer<B: DeviceBackend> {
    pub(super) memory: B::Memory,
    pub(super) pool: MemoryPool,
    pub(super) device: Arc<B>,
    /// Bytes in the device's account; 0 for imported memory.
    pub(super) accounted: usize,
}

impl<B: DeviceBackend> Drop for DeviceBuffer<B> {
    fn drop(&mut self) {
        self.device.state().release(self.pool, self.accounted);
    }
}

impl<B: DeviceBackend> DeviceBuffer<B> {
    fn out_of_range(&self, range: impl std::fmt::Display) -> DeviceError {
        DeviceError::InvalidArgument(format!("range {range} leaves the buffer of {} bytes", self.size()))
    }

    /// A checked range of the host's view.
    pub(super) fn span(&self, offset: usize, length: usize) -> Result<Span<'_>, DeviceError> {
        self.memory.host().span(offset, length).ok_or_else(|| self.out_of_range(format_args!("{offset}+{length}")))
    }

    /// A checked range of the device's view.
    pub(super) fn device_span(&self, offset: usize, length: usize) -> Result<Span<'_>, DeviceError> {
        self.memory.device_span(offset, length).ok_or_else(|| self.out_of_range(format_args!("{offset}+{length}")))
    }

    /// A range for writing.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] when the buffer's memory may only be read.
    pub(super) fn writable<'s>(&self, span: Span<'s>) -> Result<WritableSpan<'s>, DeviceError> {
        let refused =
            || format!("the memory of the buffer of {} bytes may only be read, as that of a mapped file", self.size());
        span.writable().ok_or_else(|| DeviceError::InvalidArgument(refused()))
    }

    /// A range as kernels see it.
    pub(super) fn device_range(&self, offset: usize, length: usize) -> Range<u64> {
        let start = self.memory.device_address() + offset as u64;
        start..start + length as u64
    }

    fn check(&self, range: &Range<usize>) -> Result<(), DeviceError> {
        if range.start <= range.end && range.end <= self.size() {
            return Ok(());
        }
        Err(self.out_of_range(format_args!("{}..{}", range.start, range.end)))
    }
}

impl<B: DeviceBackend> Buffer for DeviceBuffer<B> {
    fn size(&self) -> usize {
        self.memory.host().length()
    }

    fn pool(&self) -> MemoryPool {
        self.pool
    }

    fn device_address(&self) -> u64 {
        self.memory.device_address()
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        self.check(&range)?;
        let bytes = self.memory.host().bytes().ok_or_else(|| {
            DeviceError::Unsupported("mapping memory that may only be read; `Buffer::read` copies from it".into())
        })?;
        Ok(&bytes[range])
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.span(offset, target.len())?.read(target);
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        self.writable(self.span(offset, source.len())?)?.write(source);
        Ok(())
    }

    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(&range)?;
        self.device.state().count(|counters| counters.bytes_flushed += range.len() as u64);
        self.device.flush(&self.memory, range);
        Ok(())
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(&range)?;
        self.device.state().count(|counters| counters.bytes_invalidated += range.len() as u64);
        self.device.invalidate(&self.memory, range);
        Ok(())
    }

    fn invalidate_written(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.check(&range)?;
        if !self.device.state().info.coherent {
            let bytes = self.device.invalidate_written(&self.memory, range);
            self.device.state().count(|counters| counters.bytes_invalidated += bytes);
        }
        Ok(())
    }
}
