//! Groups of nodes that become one dispatch.
//!
//! A value that only the next step reads need not go to memory. Such groups are found from their last node backwards; the
//! fused node takes its place, and the earlier ones vanish. That is right when no one else wants the values between (ggml's
//! count of uses says so), when the inputs of the vanished nodes still hold the same bytes where the fused node stands, and when
//! the result is not written over an input that is still being read.
//!
//! Which groups there are is asked of the table of operations ([`Form`]). A group without a kernel is not fused.

use super::hazard::overlap;
use crate::plan::graph::{Graph, GraphNode, TensorView};
use aie_ops::fused_form::{Form, Origin};
use aie_ops::{DataType, table};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The forms of the table of operations.
static FORMS: LazyLock<Vec<&'static Form>> = LazyLock::new(|| table::all().filter_map(|op| op.fused_form()).collect());

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

/// A group that would be one dispatch, in the place of its last node.
struct Group {
    fused: GraphNode,
    form: &'static Form,
    /// Indices of the other nodes.
    members: Vec<usize>,
}

/// The nodes of `graph` with groups replaced, in order. `find` is called last, for each group; without a result the group is not fused.
pub fn fuse<T>(graph: &Graph, mut find: impl FnMut(&GraphNode) -> Option<T>) -> Vec<Step<'_, T>> {
    let nodes = &graph.nodes;
    let mut steps: Vec<Option<Step<T>>> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let free = |index: usize| matches!(&steps[index], Some(Step { nodes: 1, .. }));
        let groups = FORMS.iter().filter_map(|form| group(nodes, at, form, &free));
        let mut sound = groups.filter(|group| sound(nodes, at, group));
        let step = match sound.find_map(|group| Some((find(&group.fused)?, group))) {
            Some((found, Group { fused, members, .. })) => {
                members.iter().for_each(|member| steps[*member] = None);
                Step { node: Cow::Owned(fused), nodes: members.len() + 1, found: Some(found) }
            }
            None => Step::single(node),
        };
        steps.push(Some(step));
    }
    steps.into_iter().flatten().collect()
}

/// The group of a form that ends with node `at`, by operations and connections alone.
fn group(nodes: &[GraphNode], at: usize, form: &'static Form, free: &impl Fn(usize) -> bool) -> Option<Group> {
    let last = &nodes[at];
    if form.parts.last()?.op != last.op {
        return None;
    }
    matched(nodes, at, form, free, false).or_else(|| {
        let extents = |slot: usize| last.sources.get(slot).copied().flatten().map(|source| source.tensor.ne);
        // A sum's second source may be repeated; what takes its place must not be.
        let may = form.commutes && extents(0) == extents(1);
        may.then(|| matched(nodes, at, form, free, true)).flatten()
    })
}

/// The same with the last node's two sources as they are, or `exchanged`.
fn matched(
    nodes: &[GraphNode],
    at: usize,
    form: &'static Form,
    free: &impl Fn(usize) -> bool,
    exchanged: bool,
) -> Option<Group> {
    let final_part = form.parts.len() - 1;
    let mut found = vec![None; form.parts.len()];
    let mut sources: Vec<Option<TensorView>> = vec![None; form.sources()];
    found[final_part] = Some(at);
    for (index, part) in form.parts.iter().enumerate().rev() {
        let reader = found[index]?;
        let node = &nodes[reader];
        let inputs = &node.sources;
        if !form.takes_parameters(index, &node.params) || inputs.iter().skip(part.sources.len()).any(Option::is_some) {
            return None;
        }
        for (slot, from) in part.sources.iter().enumerate() {
            let slot = if exchanged && index == final_part { part.sources.len() - 1 - slot } else { slot };
            let input = inputs.get(slot).copied().flatten()?;
            match *from {
                Origin::Source(place) => match sources[place] {
                    Some(same) if same.span == input.span && same.tensor == input.tensor => {}
                    Some(_) => return None,
                    None => sources[place] = Some(input),
                },
                Origin::Made(earlier) => {
                    let maker = maker(nodes, reader, &input, free)
                        .filter(|maker| nodes[*maker].op == form.parts[earlier].op && !found.contains(&Some(*maker)));
                    found[earlier] = Some(maker?);
                }
            }
        }
    }
    let found = found.into_iter().collect::<Option<Vec<usize>>>()?;
    let params = nodes[found[form.parameters]].params;
    let fused = GraphNode::new(form.name, params, nodes[at].output, sources);
    let members = found[..final_part].to_vec();
    Some(Group { fused: GraphNode { name: nodes[at].name.clone(), ..fused }, form, members })
}

