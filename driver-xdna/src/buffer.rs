//! Buffers of an NPU.
//!
//! NPU memory is coarse-grained, and the kernel driver's mappings are cached. ROCR writes back and invalidates the cache lines of
//! every argument before and after each packet; there flush and invalidate have nothing left to do but to check and to count. On
//! the direct way they do it, line by line: see [`coherence`](crate::coherence).

use crate::agent::Caches;
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
        self.device.npu.written.forget(self.device_range(0, self.size()));
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

    /// A range as the device sees it.
    pub(crate) fn device_range(&self, offset: usize, length: usize) -> Range<u64> {
        let start = self.block.device_address + offset as u64;
        start..start + length as u64
    }

    /// How cache lines are maintained, where the runtime does not do so.
    fn caches(&self) -> Option<&dyn Caches> {
        self.device.npu.agent.caches()
    }

    /// Makes what the NPU has written of a range visible to a host command.
    pub(crate) fn fetch(&self, offset: usize, length: usize) -> Result<(), DeviceError> {
        let Some(caches) = self.caches() else { return Ok(()) };
        let whole = self.span(offset, length)?;
        let mut bytes = 0;
        self.device.npu.written.take(&self.device_range(offset, length), |part| {
            bytes += part.len() as u64;
            if let Some(stale) = whole.part(part) {
                caches.invalidate(stale);
            }
        });
        self.device.counters.bytes_invalidated.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes what a host command has written visible to the NPU.
    pub(crate) fn publish(&self, offset: usize, length: usize) -> Result<(), DeviceError> {
        if let Some(caches) = self.caches() {
            caches.write_back(self.span(offset, length)?);
            self.device.counters.bytes_flushed.fetch_add(length as u64, Ordering::Relaxed);
        }
        Ok(())
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
        if let Some(caches) = self.caches() {
            caches.write_back(self.span(range.start, range.len())?);
        }
        self.device.counters.bytes_flushed.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        let length = self.checked(&range)?;
        if let Some(caches) = self.caches() {
            caches.invalidate(self.span(range.start, range.len())?);
            self.device.npu.written.forget(self.device_range(range.start, range.len()));
        }
        self.device.counters.bytes_invalidated.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
