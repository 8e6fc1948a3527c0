//! One device as ggml's registry has it: the streams that work on it, and host access that waits for them.

use crate::config::Config;
use crate::kernels::selftest::gate::Gate;
use crate::plan::context::DeviceContext;
use crate::plan::stream::Stream;
use crate::report::graph_file::GraphFile;
use aie_hal::{Buffer, Device, DeviceError, Queue};
use aie_jit_iron::KernelStore;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A device with its streams. Thread-safe.
pub struct BackendDevice {
    /// What its plans and streams share.
    pub context: Arc<DeviceContext>,
    /// For people.
    pub description: String,
    /// All streams share it: order comes from their timelines, and queues are scarce on the device.
    queue: Mutex<Option<Arc<dyn Queue>>>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

impl BackendDevice {
    /// Number `index` of the devices of this process, as `config` wants it. On an NPU `gate` says whether it imports right; `graphs`
    /// gets the graphs.
    pub fn new(
        index: usize,
        hal: Arc<dyn Device>,
        store: Arc<KernelStore>,
        gate: Option<Arc<Gate>>,
        graphs: Option<Arc<GraphFile>>,
        config: &Config,
    ) -> Self {
        let info = hal.info();
        let kind = if info.simulated { "Simulated NPU" } else { info.name.as_str() };
        Self {
            description: format!("{kind} ({})", info.arch),
            context: Arc::new(DeviceContext::new(index, hal, store, config).with_gate(gate).with_graphs(graphs)),
            queue: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    /// A new stream, whose work host access waits for. See [`Stream::new`].
    ///
    /// # Errors
    /// As [`Device::create_queue`] and [`Device::create_semaphore`].
    pub fn create_stream(&self, asynchronous: bool) -> Result<Arc<Stream>, DeviceError> {
        let queue = {
            let mut queue = self.queue.lock();
            match &*queue {
                Some(queue) => Arc::clone(queue),
                None => Arc::clone(queue.insert(self.context.hal.create_queue()?)),
            }
        };
        let stream = Arc::new(Stream::new(Arc::clone(&self.context), queue, asynchronous)?);
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        Ok(stream)
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for all work in flight and makes its results visible to the host.
    pub fn synchronize(&self) {
        self.streams().iter().for_each(|stream| stream.synchronize());
    }

    /// Records a node that this device does not compute, with its result at `address`.
    pub fn left_to_others(&self, address: usize) {
        if self.context.share_results(address) {
            self.streams().iter().for_each(|stream| stream.clear_plans());
        }
    }

    /// Takes a buffer back: waits for work that may use it, and drops what was derived from it.
    pub fn free(&self, base: usize, size: usize) {
        let range = base..base + size;
        for stream in self.streams() {
            stream.synchronize();
            stream.drop_plans(&range);
        }
        self.context.weights.drop_range(&range);
        self.context.buffers.remove(base);
    }

    /// Releases what is cached for later graphs: plans, converted weights, kernels, the queue. For the end of the process, when
    /// nothing of this is dropped on its own. Buffers that ggml has stay.
    pub fn release(&self) {
        for stream in self.streams() {
            stream.synchronize();
            stream.clear_plans();
        }
        self.context.weights.drop_range(&(0..usize::MAX));
        self.context.kernels.clear();
        drop(self.queue.lock().take());
    }

    /// Writes from the host, after all work in flight. A device that only plans needs no content, so that pages are not touched.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] when the range is not inside the buffer.
    pub fn write(&self, base: usize, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        if self.context.only_plans {
            return buffer.map(offset..offset.saturating_add(data.len())).map(drop);
        }
        self.synchronize();
        self.context.weights.drop_range(&(base + offset..base + offset.saturating_add(data.len())));
        buffer.write(offset, data)?;
        buffer.flush(offset..offset + data.len())
    }

    /// Reads on the host, after all work in flight. Errors as [`BackendDevice::write`].
    pub fn read(&self, buffer: &dyn Buffer, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronize();
        buffer.read(offset, target)
    }

    /// Fills from the host, after all work in flight. Errors as [`BackendDevice::write`].
    pub fn fill(&self, base: usize, buffer: &dyn Buffer, range: Range<usize>, value: u8) -> Result<(), DeviceError> {
        if self.context.only_plans {
            return buffer.map(range).map(drop);
        }
        self.synchronize();
        self.context.weights.drop_range(&(base + range.start..base + range.end));
        let chunk = vec![value; range.len().min(1 << 20)];
        let mut offset = range.start;
        while offset < range.end {
            let length = chunk.len().min(range.end - offset);
            buffer.write(offset, &chunk[..length])?;
            offset += length;
        }
        buffer.flush(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubles::{self, coherent, lost, out_of_memory};
    use aie_hal::mock::{MockBuffer, MockDevice, MockQueue, MockSemaphore};

    fn backend_device(hal: MockDevice) -> BackendDevice {
        BackendDevice::new(0, Arc::new(hal), doubles::store(), None, None, &Config::default())
    }

    #[test]
    fn a_queue_that_could_not_be_created_is_requested_again() {
        let mut hal = doubles::device();
        hal.expect_create_queue().times(1).returning(|| Err(lost()));
        hal.expect_create_queue().times(1).returning(|| Ok(Arc::new(MockQueue::new())));
        hal.expect_create_semaphore().times(2).returning(|_| Ok(Arc::new(MockSemaphore::new())));
        let device = backend_device(hal);
        assert_eq!(device.create_stream(true).err(), Some(lost()));
        // The two share the queue.
        let (_one, _two) = (device.create_stream(true).unwrap(), device.create_stream(true).unwrap());
    }

    #[test]
    fn memory_that_could_not_be_allocated_has_no_owner() {
        let mut hal = doubles::device();
        hal.expect_allocate().times(1).returning(|_| Err(out_of_memory()));
        hal.expect_allocate().times(1).returning(|params| Ok(coherent(params.size)));
        let device = backend_device(hal);
        let context = &device.context;
        assert_eq!(context.allocate(64).err(), Some(out_of_memory()));
        let (base, buffer) = context.allocate(64).unwrap();
        assert!(context.buffers.contains(&(base..base + 64)));
        device.free(base, buffer.size());
        assert!(!context.buffers.contains(&(base..base + 64)));
    }

    #[test]
    fn host_access_reports_what_a_lost_device_says() {
        let device = backend_device(doubles::device());
        let mut buffer = MockBuffer::with_memory(64);
        buffer.expect_flush().returning(|_| Err(lost()));
        assert_eq!(device.write(0, &buffer, 8, &[1; 8]), Err(lost()));
        assert_eq!(device.fill(0, &buffer, 0..64, 7), Err(lost()));
        let mut found = [0; 8];
        device.read(&buffer, 8, &mut found).unwrap();
        assert_eq!(found, [7; 8]);
    }
}
