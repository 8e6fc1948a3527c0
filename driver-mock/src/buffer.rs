//! Buffers: the host's view, and on a non-coherent device a separate one for the device.
//!
//! On a coherent device both views are the same bytes. Otherwise they are two pieces of memory, and only flush, invalidate and
//! the queue's own synchronisation around host calls copy between them. A forgotten flush therefore gives old data, always.

use crate::device::DeviceShared;
use aie_device_memory::{Region, Span};
use aie_hal::buffer::{Buffer, MemoryPool};
use aie_hal::error::DeviceError;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The device's view where it is not the host's.
#[derive(Debug, Clone)]
pub(crate) struct DeviceView {
    pub(crate) region: Arc<Region>,
    /// Where the buffer starts in it.
    pub(crate) offset: usize,
}

/// A buffer of the simulated device.
pub(crate) struct MockBuffer {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) pool: MemoryPool,
    pub(crate) host: Region,
    /// `None` on a coherent device: there the host's view is also the device's.
    pub(crate) view: Option<DeviceView>,
    pub(crate) device_address: u64,
    /// Bytes accounted in the pool; 0 for imported memory.
    pub(crate) charged: usize,
}

impl Debug for MockBuffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockBuffer")
            .field("device", &self.device.name())
            .field("pool", &self.pool)
            .field("address", &format_args!("{:#x}", self.device_address))
            .field("size", &self.host.length())
            .finish()
    }
}

impl Drop for MockBuffer {
    fn drop(&mut self) {
        if self.charged > 0 {
            self.device.release(self.pool, self.charged, self.device_address);
        }
    }
}

fn out_of_range(offset: usize, length: usize, size: usize) -> DeviceError {
    DeviceError::InvalidArgument(format!("range {offset}+{length} leaves the buffer of {size} bytes"))
}

impl MockBuffer {
    /// A range of the host's view.
    pub(crate) fn host_span(&self, offset: usize, length: usize) -> Result<Span<'_>, DeviceError> {
        self.host.span(offset, length).ok_or_else(|| out_of_range(offset, length, self.host.length()))
    }

    /// A range of the device's view.
    pub(crate) fn device_span(&self, offset: usize, length: usize) -> Result<Span<'_>, DeviceError> {
        match &self.view {
            None => self.host_span(offset, length),
            // The view may belong to a larger import, so this buffer's own bounds come first.
            Some(view) => self
                .host
                .span(offset, length)
                .and_then(|_| view.region.span(view.offset + offset, length))
                .ok_or_else(|| out_of_range(offset, length, self.host.length())),
        }
    }

    fn checked(&self, range: &Range<usize>) -> Result<usize, DeviceError> {
        match range.end.checked_sub(range.start) {
            Some(length) if range.end <= self.host.length() => Ok(length),
            _ => Err(DeviceError::InvalidArgument(format!(
                "range {}..{} leaves the buffer of {} bytes",
                range.start,
                range.end,
                self.host.length()
            ))),
        }
    }

    /// Copies the host's view to the device's.
    pub(crate) fn host_to_device(&self, offset: usize, length: usize) -> Result<(), DeviceError> {
        if self.view.is_some() {
            self.device_span(offset, length)?.copy_from(self.host_span(offset, length)?);
        }
        Ok(())
    }

    /// Copies the device's view to the host's. Memory that holds the same bytes already is not written: as with real
    /// caches, reading back what the device has not changed is possible for imports that are read-only, such as a mapped file.
    pub(crate) fn device_to_host(&self, offset: usize, length: usize) -> Result<(), DeviceError> {
        if self.view.is_some() {
            let (host, device) = (self.host_span(offset, length)?, self.device_span(offset, length)?);
            if !host.equals(device) {
                host.copy_from(device);
            }
        }
        Ok(())
    }
}

impl Buffer for MockBuffer {
    fn size(&self) -> usize {
        self.host.length()
    }

    fn pool(&self) -> MemoryPool {
        self.pool
    }

    fn device_address(&self) -> u64 {
        self.device_address
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        self.checked(&range)?;
        Ok(&self.host.bytes()[range])
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.host_span(offset, target.len())?.read(target);
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        self.host_span(offset, source.len())?.write(source);
        Ok(())
    }

    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError> {
        let length = self.checked(&range)?;
        self.device.counters.bytes_flushed.fetch_add(length as u64, Ordering::Relaxed);
        if self.device.faults.sync() {
            return Ok(());
        }
        self.host_to_device(range.start, length)
    }

    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError> {
        let length = self.checked(&range)?;
        self.device.counters.bytes_invalidated.fetch_add(length as u64, Ordering::Relaxed);
        if self.device.faults.sync() {
            return Ok(());
        }
        self.device_to_host(range.start, length)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
