//! What plans and streams of one device share: its memory, kernels, converted weights, counts and settings.

use crate::config::Config;
use crate::config::log;
use crate::kernels::Kernels;
use crate::kernels::foreseen::Foreseen;
use crate::kernels::kernel_store::only_plans;
use crate::kernels::selftest::gate::Gate;
use crate::memory::buffer_map::BufferMap;
use crate::memory::host_memory::{ALIGNMENT, HostSpan, TensorMemory};
use crate::memory::weights::WeightCache;
use crate::report::graph_file::GraphFile;
use crate::report::statistics::Statistics;
use aie_hal::{Buffer, BufferParams, Device, DeviceError, HostMemory};
use aie_jit_iron::KernelStore;
use aie_ops::normalise::normalise;
use aie_ops::{F16Policy, Node, Operation, Placement, table};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a model that are copied at once where it cannot be used in place.
const COPIED_AT_ONCE: usize = 1 << 24;

/// Bytes of buffers that were seen right on an NPU: above about 26 GB contents were damaged without an error, on one machine with XDNA 2
/// and Windows (Cyronius/ggml-xdna).
const SEEN_RIGHT: usize = 24 << 30;

/// An opened device with everything that is cached for it. Thread-safe.
pub struct DeviceContext {
    /// `HSA0`, `HSA1`, ...
    pub name: String,
    /// The device.
    pub hal: Arc<dyn Device>,
    /// What f16 becomes on the array.
    pub f16: F16Policy,
    /// Whether nodes may share a dispatch.
    pub fusion: bool,
    /// Whether neighbouring dispatches are to be executed as one where that is right.
    wants_joins: bool,
    /// Whether operations without a kernel run on the CPU inside our command lists.
    pub cpu_fallback: bool,
    /// Whether an operation that belongs on the array may not run on the CPU.
    pub require_array: bool,
    /// Loaded kernels.
    pub kernels: Kernels,
    /// What later graphs may have.
    pub foreseen: Foreseen,
    /// Buffers of ggml.
    pub buffers: BufferMap,
    /// Converted weights.
    pub weights: WeightCache,
    /// Counts.
    pub statistics: Statistics,
    /// Whether another backend computes results in our buffers.
    shares_results: AtomicBool,
    /// Whether layers are left to others.
    leaves_layers: AtomicBool,
    /// Whether the size of all buffers has been warned of.
    warned_of_size: AtomicBool,
    /// Whether graphs are planned and never run.
    pub only_plans: bool,
    /// What gets the graphs.
    pub graphs: Option<Arc<GraphFile>>,
    /// What tests the NPU.
    gate: Option<Arc<Gate>>,
    /// Whether memory of the program is used in place, once that is known.
    imports: OnceLock<bool>,
    /// The same of neighbouring dispatches that are executed as one.
    joins: OnceLock<bool>,
}

impl DeviceContext {
    /// Number `index` of the devices of this process, as `config` wants it.
    pub fn new(index: usize, hal: Arc<dyn Device>, store: Arc<KernelStore>, config: &Config) -> Self {
        Self {
            name: format!("HSA{index}"),
            f16: config.f16,
            fusion: !config.apart,
            wants_joins: !config.unjoined,
            cpu_fallback: config.cpu_fallback,
            require_array: config.require_array,
            kernels: Kernels::new(store, Arc::clone(&hal)),
            foreseen: Foreseen::default(),
            buffers: BufferMap::default(),
            weights: WeightCache::new(config.weights_max.unwrap_or(hal.memory().total / 2)),
            statistics: Statistics::default(),
            shares_results: AtomicBool::new(false),
            leaves_layers: AtomicBool::new(false),
            warned_of_size: AtomicBool::new(false),
            only_plans: only_plans(&*hal),
            graphs: None,
            gate: None,
            imports: OnceLock::new(),
            joins: OnceLock::new(),
            hal,
        }
    }

    /// The same on an NPU that is tested.
    #[must_use]
    pub fn with_gate(self, gate: Option<Arc<Gate>>) -> Self {
        Self { gate, ..self }
    }

