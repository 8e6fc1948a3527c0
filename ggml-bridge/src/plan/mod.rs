//! A graph as one command list, kept for the next time the same graph comes.
//!
//! Beside the commands a plan knows which host memory has to be flushed before each run, because the graph reads it
//! without having written it, and what has to be invalidated after, because dispatches wrote it. Weights are flushed once, when the plan is built.

mod arena;
mod build;
mod fusion;
mod hazard;
mod memory;
mod required;

use crate::graph::Graph;
use crate::npu::Npu;
use crate::ranges::RangeSet;
use crate::statistics::RunShare;
use aie_hal::{Buffer, CommandList, DeviceError};
use std::ops::Range;
use std::sync::Arc;

/// A range of a buffer.
#[derive(Debug, Clone)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: Arc<dyn Buffer>,
    /// Bytes.
    pub range: Range<usize>,
}

/// A recorded graph. Immutable.
#[derive(Debug)]
pub struct Plan {
    commands: Option<Arc<CommandList>>,
    scratch_bytes: usize,
    flush: Vec<BufferRange>,
    invalidate: Vec<BufferRange>,
    used: RangeSet,
    shared: bool,
    share: RunShare,
    weights_generation: u64,
    awaiting: Option<u64>,
}

impl Plan {
    /// Records `graph`.
    ///
    /// # Errors
    /// Which node cannot be computed and why.
    pub fn build(npu: &Npu, graph: &Graph) -> Result<Self, String> {
        build::build(npu, graph)
    }

    /// The commands; `None` when there is nothing to do.
    pub fn commands(&self) -> Option<&Arc<CommandList>> {
        self.commands.as_ref()
    }

    /// Scratch memory that slot 0 has to be bound to; 0 for none.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Whether the program may touch memory of the graph as soon as it believes the graph submitted, so that it has to be
    /// complete by then.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// What a run adds to the statistics.
    pub fn share(&self) -> &RunShare {
        &self.share
    }

    /// The state of the weight cache this plan was built on.
    pub fn weights_generation(&self) -> u64 {
        self.weights_generation
    }

    /// Whether kernels that this plan does without have been compiled since, by their number of `arrivals`.
    pub fn is_outdated(&self, arrivals: u64) -> bool {
        self.awaiting.is_some_and(|then| then != arrivals)
    }

    /// Whether the plan touches host memory in `range`.
    pub fn uses(&self, range: &Range<usize>) -> bool {
        self.used.overlaps(range)
    }

    /// Makes the inputs visible to the device.
    ///
    /// # Errors
    /// As [`Buffer::flush`].
    pub fn flush(&self) -> Result<(), DeviceError> {
        self.flush.iter().try_for_each(|part| part.buffer.flush(part.range.clone()))
    }

    /// Makes the results visible to the host.
    ///
    /// # Errors
    /// As [`Buffer::invalidate`].
    pub fn invalidate(&self) -> Result<(), DeviceError> {
        self.invalidate.iter().try_for_each(|part| part.buffer.invalidate(part.range.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::drivers;
    use crate::graph::{GraphNode, TensorView};
    use crate::host_memory::HostSpan;
    use aie_hal::ArchRegistry;
    use aie_jit_iron::{JitPolicy, KernelStore};
    use aie_ops::{DataType, OpParams, Tensor};

    fn npu() -> Npu {
        let device = drivers::mock(ArchRegistry::builtin()).open(&"mock:aie2p".parse().unwrap()).unwrap().remove(0);
        let store = KernelStore::builder().policy(JitPolicy::Off).build().unwrap();
        Npu::new(0, device, Arc::new(store), &Config::default())
    }

    /// A tensor in a buffer of its own.
    fn view(npu: &Npu, id: usize, dtype: DataType, ne: [usize; 4]) -> TensorView {
        let tensor = Tensor::contiguous(dtype, ne);
        let (base, _) = npu.allocate(tensor.span_bytes()).unwrap();
        // SAFETY: the buffer has these bytes, and lives as long as the NPU.
        let span = unsafe { HostSpan::new(base, tensor.span_bytes()) };
        TensorView { id, tensor, span, buffer: span, weights: false, input: false, view: false, read_once: false }
    }

    #[test]
    fn of_a_cache_only_what_others_may_have_written_is_flushed() {
        let npu = npu();
        let rows = view(&npu, 0, DataType::F32, [64, 2, 1, 1]);
        let places = view(&npu, 1, DataType::I64, [2, 1, 1, 1]);
        let cache = view(&npu, 2, DataType::F16, [64, 1024, 1, 1]);
        let output = TensorView { id: 3, view: true, ..cache };
        let flushed = |cache: TensorView| {
            let sources = vec![Some(rows), Some(places), Some(cache)];
            let (name, params) = (String::new(), OpParams::default());
            let node = GraphNode { name, op: "SET_ROWS", params, output, further_outputs: Vec::new(), sources };
            let plan = Plan::build(&npu, &Graph { nodes: vec![node] }).unwrap();
            plan.flush.iter().map(|part| part.range.len()).sum::<usize>()
        };
        let inputs = rows.span.length() + places.span.length();
        assert_eq!(flushed(cache), inputs);
        npu.left_to_others(usize::MAX - 1);
        assert_eq!(flushed(cache), inputs, "an address that is not in our buffers");
        npu.left_to_others(cache.span.address() + 8);
        assert_eq!(flushed(cache), inputs + cache.span.length());
    }
}
