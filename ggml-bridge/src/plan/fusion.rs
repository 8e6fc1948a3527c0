//! Groups of nodes that become one dispatch.
//!
//! A value that only the next step reads need not go to memory. Such groups are found from their last node backwards; the
//! fused node takes its place, and the earlier ones vanish. That is right when no one else wants the values between (ggml's
//! count of uses says so), when the inputs of the vanished nodes still hold the same bytes where the fused node stands, and when
//! the result is not written over an input that is still being read.
//!
//! The three projections of attention share their right operand, queries and keys are rotated, and there are three results:
//! values and rotated queries are then written later than in the graph, so no one between may want them.
//!
//! What a group becomes is asked of the table of operations ([`aie_ops::Operation::stands_for`]). A group without a kernel is not fused.

use super::hazard::overlap;
use crate::plan::graph::{Graph, GraphNode, TensorView};
use aie_ops::{DataType, OpParams, table};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A matrix product in ggml's graphs.
const MATMUL: &str = "MUL_MAT";

/// A rotation by position.
const ROPE: &str = "ROPE";

/// The fused operation that stands for `parts`, in order, if the table has one.
fn fused_for(parts: &[&'static str]) -> Option<&'static str> {
    static FUSED: LazyLock<HashMap<Vec<&'static str>, &'static str>> = LazyLock::new(|| {
        table::all().map(|op| (op.stands_for(), op.name())).filter(|(parts, _)| !parts.is_empty()).collect()
    });
    FUSED.get(parts).copied()
}

/// A node to record.
#[derive(Debug, Clone)]
pub struct Step<'a, T> {
    /// The node, of the graph or fused.
    pub node: Cow<'a, GraphNode>,
    /// How many nodes of the graph it stands for: 1, or the members of the group.
    pub nodes: usize,
    /// What was found for a fused node.
    pub found: Option<T>,
}

impl<'a, T> Step<'a, T> {
    /// A node that is not fused.
    pub fn single(node: &'a GraphNode) -> Self {
        Self { node: Cow::Borrowed(node), nodes: 1, found: None }
    }
}

/// How many nodes the projections of attention are spread over at most.
const REACH: usize = 12;

/// A group that would be one dispatch, in the place of its last node.
struct Group {
    fused: GraphNode,
    /// Indices of the other nodes.
    members: Vec<usize>,
}

/// The nodes of `graph` with groups replaced, in order. `find` is called last, for each group; without a result the group is not fused.
pub fn fuse<T>(graph: &Graph, mut find: impl FnMut(&GraphNode) -> Option<T>) -> Vec<Step<'_, T>> {
    let nodes = &graph.nodes;
    let mut steps: Vec<Option<Step<T>>> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let free = |index: usize| matches!(&steps[index], Some(Step { nodes: 1, .. }));
        let groups = [group(nodes, at, &free), attention(nodes, at, &free)];
        let mut sound = groups.into_iter().flatten().filter(|group| sound(nodes, at, group));
        let step = match sound.find_map(|group| Some((find(&group.fused)?, group))) {
            Some((found, Group { fused, members })) => {
                members.iter().for_each(|member| steps[*member] = None);
                Step { node: Cow::Owned(fused), nodes: members.len() + 1, found: Some(found) }
            }
            None => Step::single(node),
        };
        steps.push(Some(step));
    }
    steps.into_iter().flatten().collect()
}

/// The group that ends with node `at`, by operations and connections alone.
fn group(nodes: &[GraphNode], at: usize, free: &impl Fn(usize) -> bool) -> Option<Group> {
    let last = &nodes[at];
    let source = |slot: usize| last.sources.get(slot).copied().flatten();
    // The node that makes source `slot`, if only this node reads it.
    let maker = |slot: usize| {
        let source = source(slot)?;
        let index = nodes[..at].iter().rposition(|node| node.output.id == source.id)?;
        let found = &nodes[index];
        let plain = !found.output.view && source.tensor.is_contiguous() && source.tensor.dtype == DataType::F32;
        (plain && found.output.read_once && free(index)).then_some(index)
    };
    let fused = |op, params, sources: &[TensorView]| {
        let sources = sources.iter().copied().map(Some).collect();
        GraphNode { name: last.name.clone(), ..GraphNode::new(op, params, last.output, sources) }
    };
    if last.op == "MUL" {
        let norm = maker(0)?;
        let op = fused_for(&[nodes[norm].op, last.op])?;
        let x = nodes[norm].sources.first().copied().flatten()?;
        return Some(Group { fused: fused(op, nodes[norm].params, &[x, source(1)?]), members: vec![norm] });
    }
    if last.op == "ADD" {
        let of = |slot| maker(slot).filter(|index| nodes[*index].op == MATMUL);
        let (product, addend) = match (of(0), of(1)) {
            (Some(product), _) => (product, source(1)?),
            // A sum's second source may be repeated; a product in its place must not be.
            (_, Some(product)) if source(0)?.tensor.ne == source(1)?.tensor.ne => (product, source(0)?),
            _ => return None,
        };
        let [a, b] = operands(&nodes[product])?;
        return Some(Group {
            fused: fused(fused_for(&[MATMUL, last.op])?, nodes[product].params, &[a, b, addend]),
            members: vec![product],
        });
    }
    if let Some(op) = fused_for(&[MATMUL, MATMUL, last.op]) {
        let (gate, values) = (maker(0)?, maker(1)?);
        if gate == values || [gate, values].iter().any(|index| nodes[*index].op != MATMUL || hinted(&nodes[*index])) {
            return None;
        }
        let ([a, x], [b, y]) = (operands(&nodes[gate])?, operands(&nodes[values])?);
        let same = x.span == y.span && x.tensor == y.tensor;
        return same.then(|| Group { fused: fused(op, last.params, &[a, b, x]), members: vec![gate, values] });
    }
    None
}