    /// The same for plans that nothing runs: addresses need no memory behind them.
    #[must_use]
    pub fn on_paper(self) -> Self {
        Self { only_plans: true, ..self }
    }

    /// The same with a file that gets its graphs.
    #[must_use]
    pub fn with_graphs(self, graphs: Option<Arc<GraphFile>>) -> Self {
        Self { graphs, ..self }
    }

    /// Whether memory of the program is used in place: where the device can, and on an NPU what it then reads is right. The first to
    /// ask waits for its self-test.
    pub fn imports(&self) -> bool {
        let is_right = || self.gate.as_ref().is_none_or(|gate| gate.admits_imports());
        *self.imports.get_or_init(|| self.hal.info().import_obstacle.is_none() && is_right())
    }

    /// Whether neighbouring dispatches may be executed as one: where the settings say so, and on an NPU what such dispatches compute is
    /// right. The first to ask waits for its self-test.
    pub fn joins(&self) -> bool {
        let is_right = || self.gate.as_ref().is_none_or(|gate| gate.admits_joins());
        self.wants_joins && *self.joins.get_or_init(is_right)
    }

    /// Whether a graph with `node` can be computed. Decided by rules; nothing is compiled or allocated while it is asked. When
    /// operations without a kernel are not to run on the CPU, it is decided by what kernels there are too.
    pub fn supports(&self, node: &Node) -> bool {
        let rejection = self.rejection(node);
        if let Err(reason) = &rejection {
            log::info(|| format!("{}: not supported: {reason}", self.name));
            return false;
        }
        self.foreseen.note(node);
        true
    }

    /// Why a graph with `node` cannot be computed.
    fn rejection(&self, node: &Node) -> Result<(), String> {
        let op = table::lookup(&node.op).ok_or_else(|| format!("{} is not in the table", node.op))?;
        let largest = self.hal.limits().max_buffer_bytes;
        for tensor in node.arguments() {
            tensor.validate().map_err(|reason| format!("{}: {reason}", node.op))?;
            if tensor.span_bytes() > largest {
                return Err(format!("{}: {} bytes, a buffer has at most {largest}", node.op, tensor.span_bytes()));
            }
        }
        op.check(node).map_err(|cause| cause.to_string())?;
        if self.cpu_fallback { Ok(()) } else { self.kernel_rejection(op, node) }
    }

    /// Why `node` would run on the CPU.
    fn kernel_rejection(&self, op: &dyn Operation, node: &Node) -> Result<(), String> {
        if let Placement::Host(reason) = op.placement(node) {
            return Err(format!("{}: {reason}; GGML_HSA_CPU_FALLBACK is off", node.op));
        }
        if self.require_array {
            // Left to llama.cpp it would run on the CPU unnoticed; here it fails when there is no kernel.
            return Ok(());
        }
        let normalised = normalise(op, node, self.f16).map_err(|cause| cause.to_string())?;
        if self.kernels.expected(op, &normalised.node) {
            return Ok(());
        }
        Err(format!("{}: there is no kernel yet; GGML_HSA_CPU_FALLBACK is off", node.op))
    }

    /// Notes that another backend computes a result at `address`. In one of our buffers, as views of a KV cache are, it then
    /// writes without telling us what. Returns whether this is the first such result.
    pub fn share_results(&self, address: usize) -> bool {
        let first =
            self.buffers.contains(&(address..address + 1)) && !self.shares_results.swap(true, Ordering::Relaxed);
        if first {
            log::info(|| {
                format!("{}: another backend writes to its buffers; they are flushed before every graph", self.name)
            });
        }
        first
    }

    /// Whether only this device computes results in its buffers, as far as is known.
    pub fn writes_all_results(&self) -> bool {
        !self.shares_results.load(Ordering::Relaxed)
    }

