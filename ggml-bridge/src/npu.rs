//! One device as llama.cpp sees it: memory, weights, kernels, the streams that work on it, and the rules of access.

use crate::config::Config;
use crate::host_memory::{HostSpan, TensorMemory};
use crate::kernels::Kernels;
use crate::log;
use crate::memory::{BufferMap, Place};
use crate::statistics::Statistics;
use crate::stream::Stream;
use crate::weights::WeightCache;
use aie_hal::{Buffer, BufferParams, Device, DeviceError, Queue};
use aie_jit_iron::KernelStore;
use aie_ops::normalise::normalise;
use aie_ops::{F16Policy, Node, Operation, Placement, table};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

/// Alignment of tensors and buffers in bytes: a cache line, and no less than ggml's CPU kernels like.
pub const ALIGNMENT: usize = 64;

/// An opened device with everything that is kept for it. Thread-safe.
pub struct Npu {
    name: String,
    description: String,
    device: Arc<dyn Device>,
    f16: F16Policy,
    fusion: bool,
    cpu_fallback: bool,
    require_array: bool,
    kernels: Kernels,
    buffers: BufferMap,
    weights: WeightCache,
    statistics: Statistics,
    queue: Mutex<Option<Arc<dyn Queue>>>,
    streams: Mutex<Vec<Weak<Stream>>>,
    /// Whether another backend computes results in our buffers.
    shares_results: AtomicBool,
}

impl Npu {
    /// Number `index` of the devices of this process, as `config` wants it.
    pub fn new(index: usize, device: Arc<dyn Device>, store: Arc<KernelStore>, config: &Config) -> Self {
        let info = device.info();
        let kind = if info.driver == aie_driver_mock::SCHEME { "Simulated NPU" } else { info.name.as_str() };
        Self {
            name: format!("HSA{index}"),
            description: format!("{kind} ({})", info.arch),
            f16: config.f16,
            fusion: !config.apart,
            cpu_fallback: config.cpu_fallback,
            require_array: config.require_array,
            kernels: Kernels::new(store, Arc::clone(&device)),
            buffers: BufferMap::default(),
            weights: WeightCache::new(config.weights_max.unwrap_or(device.memory().total / 2)),
            statistics: Statistics::default(),
            queue: Mutex::default(),
            streams: Mutex::default(),
            shares_results: AtomicBool::new(false),
            device,
        }
    }

    /// `HSA0`, `HSA1`, ...
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What f16 becomes on the array.
    pub fn f16(&self) -> F16Policy {
        self.f16
    }

    /// Whether nodes may share a dispatch.
    pub fn fusion(&self) -> bool {
        self.fusion
    }

    /// Whether an operation that belongs on the array may not run on the host.
    pub fn requires_array(&self) -> bool {
        self.require_array
    }

    /// Loaded kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Converted weights.
    pub fn weights(&self) -> &WeightCache {
        &self.weights
    }

    /// Counts.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Whether a graph with `node` can be computed. Decided by rules; nothing is compiled or allocated while it is asked. When
    /// operations without a kernel are not to run on the host, it is decided by what kernels there are too.
    pub fn supports(&self, node: &Node) -> bool {
        let refusal = self.refusal(node);
        if let Some(reason) = &refusal {
            log::info(|| format!("{}: not supported: {reason}", self.name));
        }
        refusal.is_none()
    }

    /// Takes note of a node that this device does not compute, with its result at `address`. In one of our buffers, as views of a KV
    /// cache are, another backend then writes to it, and nobody tells what.
    pub fn left_to_others(&self, address: usize) {
        let own = self.find(&(address..address + 1)).is_some();
        if own && !self.shares_results.swap(true, Ordering::Relaxed) {
            log::info(|| {
                format!("{}: another backend writes to its buffers; they are flushed before every graph", self.name)
            });
            self.streams().iter().for_each(|stream| stream.forget_all());
        }
    }

    /// Whether nobody but this device computes results in its buffers, as far as was asked.
    pub fn writes_all_results(&self) -> bool {
        !self.shares_results.load(Ordering::Relaxed)
    }

    /// Why a graph with `node` cannot be computed.
    fn refusal(&self, node: &Node) -> Option<String> {
        let Some(op) = table::lookup(&node.op) else { return Some(format!("{} is not in the table", node.op)) };
        let largest = self.device.limits().max_buffer_bytes;
        for tensor in node.arguments() {
            if let Err(reason) = tensor.validate() {
                return Some(format!("{}: {reason}", node.op));
            }
            if tensor.span_bytes() > largest {
                return Some(format!("{}: {} bytes, a buffer has at most {largest}", node.op, tensor.span_bytes()));
            }
        }
        if let Err(cause) = op.check(node) {
            return Some(cause.to_string());
        }
        if self.cpu_fallback { None } else { self.kernel_refusal(op, node) }
    }

