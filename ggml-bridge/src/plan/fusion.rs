//! Groups of nodes that become one dispatch.
//!
//! A value that only the next step reads need not go to memory. Groups are found from their last node backwards; the
//! fused node takes its place, and the earlier ones vanish. That is right when nobody else wants the values between (ggml's
//! count of uses says so), when the inputs of the vanished nodes still hold the same bytes where the fused node stands, and when
//! the result is not written over an input that is still being read. A group for which there is no kernel stays apart.

use crate::graph::{Graph, GraphNode, TensorView};
use aie_ops::{DataType, OpParams};
use std::ops::Range;

/// The norms whose product with weights has a fused operation.
const NORMS: [(&str, &str); 2] = [("RMS_NORM", "RMS_NORM_MUL"), ("NORM", "NORM_MUL")];

/// The gates whose two projections have one.
const GATES: [(&str, &str); 5] = [
    ("REGLU", "MUL_MAT_REGLU"),
    ("GEGLU", "MUL_MAT_GEGLU"),
    ("SWIGLU", "MUL_MAT_SWIGLU"),
    ("GEGLU_ERF", "MUL_MAT_GEGLU_ERF"),
    ("GEGLU_QUICK", "MUL_MAT_GEGLU_QUICK"),
];

/// The name of a product in ggml's graphs.
const PRODUCT: &str = "MUL_MAT";

/// A node to record, and how many nodes of the graph it stands for.
#[derive(Debug, Clone)]
pub struct Step {
    /// The node, of the graph or fused.
    pub node: GraphNode,
    /// 1, or the members of the group.
    pub nodes: usize,
}

/// A group that would be one dispatch.
struct Group {
    fused: GraphNode,
    /// Indices of the nodes that vanish.
    members: Vec<usize>,
}

/// The nodes of `graph` with groups replaced, in order. `possible` is asked last, for each group.
pub fn fuse(graph: &Graph, mut possible: impl FnMut(&GraphNode) -> bool) -> Vec<Step> {
    let nodes = &graph.nodes;
    let mut steps: Vec<Option<Step>> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let free = |index: usize| matches!(&steps[index], Some(Step { nodes: 1, .. }));
        let group = group(nodes, at, free).filter(|group| sound(nodes, at, group) && possible(&group.fused));
        let step = match group {
            Some(Group { fused, members }) => {
                members.iter().for_each(|member| steps[*member] = None);
                Step { node: fused, nodes: members.len() + 1 }
            }
            None => Step { node: node.clone(), nodes: 1 },
        };
        steps.push(Some(step));
    }
    steps.into_iter().flatten().collect()
}

/// The group that ends with node `at`, by operations and connections alone.
fn group(nodes: &[GraphNode], at: usize, free: impl Fn(usize) -> bool) -> Option<Group> {
    let last = &nodes[at];
    let source = |slot: usize| last.sources.get(slot).copied().flatten();
    // The node that makes source `slot`, if only this node reads it.
    let maker = |slot: usize| {
        let source = source(slot)?;
        let index = nodes[..at].iter().rposition(|node| node.output.id == source.id)?;
        let found = &nodes[index];
        let plain = !found.output.view && source.tensor.is_contiguous() && source.tensor.dtype == DataType::F32;
        (plain && found.read_once && free(index)).then_some(index)
    };
    let fused = |op, params, sources: &[TensorView]| GraphNode {
        op,
        params,
        output: last.output,
        read_once: last.read_once,
        sources: sources.iter().copied().map(Some).collect(),
    };
    if last.op == "MUL" {
        let norm = maker(0)?;
        let (_, op) = NORMS.into_iter().find(|(single, _)| nodes[norm].op == *single)?;
        let x = nodes[norm].sources.first().copied().flatten()?;
        return Some(Group { fused: fused(op, nodes[norm].params, &[x, source(1)?]), members: vec![norm] });
    }
    if last.op == "ADD" {
        let of = |slot| maker(slot).filter(|index| nodes[*index].op == PRODUCT);
        let (product, addend) = match (of(0), of(1)) {
            (Some(product), _) => (product, source(1)?),
            // A sum's second source may be repeated; a product in its place must not be.
            (_, Some(product)) if source(0)?.tensor.ne == source(1)?.tensor.ne => (product, source(0)?),
            _ => return None,
        };
        let [a, b] = operands(&nodes[product])?;
        return Some(Group {
            fused: fused("MUL_MAT_ADD", nodes[product].params, &[a, b, addend]),
            members: vec![product],
        });
    }
    if let Some((_, op)) = GATES.into_iter().find(|(single, _)| last.op == *single) {
        let (gate, values) = (maker(0)?, maker(1)?);
        if gate == values || [gate, values].iter().any(|index| nodes[*index].op != PRODUCT || hinted(&nodes[*index])) {
            return None;
        }
        let ([a, x], [b, y]) = (operands(&nodes[gate])?, operands(&nodes[values])?);
        let same = x.span == y.span && x.tensor == y.tensor;
        return same.then(|| Group { fused: fused(op, last.params, &[a, b, x]), members: vec![gate, values] });
    }
    None
}

/// The two sources of a product.
fn operands(node: &GraphNode) -> Option<[TensorView; 2]> {
    Some([node.sources.first().copied().flatten()?, node.sources.get(1).copied().flatten()?])
}

/// Whether a product carries more than a wish for precision, which is met always: the second parameter is a hint.
fn hinted(node: &GraphNode) -> bool {
    node.params != OpParams(std::array::from_fn(|index| if index == 0 { node.params.int(0) } else { 0 }))
}

/// Whether the fused node computes the same where it stands.
fn sound(nodes: &[GraphNode], at: usize, group: &Group) -> bool {
    let untouched = group.members.iter().all(|member| {
        let between =
            nodes.iter().enumerate().take(at).skip(member + 1).filter(|(index, _)| !group.members.contains(index));
        let written: Vec<Range<usize>> = between.map(|(_, node)| bytes(&node.output)).collect();
        nodes[*member].inputs().all(|input| written.iter().all(|write| !overlap(write, &bytes(input))))
    });
    let output = &group.fused.output;
    untouched
        && group.fused.inputs().all(|input| {
            // An element is read before it is written when both have the same place; a product's operands are read again.
            let in_place = input.span == output.span && input.tensor == output.tensor && input.id != 0;
            let multiplied = group.fused.op != "MUL_MAT_ADD" && group.fused.op.starts_with(PRODUCT)
                || operands(&group.fused)
                    .is_some_and(|[a, b]| group.fused.op.starts_with(PRODUCT) && [a.id, b.id].contains(&input.id));
            !overlap(&bytes(input), &bytes(output)) || in_place && !multiplied
        })
}

fn bytes(view: &TensorView) -> Range<usize> {
    super::memory::range(view.span)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}