    /// Notes that a node is part of a layer whose weights are in memory of others.
    pub fn leave_layer(&self) {
        if !self.leaves_layers.swap(true, Ordering::Relaxed) {
            log::info(|| format!("{}: layers with weights in other memory are left to it", self.name));
        }
    }

    /// Whether there are such layers. Then the lookup of embeddings before the first layer, too, is better left to others: alone on
    /// this device it would be a split of its own. A model's graphs are planned by llama.cpp before the first is computed, so this is
    /// known then.
    pub fn leaves_layers(&self) -> bool {
        self.leaves_layers.load(Ordering::Relaxed)
    }

    /// Allocates a zeroed buffer for ggml. Returns it with the address of its host view.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn allocate(&self, size: usize) -> Result<(usize, Arc<dyn Buffer>), DeviceError> {
        let params = BufferParams { alignment: ALIGNMENT, ..BufferParams::data(size) };
        let buffer = self.hal.allocate(&params)?;
        let base = buffer.map(0..size).map(|bytes: &[AtomicU8]| bytes.as_ptr().expose_provenance())?;
        self.buffers.insert(base, Arc::clone(&buffer));
        self.warn_of_size(self.buffers.bytes());
        Ok((base, buffer))
    }

    /// Warns once of more memory than was seen right. Returns whether it has.
    fn warn_of_size(&self, bytes: usize) -> bool {
        let warns = bytes > SEEN_RIGHT && !self.warned_of_size.swap(true, Ordering::Relaxed);
        if warns {
            log::notice(&format!(
                "{}: {bytes} bytes of buffers; with more than 26 GB an NPU of another system had wrong contents without an error. If the \
                 output makes no sense, leave layers on the CPU (-ngl)",
                self.name
            ));
        }
        warns
    }

    /// Makes memory of the program usable in place, as a buffer that starts at its address. ggml vouches for `memory` until
    /// it frees the buffer. Where the device cannot, after all, the buffer is a copy that starts at the same address: llama.cpp has no
    /// other way for a model that it was told it can hand over.
    ///
    /// # Errors
    /// As [`Device::allocate`], with why it cannot be used in place.
    pub fn import(&self, memory: HostSpan) -> Result<Arc<dyn Buffer>, DeviceError> {
        let buffer =
            self.hal.import(Arc::new(TensorMemory::as_mapped(memory))).or_else(|cause| self.copy(memory, &cause))?;
        self.buffers.insert(memory.address(), Arc::clone(&buffer));
        self.warn_of_size(self.buffers.bytes());
        Ok(buffer)
    }

    /// A buffer with what `memory` holds now, which cannot be used in place because of `cause`.
    fn copy(&self, memory: HostSpan, cause: &DeviceError) -> Result<Arc<dyn Buffer>, DeviceError> {
        if matches!(cause, DeviceError::Lost(_)) {
            return Err(cause.clone());
        }
        let length = memory.length();
        log::notice(&format!(
            "{}: {length} bytes are copied, because they cannot be used in place: {cause}",
            self.name
        ));
        let params = BufferParams { alignment: ALIGNMENT, ..BufferParams::data(length) };
        let buffer = self.hal.allocate(&params)?;
        let source = TensorMemory::of_graph(memory, false);
        // In pieces, so that the model is not in memory a third time.
        let mut piece = vec![0; length.min(COPIED_AT_ONCE)];
        for offset in (0..length).step_by(COPIED_AT_ONCE) {
            let piece = &mut piece[..(length - offset).min(COPIED_AT_ONCE)];
            if let Some(part) = source.span().part(offset..offset + piece.len()) {
                part.read(piece);
            }
            buffer.write(offset, piece)?;
        }
        buffer.flush(0..length)?;
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubles;

    #[test]
    fn more_memory_than_was_seen_right_is_said_once() {
        let context = doubles::context(doubles::device());
        let said = [1 << 20, SEEN_RIGHT, SEEN_RIGHT + 1, SEEN_RIGHT + 2].map(|bytes| context.warn_of_size(bytes));
        assert_eq!(said, [false, false, true, false]);
    }
}
