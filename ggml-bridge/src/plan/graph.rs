//! A compute graph as plain data: what the ABI layer read from ggml, and what plans are made from.

use crate::memory::host_memory::HostSpan;
use aie_ops::tensor::TensorError;
use aie_ops::{Node, OpParams, Tensor, table};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::error::Error;
use std::ops::Not;

/// A graph cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The ggml in this process is not known to this backend.
    #[error(transparent)]
    Ggml(Box<dyn Error + Send + Sync>),
    /// There is none.
    #[error("ggml passed no graph")]
    Missing,
    /// Its length makes no sense.
    #[error("ggml passed a graph with a negative number of nodes")]
    Length,
    /// A tensor has elements of a type with this name and number.
    #[error("element type {0} (number {1}) is not known to this backend")]
    DataType(String, i32),
    /// A number of elements makes no sense.
    #[error("a tensor with {0} elements in one dimension")]
    Extent(i64),
    /// Shape and strides make no sense.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An operation with this number has no name.
    #[error("operation number {0} has no name")]
    Operation(i32),
    /// A tensor has no memory.
    #[error("a tensor without memory")]
    Memory,
    /// A tensor at this address, with so many bytes, leaves the address space.
    #[error("a tensor at {0:#x} with {1} bytes")]
    Address(usize, usize),
    /// Part of a node, which is named.
    #[error("{0}: {1}")]
    Node(String, #[source] Box<GraphError>),
}

/// A tensor with its memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TensorView {
    /// Identifies a tensor within a graph.
    pub id: usize,
    /// Type and shape.
    pub tensor: Tensor,
    /// The bytes from its first to behind its last element.
    pub span: HostSpan,
    /// The buffer around it, or the span itself when ggml knows no more.
    pub buffer: HostSpan,
    /// Whether it lies in a buffer that ggml marked as holding weights.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub weights: bool,
    /// Whether the program sets it before each graph, by writing to its memory without asking the backend.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub input: bool,
    /// Whether it is a view, so that an operation may write only a part of it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub view: bool,
    /// Whether the program reads it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub read: bool,
    /// Whether exactly one node, of this graph or another, reads it (a view of it counts), and the program does not.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub read_once: bool,
}

impl TensorView {
    /// A tensor of which nothing is known but its memory, a buffer of its own.
    pub fn plain(id: usize, tensor: Tensor, span: HostSpan) -> Self {
        Self {
            id,
            tensor,
            span,
            buffer: span,
            weights: false,
            input: false,
            view: false,
            read: false,
            read_once: false,
        }
    }
}

/// The name of an operation of the table. Under a name of its own, or a node that is read would have to borrow it.
pub type OpName = &'static str;

/// A node that computes something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GraphNode {
    /// The program's name of the result, for messages; may be empty.
    pub name: String,
    /// `ggml_op_desc` in upper case.
    #[serde(deserialize_with = "known_op")]
    pub op: OpName,
    /// Parameters.
    pub params: OpParams,
    /// Result.
    pub output: TensorView,
    /// Further results, which only fused nodes have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_outputs: Vec<TensorView>,
    /// Sources by slot, without trailing holes.
    pub sources: Vec<Option<TensorView>>,
}

impl GraphNode {
    /// A node without a name, with one result.
    pub fn new(op: &'static str, params: OpParams, output: TensorView, sources: Vec<Option<TensorView>>) -> Self {
        Self { name: String::new(), op, params, output, further_outputs: Vec::new(), sources }
    }

    /// The node without its memory.
    pub fn node(&self) -> Node {
        let sources = self.sources.iter().map(|s| s.map(|s| s.tensor)).collect();
        let mut node = Node::new(self.op, self.params, self.output.tensor, sources);
        node.further_outputs = self.further_outputs.iter().map(|view| view.tensor).collect();
        node
    }

    /// Its name, operation, types and extents, for messages.
    pub fn describe(&self) -> String {
        let tensor = |view: &TensorView| {
            let Tensor { dtype, ne, nb } = view.tensor;
            let strides = if view.tensor.is_contiguous() { String::new() } else { format!(" with strides {nb:?}") };
            format!("{dtype} {:?}{strides}", &ne[..view.tensor.dimensions()])
        };
        let list = |views: Vec<String>| if views.is_empty() { "nothing".into() } else { views.join(", ") };
        let (outputs, inputs) = (self.outputs().map(tensor).collect(), self.inputs().map(tensor).collect());
        format!("node \"{}\", {} of {} to {}", self.name, self.op, list(inputs), list(outputs))
    }

    /// All results.
    pub fn outputs(&self) -> impl Iterator<Item = &TensorView> {
        std::iter::once(&self.output).chain(&self.further_outputs)
    }

    /// The sources that are present.
    pub fn inputs(&self) -> impl Iterator<Item = &TensorView> {
        self.sources.iter().flatten()
    }
}

/// The nodes to compute, in order. Views, empty nodes and nodes that are not requested are left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Graph {
    /// Nodes.
    pub nodes: Vec<GraphNode>,
}

/// The operation of a node that was written down.
fn known_op<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OpName, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = table::lookup(&name).map(|op| op.name());
    known.ok_or_else(|| D::Error::custom(format!("operation {name} is not in the table")))
}

/// A graph that is still in ggml's memory.
pub trait GraphSource {
    /// Reads it.
    ///
    /// # Errors
    /// Which node cannot be computed and why.
    fn read(&self) -> Result<Graph, GraphError>;

    /// Passes all that decides a plan in a fixed order to `word`, until it returns false. Returns whether it never did.
    fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool;
}

/// Everything of a graph that decides its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature(Vec<u64>);

impl Signature {
    /// Records a graph.
    pub fn of(graph: &impl GraphSource) -> Self {
        let mut words = Vec::new();
        graph.fingerprint(&mut |word| {
            words.push(word);
            true
        });
        Self(words)
    }

    /// Whether `graph` is the recorded one. Stops at the first difference and allocates nothing.
    pub fn matches(&self, graph: &impl GraphSource) -> bool {
        let mut rest = self.0.iter();
        graph.fingerprint(&mut |word| rest.next() == Some(&word)) && rest.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    struct Fingerprint(&'static [u64]);

    impl GraphSource for Fingerprint {
        fn read(&self) -> Result<Graph, GraphError> {
            Ok(Graph::default())
        }

        fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool {
            self.0.iter().all(|&w| word(w))
        }
    }

    #[rstest]
    #[case(&[1, 2, 3], true)]
    #[case(&[1, 2], false)]
    #[case(&[1, 2, 3, 4], false)]
    #[case(&[1, 5, 3], false)]
    #[case(&[], false)]
    fn only_the_same_words_match(#[case] words: &'static [u64], #[case] expected: bool) {
        assert_eq!(Signature::of(&Fingerprint(&[1, 2, 3])).matches(&Fingerprint(words)), expected);
    }
}
