//! Plans on paper.

use super::paper::{PaperBuffer, PaperDevice};
use crate::model::arena::{Arena, Place};
use crate::model::{Batch, Model, build};
use aie_hal::Device;
use aie_jit_iron::KernelStore;
use aie_ops::normalise::{Role, normalise};
use aie_ops::{Placement, table};
use ggml_hsa::config::Config;
use ggml_hsa::memory::weights::{Lookup, WeightKey};
use ggml_hsa::plan::context::DeviceContext;
use ggml_hsa::plan::graph::Graph;
use ggml_hsa::plan::{Plan, PlanError};
use std::sync::Arc;

/// A plan, with what it was made from.
pub struct Planned {
    /// The batch.
    pub batch: Batch,
    /// Its nodes.
    pub graph: Graph,
    /// The bytes of its tensors.
    pub arena: Arena,
    /// What would run.
    pub plan: Plan,
    /// The device on paper, with what the plan counted.
    pub context: DeviceContext,
}

/// Plans `batch` for a device like `device`, with kernels from `store`, which has to be one that foresees.
///
/// # Errors
/// As [`Plan::build`].
pub fn plan(
    model: &Model,
    batch: Batch,
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    config: &Config,
) -> Result<Planned, PlanError> {
    let (graph, arena) = build(model, batch);
    let paper = Arc::new(PaperDevice::of(Arc::clone(device)));
    let context = DeviceContext::new(0, paper, Arc::clone(store), config);
    for place in Place::ALL {
        context.buffers.insert(place.base(), Arc::new(PaperBuffer(arena.bytes(place).max(1))));
    }
    convert_weights(&context, &graph);
    let plan = Plan::build(&context, &graph)?;
    Ok(Planned { batch, graph, arena, plan, context })
}

/// Weights that the array reads in another type are converted once, when the first plan is made. On paper they have been.
fn convert_weights(context: &DeviceContext, graph: &Graph) {
    for graph_node in &graph.nodes {
        let node = graph_node.node();
        let Some(op) = table::lookup(graph_node.op) else { continue };
        if op.check(&node).is_err() || !matches!(op.placement(&node), Placement::Array) {
            continue;
        }
        let Ok(normalised) = normalise(op, &node, context.f16) else { continue };
        for argument in normalised.arguments.iter().filter(|argument| argument.conversion) {
            let Role::Source(slot) = argument.role else { continue };
            let Some(view) = graph_node.sources.get(slot).copied().flatten().filter(|view| view.weights) else {
                continue;
            };
            let key = WeightKey { address: view.span.address(), original: argument.original, array: argument.array };
            if matches!(context.weights.find(&key), Lookup::Missing) {
                context.weights.insert(key, Arc::new(PaperBuffer(argument.array.span_bytes())));
            }
        }
    }
}
