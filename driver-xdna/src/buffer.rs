//! Buffers of an NPU.
//!
//! NPU memory is coarse-grained, and the kernel driver's mappings are cached. The runtime writes back and invalidates the
//! cache lines of every argument before and after each chain (ROCR's XDNA driver does so for each packet), and the
//! array sees memory only as arguments. So the two views agree whenever a chain starts or has ended, and flush and invalidate
//! have nothing left to do but to check and to count.

use crate::device::DeviceShared;
use crate::pool::Block;
use aie_device_memory::Span;
use aie_hal::buffer::{Buffer, MemoryPool};
use aie_hal::error::DeviceError;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A buffer of a real NPU.
#[derive(Debug)]
pub(crate) struct XdnaBuffer {
    pub(crate) block: Block,
    pub(crate) pool: MemoryPool,
    pub(crate) device: Arc<DeviceShared>,
    /// Bytes in the device's account.
    pub(crate) accounted: usize,
}

impl Drop for XdnaBuffer {
    fn drop(&mut self) {
        self.device.counters.allocated.fetch_sub(self.accounted as u64, Ordering::Relaxed);
        if self.pool == MemoryPool::Data {
            self.device.used.fetch_sub(self.accounted, Ordering::Relaxed);
        }
    }
}

impl XdnaBuffer {
    /// A checked range.
    pub(crate) fn span(&self, offset: usize, length: usize) -> Result<Span<'_>, DeviceError> {
        self.block.region.span(offset, length).ok_or_else(|| {
            DeviceError::InvalidArgument(format!("range {offset}+{length} leaves the buffer of {} bytes", self.size()))
        })
    }

    fn checked(&self, range: &Range<usize>) -> Result<u64, DeviceError> {
        match range.end.checked_sub(range.start) {
            Some(length) if range.end <= self.size() => Ok(length as u64),
            _ => Err(DeviceError::InvalidArgument(format!(
                "range {}..{} leaves the buffer of {} bytes",
                range.start,
                range.end,
                self.size()
            ))),
        }
    }
}

impl Buffer for XdnaBuffer {
    fn size(&self) -> usize {
        self.block.region.length()
    }

    fn pool(&self) -> MemoryPool {
        self.pool
    }

    fn device_address(&self) -> u64 {
        self.block.device_address
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        self.checked(&range)?;
        Ok(&self.block.region.bytes()[range])
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.span(offset, target.len())?.read(target);
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        self.span(offset, source.len())?.write(source);
        Ok(())
    }

    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        let length = self.checked(&range)?;
        self.device.counters.bytes_flushed.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        let length = self.checked(&range)?;
        self.device.counters.bytes_invalidated.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
