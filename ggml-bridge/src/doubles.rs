//! What the tests of error paths share: doubles of a device whose calls fail on demand, and a graph for it.

use crate::config::Config;
use crate::memory::host_memory::HostSpan;
use crate::plan::context::DeviceContext;
use crate::plan::graph::{Graph, GraphError, GraphNode, GraphSource, TensorView};
use aie_hal::mock::{MockBuffer, MockDevice};
use aie_hal::{Buffer, Counters, DeviceError, MemoryReport};
use aie_jit_iron::{JitPolicy, KernelStore};
use aie_ops::compiler::ReferenceCompiler;
use aie_ops::{DataType, OpParams, Tensor};
use std::sync::Arc;

/// The device has no memory left.
pub fn out_of_memory() -> DeviceError {
    DeviceError::OutOfMemory { pool: "data", requested: 2, available: 1, capacity: 1 }
}

/// The device is gone.
pub fn lost() -> DeviceError {
    DeviceError::Lost("unplugged".into())
}

/// A device that knows who it is, and nothing else.
pub fn device() -> MockDevice {
    let mut device = MockDevice::identified("double:0");
    device.expect_memory().return_const(MemoryReport { total: 1 << 30, free: 1 << 30 });
    device.expect_counters().return_const(Counters::default());
    device
}

/// A coherent buffer with memory, which lives forever.
pub fn coherent(size: usize) -> Arc<dyn Buffer> {
    let mut buffer = MockBuffer::with_memory(size);
    buffer.expect_flush().returning(|_| Ok(()));
    buffer.expect_invalidate().returning(|_| Ok(()));
    Arc::new(buffer)
}

/// A store that makes reference kernels at once.
pub fn store() -> Arc<KernelStore> {
    Arc::new(KernelStore::builder().policy(JitPolicy::Eager).compiler(Arc::new(ReferenceCompiler)).build().unwrap())
}

/// What plans and streams on `device` share.
pub fn context(device: MockDevice) -> Arc<DeviceContext> {
    Arc::new(DeviceContext::new(0, Arc::new(device), store(), &Config::default()))
}

/// A tensor in `buffer`, which becomes one of ggml's.
pub fn view(context: &DeviceContext, buffer: Arc<dyn Buffer>, dtype: DataType, ne: [usize; 4]) -> TensorView {
    let tensor = Tensor::contiguous(dtype, ne);
    let base = buffer.map(0..buffer.size()).unwrap().as_ptr().expose_provenance();
    context.buffers.insert(base, buffer);
    // SAFETY: the buffer's memory is as long and lives forever.
    let span = unsafe { HostSpan::new(base, tensor.span_bytes()) };
    TensorView::plain(base, tensor, span)
}

/// A graph with one node.
pub struct OneNode(pub GraphNode);

impl OneNode {
    /// A copy, which runs on the CPU.
    pub fn copy(context: &DeviceContext, from: Arc<dyn Buffer>, to: Arc<dyn Buffer>) -> Self {
        let [source, output] = [from, to].map(|buffer| view(context, buffer, DataType::F32, [16, 1, 1, 1]));
        Self::new("CONT", output, &[source])
    }

    /// A product of f16 weights, which become bf16 for the array.
    pub fn product(context: &DeviceContext) -> Self {
        let of = |dtype, ne| view(context, coherent(1 << 16), dtype, ne);
        let weights = TensorView { weights: true, ..of(DataType::F16, [64, 32, 1, 1]) };
        let output = of(DataType::F32, [32, 4, 1, 1]);
        Self::new("MUL_MAT", output, &[weights, of(DataType::F32, [64, 4, 1, 1])])
    }

    fn new(op: &'static str, output: TensorView, sources: &[TensorView]) -> Self {
        let sources = sources.iter().copied().map(Some).collect();
        Self(GraphNode::new(op, OpParams::default(), output, sources))
    }
}

impl GraphSource for OneNode {
    fn read(&self) -> Result<Graph, GraphError> {
        Ok(Graph { nodes: vec![self.0.clone()] })
    }

    fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool {
        word(self.0.output.span.address() as u64)
    }
}
