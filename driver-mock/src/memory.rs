//! Memory of a buffer: the host's view, and on a non-coherent device a separate one for the device.
//!
//! On a coherent device both views are the same bytes. Otherwise they are two pieces of memory, and only flush, invalidate and
//! the queue's own synchronisation around host calls copy between them. A forgotten flush therefore gives old data, always.

use crate::npu::{Rejection, SimulatedNpu};
use aie_device_memory::{Region, Span};
use aie_hal::backend::DeviceMemory;
use std::ops::Range;
use std::sync::Arc;

/// A stretch of the device heap, released when dropped.
#[derive(Debug)]
pub(crate) struct HeapAllocation {
    npu: Arc<SimulatedNpu>,
    address: u64,
    /// Buffer descriptors that it writes, if a PDI is there.
    pub(crate) descriptors: u64,
}

impl HeapAllocation {
    pub(crate) fn new(npu: &Arc<SimulatedNpu>, bytes: usize, alignment: usize) -> Result<Self, Rejection> {
        Ok(Self { npu: Arc::clone(npu), address: npu.heap_allocate(bytes, alignment)?, descriptors: 0 })
    }
}

impl Drop for HeapAllocation {
    fn drop(&mut self) {
        self.npu.heap_free(self.address);
    }
}

/// The device's view where it is not the host's.
#[derive(Debug, Clone)]
pub(crate) struct DeviceView {
    pub(crate) region: Arc<Region>,
    /// Where the buffer starts in it.
    pub(crate) offset: usize,
}

impl DeviceView {
    pub(crate) fn of(region: Region) -> Self {
        Self { region: Arc::new(region), offset: 0 }
    }
}

/// Memory of a buffer of the simulated device.
#[derive(Debug)]
pub(crate) struct MockMemory {
    pub(crate) host: Region,
    /// `None` on a coherent device: there the host's view is also the device's.
    pub(crate) view: Option<DeviceView>,
    /// Its place in the device heap.
    pub(crate) heap: Option<HeapAllocation>,
}

impl DeviceMemory for MockMemory {
    fn host(&self) -> &Region {
        &self.host
    }

    fn device_address(&self) -> u64 {
        match (&self.heap, &self.view) {
            (Some(heap), _) => heap.address,
            (None, Some(view)) => (view.region.address() + view.offset) as u64,
            (None, None) => self.host.address() as u64,
        }
    }

    fn device_span(&self, offset: usize, length: usize) -> Option<Span<'_>> {
        let host = self.host.span(offset, length)?;
        match &self.view {
            None => Some(host),
            // The view may belong to a larger import; this buffer's own bounds were checked first.
            Some(view) => view.region.span(view.offset + offset, length),
        }
    }
}

impl MockMemory {
    /// The views of a range, host and device, where there are two.
    fn views(&self, range: Range<usize>) -> Option<(Span<'_>, Span<'_>)> {
        self.view.as_ref()?;
        Some((self.host.span(range.start, range.len())?, self.device_span(range.start, range.len())?))
    }

    /// Copies the host's view to the device's.
    pub(crate) fn host_to_device(&self, range: Range<usize>) {
        if let Some((host, device)) = self.views(range)
            && let Some(device) = device.writable()
        {
            device.copy_from(host);
        }
    }

    /// Copies the device's view to the host's, unless that may only be read.
    pub(crate) fn device_to_host(&self, range: Range<usize>) {
        if let Some((host, device)) = self.views(range)
            && let Some(host) = host.writable()
        {
            host.copy_from(device);
        }
    }
}
