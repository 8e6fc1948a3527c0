//! Plans on paper, of graphs that llama.cpp has built.

use super::paper::{PaperBuffer, PaperDevice};
use crate::llama_cpp::{Batch, Graph};
use aie_hal::{CommandList, Device};
use aie_jit_iron::KernelStore;
use ggml_hsa::config::Config;
use ggml_hsa::memory::ranges::RangeSet;
use ggml_hsa::plan::context::DeviceContext;
use ggml_hsa::plan::graph::{Graph as Nodes, GraphNode};
use ggml_hsa::plan::{Plan, PlanError};
use ggml_hsa::report::statistics::RunShare;
use std::sync::Arc;

/// The plans of a batch, with what they were made from.
pub struct Planned {
    /// The batch.
    pub batch: Batch,
    /// Its graphs.
    pub graphs: Vec<Graph>,
    /// What would run for each of them.
    pub plans: Vec<Plan>,
    /// The device on paper, with what the plans counted.
    pub context: DeviceContext,
}

/// Plans `graphs`, those of `batch`, for a device like `device`, with kernels from `store`, which has to be one that foresees.
///
/// # Errors
/// As [`Plan::build`].
pub fn plan(
    batch: Batch,
    graphs: Vec<Graph>,
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    config: &Config,
) -> Result<Planned, PlanError> {
    let paper = Arc::new(PaperDevice::of(Arc::clone(device)));
    let context = DeviceContext::new(0, paper, Arc::clone(store), config).on_paper();
    for graph in &graphs {
        for (base, size) in &graph.buffers {
            context.buffers.insert(*base, Arc::new(PaperBuffer(*size)));
        }
        graph.foreseen.iter().for_each(|node| context.foreseen.note(node));
    }
    let build = |graph: &Graph| Plan::build(&context, &Nodes { nodes: graph.nodes.to_vec() });
    let plans = graphs.iter().map(build).collect::<Result<_, _>>()?;
    Ok(Planned { batch, graphs, plans, context })
}

impl Planned {
    /// What a run adds to the statistics.
    pub fn share(&self) -> RunShare {
        let mut sum = RunShare::default();
        self.plans.iter().for_each(|plan| sum.include(&plan.share));
        sum
    }

    /// What the queue is given, in order.
    pub fn lists(&self) -> Vec<&CommandList> {
        self.plans.iter().filter_map(|plan| plan.commands()).map(|list| &**list).collect()
    }

    fn nodes(&self) -> impl Iterator<Item = &GraphNode> {
        self.graphs.iter().flat_map(|graph| graph.nodes.iter())
    }

    /// Places of the cache that attention reads, in the layer that reads most; 0 without attention.
    pub fn keys(&self) -> usize {
        let keys = |node: &GraphNode| match (node.op, &node.sources[..]) {
            ("FLASH_ATTN_EXT", [_, Some(keys), ..]) => Some(keys.tensor.ne[1]),
            // With a mask; without one it can be the choice of experts.
            ("SOFT_MAX", [Some(scores), Some(_), ..]) => Some(scores.tensor.ne[0]),
            _ => None,
        };
        self.nodes().filter_map(keys).max().unwrap_or(0)
    }

    /// Bytes of the weights that are read.
    pub fn weights(&self) -> usize {
        let mut weights = RangeSet::default();
        let views = self.nodes().flat_map(GraphNode::inputs).filter(|view| view.weights);
        views.for_each(|view| weights.insert(view.span.range()));
        weights.iter().map(|range| range.len()).sum()
    }

    /// Bytes of the buffers with keys, values and states, which stay from graph to graph: those of the device in which only views are
    /// written.
    pub fn cache(&self) -> usize {
        let Some(graph) = self.graphs.first() else { return 0 };
        let is_in = |(base, size): (usize, usize), address: usize| (base..base + size).contains(&address);
        let is_cache = |buffer: &(usize, usize)| {
            let inside = |view: &&ggml_hsa::plan::graph::TensorView| is_in(*buffer, view.span.address());
            let mut written = self.nodes().flat_map(GraphNode::outputs).filter(inside).peekable();
            let mut weights = self.nodes().flat_map(GraphNode::inputs).filter(inside);
            written.peek().is_some() && written.all(|view| view.view) && !weights.any(|view| view.weights)
        };
        graph.buffers.iter().filter(|buffer| is_cache(buffer)).map(|(_, size)| size).sum()
    }
}