/// The projections to queries, keys and values with the rotations of the first two, when `at` is the last of the five.
fn attention(nodes: &[GraphNode], at: usize, free: &impl Fn(usize) -> bool) -> Option<Group> {
    let start = at.saturating_sub(REACH);
    let first_source = |index: usize| nodes[index].sources.first().copied().flatten();
    let f32s = |view: &TensorView| view.tensor.is_contiguous() && view.tensor.dtype == DataType::F32;
    // The product that a rotation takes, which gets there by way of a view.
    let rotated = |rotation: usize| {
        let source = first_source(rotation)?;
        let index = (start..rotation).rev().find(|index| nodes[*index].output.span == source.span)?;
        let vanishes = nodes[index].output.read_once && source.read_once && !nodes[index].output.view;
        (nodes[index].op == MATMUL && vanishes && f32s(&source) && free(index)).then_some(index)
    };
    let last = match nodes[at].op {
        ROPE => rotated(at)?,
        MATMUL => at,
        _ => return None,
    };
    let [_, x] = operands(&nodes[last])?;
    let of_x = |index: &usize| {
        let node = &nodes[*index];
        let plain = node.op == MATMUL && !hinted(node) && f32s(&node.output) && (*index == at || free(*index));
        plain && operands(node).is_some_and(|[a, y]| a.weights && y.id == x.id && y.tensor == x.tensor)
    };
    let products: Vec<usize> = (start..=at).filter(of_x).collect();
    let rotations: Vec<(usize, usize)> = (start..=at)
        .filter(|index| nodes[*index].op == ROPE && (*index == at || free(*index)))
        .filter_map(|index| Some((index, rotated(index).filter(|product| products.contains(product))?)))
        .collect();
    let (&[_, _, _], &[(q, query), (k, key)]) = (&products[..], &rotations[..]) else { return None };
    let value = *products.iter().find(|index| ![query, key].contains(index))?;
    let angles = |index: usize| nodes[index].sources[1..].iter().flatten().map(|s| (s.id, s.span)).collect::<Vec<_>>();
    if nodes[q].params != nodes[k].params || angles(q) != angles(k) || query == key {
        return None;
    }
    let weights = |index: usize| nodes[index].sources[0];
    let mut sources = vec![weights(query), weights(key), weights(value), Some(x)];
    sources.extend(&nodes[q].sources[1..]);
    let fused = GraphNode {
        name: nodes[q].name.clone(),
        further_outputs: vec![nodes[k].output, nodes[value].output],
        ..GraphNode::new(fused_for(&[MATMUL, MATMUL, MATMUL, ROPE, ROPE])?, nodes[q].params, nodes[q].output, sources)
    };
    let mut members = vec![query, q, key, k, value];
    members.retain(|member| *member != at);
    (members.len() == 4).then_some(Group { fused, members })
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
    let Group { fused, members } = group;
    let moved = members.iter().all(|member| {
        let mut passed = (member + 1..at).filter(|index| !members.contains(index)).map(|index| &nodes[index]);
        let node = &nodes[*member];
        let survives = fused.outputs().any(|output| output.span == node.output.span && output.id == node.output.id);
        passed.all(|passed| {
            let written = passed.output.span.range();
            let result = node.output.span.range();
            let wanted =
                overlap(&written, &result) || passed.inputs().any(|input| overlap(&input.span.range(), &result));
            let changed = node.inputs().any(|input| overlap(&input.span.range(), &written));
            !(changed || survives && wanted)
        })
    });
    // A norm reads a row, and a sum an element, before it is written. Operands of a product are read again and again.
    let once: &[usize] = match fused.op {
        "MUL_MAT_ADD" => &[2],
        op if op.starts_with(MATMUL) => &[],
        _ => &[0],
    };
    let outputs: Vec<&TensorView> = fused.outputs().collect();
    let kept = outputs.iter().enumerate().all(|(index, output)| {
        let apart = outputs[..index].iter().all(|other| !overlap(&other.span.range(), &output.span.range()));
        apart
            && fused.sources.iter().enumerate().all(|(slot, input)| {
                let Some(input) = input else { return true };
                let in_place = input.span == output.span && input.tensor == output.tensor;
                !overlap(&input.span.range(), &output.span.range()) || in_place && once.contains(&slot)
            })
    });
    moved && kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSpan;
    use aie_ops::Tensor;

    /// A graph in made-up memory: every tensor has a page of its own unless a test says otherwise.
    #[derive(Default)]
    struct Builder {
        nodes: Vec<GraphNode>,
        tensors: usize,
    }

    impl Builder {
        fn tensor(&mut self, dtype: DataType, ne: [usize; 4]) -> TensorView {
            self.tensors += 1;
            let tensor = Tensor::contiguous(dtype, ne);
            // SAFETY: the memory is never accessed.
            let span = unsafe { HostSpan::new(self.tensors << 24, tensor.span_bytes()) };
            let weights = dtype.is_quantised();
            TensorView { weights, read_once: true, ..TensorView::plain(self.tensors, tensor, span) }
        }

        fn weights(&mut self, columns: usize, rows: usize) -> TensorView {
            self.tensor(DataType::Q8_0, [columns, rows, 1, 1])
        }

        fn node(&mut self, op: &'static str, ne: [usize; 4], sources: &[TensorView]) -> TensorView {
            let output = self.tensor(DataType::F32, ne);
            let sources = sources.iter().copied().map(Some).collect();
            self.nodes.push(GraphNode::new(op, OpParams::default(), output, sources));
            output
        }

        /// Operations after fusion. Every group has to be what its operation accepts.
        fn fused(self) -> Vec<(&'static str, usize)> {
            let graph = Graph { nodes: self.nodes };
            let possible = |node: &GraphNode| table::lookup(node.op).unwrap().check(&node.node()).ok();
            fuse(&graph, possible).iter().map(|step| (step.node.op, step.nodes)).collect()
        }
    }

    fn reshaped(view: TensorView, ne: [usize; 4]) -> TensorView {
        TensorView { id: view.id + 1000, tensor: Tensor::contiguous(view.tensor.dtype, ne), view: true, ..view }
    }

    /// One layer's beginning: norm, projections, rotations. `change` may spoil it.
    fn attention_layer(change: impl Fn(&mut Vec<GraphNode>)) -> Vec<(&'static str, usize)> {
        let mut graph = Builder::default();
        let (x, scale) = (graph.tensor(DataType::F32, [64, 2, 1, 1]), graph.tensor(DataType::F32, [64, 1, 1, 1]));
        let positions = graph.tensor(DataType::I32, [2, 1, 1, 1]);
        let [wq, wk, wv] = [32, 16, 16].map(|rows| graph.weights(64, rows));
        let norm = graph.node("RMS_NORM", x.tensor.ne, &[x]);
        let scaled = TensorView { read_once: false, ..graph.node("MUL", x.tensor.ne, &[norm, scale]) };
        let q = graph.node("MUL_MAT", [32, 2, 1, 1], &[wq, scaled]);
        graph.node("ROPE", [16, 2, 2, 1], &[reshaped(q, [16, 2, 2, 1]), positions]);
        let v = graph.node("MUL_MAT", [16, 2, 1, 1], &[wv, scaled]);
        // As ggml's allocator does: the queries' product is not needed any more.
        let last = graph.nodes.last_mut().unwrap();
        // SAFETY: the memory is never accessed.
        last.output.span = unsafe { HostSpan::new(q.span.address(), v.span.length()) };
        let k = graph.node("MUL_MAT", [16, 2, 1, 1], &[wk, scaled]);
        graph.node("ROPE", [16, 1, 2, 1], &[reshaped(k, [16, 1, 2, 1]), positions]);
        for node in graph.nodes.iter_mut().filter(|node| node.op == ROPE) {
            (node.params.0[1], node.params.0[5]) = (16, 10_000f32.to_bits().cast_signed());
        }
        change(&mut graph.nodes);
        graph.fused()
    }

    const APART: [(&str, usize); 6] =
        [("RMS_NORM_MUL", 2), ("MUL_MAT", 1), ("ROPE", 1), ("MUL_MAT", 1), ("MUL_MAT", 1), ("ROPE", 1)];

    #[test]
    fn projections_and_rotations_are_one_dispatch() {
        assert_eq!(attention_layer(|_| ()), [("RMS_NORM_MUL", 2), ("MUL_MAT_QKV_ROPE", 5)]);
    }

    #[test]
    fn projections_stay_apart_when_somebody_else_wants_a_value() {
        assert_eq!(attention_layer(|nodes| nodes[2].output.read_once = false), APART);
        assert_eq!(attention_layer(|nodes| nodes[6].params.0[5] += 1), APART);
        assert_eq!(attention_layer(|nodes| nodes[4].sources[0].as_mut().unwrap().weights = false), APART);
        // A node between reads the rotated queries, which would come too late.
        let early = attention_layer(|nodes| {
            let mut reader = nodes[3].clone();
            (reader.op, reader.sources) = ("SQR", vec![Some(nodes[3].output)]);
            reader.output = TensorView { id: 99, ..nodes[0].output };
            nodes.insert(4, reader);
        });
        assert!(early.iter().all(|(op, _)| *op != "MUL_MAT_QKV_ROPE"), "{early:?}");
    }

    /// A layer's end: a gated product and the sum with what came before.
    fn gated_layer(change: impl Fn(&mut Vec<GraphNode>)) -> Vec<(&'static str, usize)> {
        let mut graph = Builder::default();
        let (x, residual) = (graph.tensor(DataType::F32, [64, 2, 1, 1]), graph.tensor(DataType::F32, [64, 2, 1, 1]));
        let (gate, up, down) = (graph.weights(64, 96), graph.weights(64, 96), graph.weights(96, 64));
        let gates = graph.node("MUL_MAT", [96, 2, 1, 1], &[gate, x]);
        let values = graph.node("MUL_MAT", [96, 2, 1, 1], &[up, x]);
        let gated = graph.node("SWIGLU", [96, 2, 1, 1], &[gates, values]);
        let product = graph.node("MUL_MAT", [64, 2, 1, 1], &[down, gated]);
        graph.node("ADD", [64, 2, 1, 1], &[residual, product]);
        change(&mut graph.nodes);
        graph.fused()
    }

    #[test]
    fn gates_and_sums_join_their_products() {
        assert_eq!(gated_layer(|_| ()), [("MUL_MAT_SWIGLU", 3), ("MUL_MAT_ADD", 2)]);
        // In place: the sum goes where the residual is, element by element.
        let in_place = gated_layer(|nodes| nodes[4].output.span = nodes[4].sources[0].unwrap().span);
        assert_eq!(in_place, [("MUL_MAT_SWIGLU", 3), ("MUL_MAT_ADD", 2)]);
    }

    #[test]
    fn results_are_not_written_over_operands_that_are_read_again() {
        let over_x = gated_layer(|nodes| nodes[2].output.span = nodes[0].sources[1].unwrap().span);
        assert_eq!(over_x[..3], [("MUL_MAT", 1), ("MUL_MAT", 1), ("SWIGLU", 1)]);
        let over_gated = gated_layer(|nodes| nodes[4].output.span = nodes[3].sources[1].unwrap().span);
        assert_eq!(over_gated[1..], [("MUL_MAT", 1), ("ADD", 1)]);
    }

    #[test]
    fn inputs_must_still_be_there() {
        let changed = gated_layer(|nodes| {
            // Between the product and the sum the gated values are overwritten.
            let mut other = nodes[2].clone();
            (other.op, other.sources) = ("SQR", vec![nodes[4].sources[0]]);
            other.output.id = 77;
            nodes.insert(4, other);
        });
        assert_eq!(changed[1..], [("MUL_MAT", 1), ("SQR", 1), ("ADD", 1)]);
    }

    #[test]
    fn a_group_without_a_kernel_stays_apart() {
        let mut graph = Builder::default();
        let (x, scale) = (graph.tensor(DataType::F32, [64, 2, 1, 1]), graph.tensor(DataType::F32, [64, 1, 1, 1]));
        let norm = graph.node("RMS_NORM", x.tensor.ne, &[x]);
        graph.node("MUL", x.tensor.ne, &[norm, scale]);
        let graph = Graph { nodes: graph.nodes };
        let steps = fuse(&graph, |_| None::<()>);
        assert_eq!(steps.iter().map(|step| step.nodes).collect::<Vec<_>>(), [1, 1]);
    }
}