    /// Why `node` would run on the host.
    fn kernel_refusal(&self, op: &dyn Operation, node: &Node) -> Option<String> {
        if let Placement::Host(reason) = op.placement(node) {
            return Some(format!("{}: {reason}; GGML_HSA_CPU_FALLBACK is off", node.op));
        }
        if self.require_array {
            // Left to llama.cpp it would run on the host unseen; here it fails when there is no kernel.
            return None;
        }
        let normalised = match normalise(op, node, self.f16) {
            Ok(normalised) => normalised.node,
            Err(cause) => return Some(cause.to_string()),
        };
        let missing = !self.kernels.expected(op, &normalised);
        missing.then(|| format!("{}: there is no kernel yet; GGML_HSA_CPU_FALLBACK is off", node.op))
    }

    /// Allocates a zeroed buffer for ggml. Returns it with the address of its host view.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn allocate(&self, size: usize) -> Result<(usize, Arc<dyn Buffer>), DeviceError> {
        let params = BufferParams { alignment: ALIGNMENT, ..BufferParams::data(size) };
        let buffer = self.device.allocate(&params)?;
        let base = base_address(&*buffer)?;
        self.buffers.insert(base, Arc::clone(&buffer));
        Ok((base, buffer))
    }

    /// Makes memory of the program usable in place, as a buffer that starts at its address. ggml vouches for `memory` until
    /// it frees the buffer.
    ///
    /// # Errors
    /// As [`Device::import`].
    pub fn import(&self, memory: HostSpan) -> Result<Arc<dyn Buffer>, DeviceError> {
        let buffer = self.device.import(Arc::new(TensorMemory(memory)))?;
        self.buffers.insert(memory.address(), Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Takes a buffer back: waits for work that may use it, and forgets what was derived from it.
    pub fn release(&self, base: usize, size: usize) {
        let range = base..base + size;
        for stream in self.streams() {
            stream.settle();
            stream.forget(&range);
        }
        self.weights.drop_range(&range);
        self.buffers.remove(base);
    }

    /// Our buffer that holds all of `range`.
    pub fn find(&self, range: &Range<usize>) -> Option<Place> {
        self.buffers.find(range)
    }

    /// The queue that all streams share: order comes from their timelines, and queues are scarce on the device.
    ///
    /// # Errors
    /// As [`Device::create_queue`].
    pub fn queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        let mut queue = self.queue.lock();
        if let Some(queue) = &*queue {
            return Ok(Arc::clone(queue));
        }
        Ok(Arc::clone(queue.insert(self.device.create_queue()?)))
    }

    /// Adds a stream whose work host access has to wait for.
    pub fn add_stream(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for all work in flight and makes its results visible to the host.
    pub fn settle(&self) {
        self.streams().iter().for_each(|stream| stream.settle());
    }

    /// Gives back what is kept for later graphs: plans, converted weights, kernels, the queue. For the end of the process, when
    /// nothing of this is dropped by itself. Buffers that ggml has stay.
    pub fn let_go(&self) {
        for stream in self.streams() {
            stream.settle();
            stream.forget_all();
        }
        self.weights.drop_range(&(0..usize::MAX));
        self.kernels.clear();
        drop(self.queue.lock().take());
    }

    /// Writes from the host, after all work in flight.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] when the range is not inside the buffer.
    pub fn write(&self, base: usize, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.settle();
        self.weights.drop_range(&(base + offset..base + offset.saturating_add(data.len())));
        buffer.write(offset, data)?;
        buffer.flush(offset..offset + data.len())
    }

    /// Reads on the host, after all work in flight. Errors as [`Npu::write`].
    pub fn read(&self, buffer: &dyn Buffer, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        self.settle();
        buffer.read(offset, target)
    }

    /// Fills from the host, after all work in flight. Errors as [`Npu::write`].
    pub fn fill(&self, base: usize, buffer: &dyn Buffer, range: Range<usize>, value: u8) -> Result<(), DeviceError> {
        self.settle();
        self.weights.drop_range(&(base + range.start..base + range.end));
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

/// The address of a buffer's host view.
///
/// # Errors
/// As [`Buffer::map`].
pub fn base_address(buffer: &dyn Buffer) -> Result<usize, DeviceError> {
    buffer.map(0..buffer.size()).map(|bytes: &[AtomicU8]| bytes.as_ptr().expose_provenance())
}