/// The node that makes a source of node `at`, if nothing else reads it.
fn maker(nodes: &[GraphNode], at: usize, source: &TensorView, free: &impl Fn(usize) -> bool) -> Option<usize> {
    let index = nodes[..at].iter().rposition(|node| node.output.id == source.id)?;
    let output = &nodes[index].output;
    let plain = !output.view && source.tensor.is_contiguous() && source.tensor.dtype == DataType::F32;
    (plain && output.read_once && free(index)).then_some(index)
}

/// Whether the fused node computes the same where it stands.
fn sound(nodes: &[GraphNode], at: usize, group: &Group) -> bool {
    let Group { fused, form, members } = group;
    let moved = members.iter().all(|member| {
        let mut passed = (member + 1..at).filter(|index| !members.contains(index)).map(|index| &nodes[index]);
        passed.all(|passed| {
            let written = passed.output.span.range();
            !nodes[*member].inputs().any(|input| overlap(&input.span.range(), &written))
        })
    });
    let result = &fused.output;
    let kept = fused.sources.iter().enumerate().all(|(slot, input)| {
        let Some(input) = input else { return true };
        let in_place = input.span == result.span && input.tensor == result.tensor;
        !overlap(&input.span.range(), &result.span.range()) || in_place && form.in_place.contains(&slot)
    });
    moved && kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSpan;
    use aie_ops::{OpParams, Tensor};

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

    /// A layer's beginning: norm, weights, and a projection.
    #[test]
    fn a_norm_joins_its_weights_and_not_what_takes_it() {
        let mut graph = Builder::default();
        let (x, scale) = (graph.tensor(DataType::F32, [64, 2, 1, 1]), graph.tensor(DataType::F32, [64, 1, 1, 1]));
        let weights = graph.weights(64, 32);
        let norm = graph.node("RMS_NORM", x.tensor.ne, &[x]);
        let scaled = graph.node("MUL", x.tensor.ne, &[norm, scale]);
        graph.node("MUL_MAT", [32, 2, 1, 1], &[weights, scaled]);
        assert_eq!(graph.fused(), [("RMS_NORM_MUL", 2), ("MUL_MAT", 1)]);
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
    fn what_a_form_does_not_say_stays_apart() {
        let apart = [("MUL_MAT", 1), ("MUL_MAT", 1), ("SWIGLU", 1)];
        // Somebody else reads the gate's product.
        assert_eq!(gated_layer(|nodes| nodes[0].output.read_once = false)[..3], apart);
        // Two right operands, parameters that a product's fused form does not have, and a third source.
        let operands = gated_layer(|nodes| nodes[1].sources[1] = nodes[4].sources[0]);
        assert_eq!(operands[..3], apart);
        assert_eq!(gated_layer(|nodes| nodes[1].params.0[1] = 1)[..3], apart);
        let third = gated_layer(|nodes| {
            let x = nodes[0].sources[1];
            nodes[1].sources.push(x);
        });
        assert_eq!(third[..3], apart);
        // A wish for precision is met always.
        assert_eq!(gated_layer(|nodes| nodes[1].params.0[0] = 10)[0], ("MUL_MAT_SWIGLU", 3));
        // A bias comes behind a product only: in front of it, it would be repeated.
        let bias = |order: [usize; 2]| {
            gated_layer(move |nodes| {
                let [residual, product] = [0, 1].map(|slot| nodes[4].sources[slot].unwrap());
                let row = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
                let sources = [TensorView { tensor: row, ..residual }, product];
                nodes[4].sources = order.map(|slot| Some(sources[slot])).to_vec();
            })
        };
        assert_eq!(bias([1, 0])[1..], [("MUL_MAT_ADD", 2)]);
        assert_eq!(bias([0, 1])[1..], [("MUL_MAT", 1), ("ADD", 1)]);
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
