//! What is looked up for a node: its operation, its form on the array, the conversions between the two, and its kernel. It is
//! looked up once, for the decision about fusion, for recording and for the statistics.

use super::PlanError;
use super::hazard::overlap;
use crate::kernels::{HostReason, Kernel};
use crate::plan::context::DeviceContext;
use crate::plan::graph::{GraphNode, TensorView};
use aie_hal::{HostFunction, KernelArtifact};
use aie_ops::family::copy;
use aie_ops::name::kernel_name;
use aie_ops::normalise::{KernelArgument, Normalised, Role, normalise};
use aie_ops::{Node, Operation, Placement, Unsupported, table};
use std::sync::Arc;

/// A node with what was looked up for it.
pub struct Lowered {
    /// Its operation.
    pub op: &'static dyn Operation,
    /// The node as the graph has it.
    pub node: Node,
    /// The name of its kernel.
    pub name: String,
    /// The dispatch, or why it runs on the CPU.
    pub dispatch: Result<Dispatch, HostReason>,
}

impl Lowered {
    /// The artifact that is dispatched.
    pub fn artifact(&self) -> Option<&KernelArtifact> {
        self.dispatch.as_ref().ok().map(|dispatch| dispatch.kernel.executable.artifact())
    }
}

/// A kernel with its arguments.
pub struct Dispatch {
    /// The kernel.
    pub kernel: Kernel,
    /// Its arguments in order, without further outputs, which are never converted.
    pub arguments: Vec<LoweredArgument>,
}

/// An argument of a kernel.
pub struct LoweredArgument {
    /// The tensor as the graph and as the kernel has it.
    pub tensors: KernelArgument,
    /// Its memory.
    pub view: TensorView,
    /// What converts between the two, where their bytes differ: before the dispatch for a source, after it for the output.
    pub conversion: Option<Arc<dyn HostFunction>>,
}

/// Looks up everything for `graph_node`, with a kernel that works with several PDIs or, `apart`, with none of these. A kernel may be
/// compiled for that.
///
/// # Errors
/// [`PlanError`] when this backend cannot compute the node at all.
pub fn lower(context: &DeviceContext, graph_node: &GraphNode, apart: bool) -> Result<Lowered, PlanError> {
    let op = table::lookup(graph_node.op).ok_or(PlanError::NotClaimed)?;
    let node = graph_node.node();
    op.check(&node)?;
    let normalised = normalise(op, &node, context.f16);
    let name = kernel_name(op, normalised.as_ref().map_or(&node, |normalised| &normalised.node));
    let dispatch = match op.placement(&node) {
        Placement::Host(reason) => {
            moved_by_code(context, op, graph_node, normalised, apart).ok_or_else(|| HostReason::by_design(reason))
        }
        Placement::Array => normalised.map_err(HostReason::from).and_then(|Normalised { node, arguments }| {
            let kernel = context.kernels.get(op, &node)?;
            let kernel = if apart { context.kernels.apart(op, &node, kernel)? } else { kernel };
            Ok(dispatch(graph_node, kernel, arguments)?)
        }),
    };
    Ok(Lowered { op, node, name, dispatch })
}

/// Machine code for a node that a graph may have later, if it can be made at once.
pub fn foreseen_code(context: &DeviceContext, node: &Node) -> Option<Kernel> {
    let op = table::lookup(&node.op)?;
    let normalised = normalise(op, node, context.f16).ok()?;
    let possible =
        matches!(op.placement(node), Placement::Array) || (op.moves_data() && !normalised.needs_conversion());
    possible.then(|| context.kernels.foreseen(op, &normalised.node)).flatten()
}

fn dispatch(graph_node: &GraphNode, kernel: Kernel, arguments: Vec<KernelArgument>) -> Result<Dispatch, Unsupported> {
    let arguments = arguments.into_iter().map(|tensors| argument(graph_node, tensors)).collect::<Result<_, _>>()?;
    Ok(Dispatch { kernel, arguments })
}

/// A dispatch for an operation that moves data, which the host does by design: with machine code that takes the tensors as they
/// are. A conversion would be the host call that a dispatch is to spare. In place the host has to do it: what a DMA writes may be
/// what it has not read yet.
fn moved_by_code(
    context: &DeviceContext,
    op: &dyn Operation,
    graph_node: &GraphNode,
    normalised: Result<Normalised, Unsupported>,
    apart: bool,
) -> Option<Dispatch> {
    if !op.moves_data() {
        return None;
    }
    let Normalised { node, arguments } = normalised.ok().filter(|normalised| !normalised.needs_conversion())?;
    let written = graph_node.output.span.range();
    let in_place = |(slot, source): (usize, &Option<TensorView>)| {
        let read = source.filter(|_| op.result_source() != Some(slot)).map(|source| source.span.range());
        read.is_some_and(|read| overlap(&read, &written))
    };
    if graph_node.sources.iter().enumerate().any(in_place) {
        return None;
    }
    let mut kernel = context.kernels.made_at_once(op, &node)?;
    if apart {
        kernel = context.kernels.apart(op, &node, kernel).ok().filter(|kernel| kernel.kind.code.is_some())?;
    }
    dispatch(graph_node, kernel, arguments).ok()
}

fn argument(graph_node: &GraphNode, tensors: KernelArgument) -> Result<LoweredArgument, Unsupported> {
    let (original, array) = tensors.converted();
    let (view, from, to) = match tensors.role {
        Role::Source(slot) => (graph_node.sources[slot].unwrap_or(graph_node.output), original, array),
        Role::Output => (graph_node.output, array, original),
    };
    let conversion = tensors.conversion.then(|| copy::convert(&from, &to)).transpose()?;
    Ok(LoweredArgument { tensors, view, conversion })
}
