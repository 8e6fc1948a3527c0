//! What an operation has to state.

use crate::fused_form::Form;
use crate::node::{Node, OpParams};
use crate::tensor::{DataType, Tensor};
use aie_hal::HostFunction;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

pub use crate::node::Unsupported;

/// Where an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// As a dispatch.
    Array,
    /// As a host call in the same command list, for the given reason.
    Host(&'static str),
}

/// How an operation's tensors may be reshaped before naming; the C++ backend's rule, because names depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flatten {
    /// Shapes stay.
    Never,
    /// One dimension when all tensors are contiguously allocated.
    Always,
    /// As `Always`, but only when all sources have the output's shape.
    SameShape,
}

/// One operation. Implementations are unit-like constants in a family file, listed once in [`crate::table`].
pub trait Operation: Sync + Send {
    /// ggml's description in upper case.
    fn name(&self) -> &'static str;
    /// Whether type and shape rules allow `node` (its original tensors).
    ///
    /// # Errors
    /// [`Unsupported`] with the rule that is broken.
    fn check(&self, node: &Node) -> Result<(), Unsupported>;
    /// Where it runs.
    fn placement(&self, _node: &Node) -> Placement {
        Placement::Array
    }
    /// How tensors may be reshaped.
    fn flatten(&self) -> Flatten {
        Flatten::Never
    }
    /// Whether [`Node::params`] are part of the kernel's name (the C++ backend leaves them out for unary operations).
    fn params_in_name(&self) -> bool {
        true
    }
    /// The parameters that the result depends on although they are not part of the name: kernels that differ in them share a
    /// name. Where kernels are stored by name, these have to be added to it.
    fn nameless_params<'a>(&self, _params: &'a OpParams) -> &'a [i32] {
        &[]
    }
    /// The element type on the array for source `index` (`None`: the output) given its original type. `default` is what
    /// the general rules give: f32 for f16 (or bf16, by policy), the type itself otherwise.
    fn array_type(&self, _node: &Node, _index: Option<usize>, default: DataType) -> DataType {
        default
    }
    /// Whether the kernel reads source `index` with the strides it has, as a shim DMA can, so that no packed copy is made.
    /// Only for types that stay as they are. The strides are then part of the kernel's name.
    fn keeps_strides(&self, _node: &Node, _index: usize) -> bool {
        false
    }
    /// Whether it moves data and computes nothing but conversions of types. Such an operation stays a host call
    /// ([`Placement::Host`]) unless there is machine code that takes its tensors as they are; then it is a dispatch, and its command
    /// list is not cut. Descriptions for simulated devices do not take its place.
    fn moves_data(&self) -> bool {
        false
    }
    /// Whether a kernel of `node` has to read all of source `index` (`None`: write all of every output). One that touches
    /// less was made for other types or shapes, and is rejected. Operations that choose among rows, skip elements or take
    /// sources larger than they need say no.
    fn needs_all(&self, _node: &Node, _index: Option<usize>) -> bool {
        true
    }
    /// The source that is the memory of the result and is never read, if there is one: what the operation leaves alone stays as
    /// it is there.
    fn result_source(&self) -> Option<usize> {
        None
    }
    /// Nodes with `dtype` for source 0 (or for the result, without sources) in every form the operation has. The rules are
    /// asked which of them they accept, for the documentation's table. The default are the forms most operations share.
    fn examples(&self, dtype: DataType) -> Vec<Node> {
        usual_forms(self.name(), dtype)
    }
    /// The nodes of ggml's graph that a fused operation stands for; `None` for ggml's own.
    fn fused_form(&self) -> Option<&'static Form> {
        None
    }
    /// The CPU function that defines the result of `node`, original or normalised. Inputs are the node's present sources
    /// in order, each as the [`crate::Tensor::span_bytes`] of its tensor.
    ///
    /// # Errors
    /// [`Unsupported`] as [`Operation::check`].
    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        self.compute(node)
    }
    /// [`Operation::reference`] of a node that [`Operation::check`] has accepted; call that.
    ///
    /// # Errors
    /// As [`Operation::check`].
    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported>;
}

impl Debug for dyn Operation + '_ {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Nodes of the forms that operations have, with `dtype` for source 0. An operation accepts those that suit it.
fn usual_forms(op: &str, dtype: DataType) -> Vec<Node> {
    use DataType::{F32, I32, I64};
    let tensor = Tensor::contiguous;
    let (x, wide) = (tensor(dtype, [512, 8, 2, 1]), tensor(dtype, [1024, 8, 2, 1]));
    // Rotary embeddings keep their number of dimensions in word 1.
    let params = OpParams(std::array::from_fn(|index| if index == 1 { 64 } else { 0 }));
    let node = |params, output, sources: &[Tensor]| {
        let sources = sources.iter().copied().map(Some).collect();
        Node::new(op, params, output, sources)
    };
    let plain = OpParams::default();
    let mut nodes = Vec::new();
    for result in [dtype, F32] {
        let y = tensor(result, x.ne);
        nodes.extend([
            node(plain, y, &[x]),
            node(plain, y, &[x, x]),
            node(plain, y, &[x, y]),
            node(plain, y, &[x, tensor(F32, x.ne)]),
            node(plain, y, &[wide]),
            node(params, y, &[x, tensor(I32, [2, 1, 1, 1])]),
        ]);
    }
    nodes.extend([
        // Products of floats and of whole numbers, rows picked out, rows put in.
        node(plain, tensor(F32, [8, 4, 2, 1]), &[x, tensor(F32, [512, 4, 2, 1])]),
        node(plain, tensor(I32, [8, 4, 2, 1]), &[x, tensor(dtype, [512, 4, 2, 1])]),
        node(plain, tensor(F32, [512, 3, 2, 1]), &[x, tensor(I32, [3, 2, 1, 1])]),
        node(plain, x, &[x, tensor(I32, [3, 2, 1, 1])]),
    ]);
    for result in [dtype, DataType::F16] {
        let rows = tensor(result, [512, 20, 2, 1]);
        nodes.push(node(plain, rows, &[x, tensor(I64, [8, 2, 1, 1]), rows]));
    }
    nodes
}
