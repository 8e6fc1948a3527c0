//! What an operation has to state.

use crate::design::Design;
use crate::node::{Node, OpParams};
use crate::tensor::DataType;
use aie_hal::{Arch, HostFunction};
use std::fmt::Debug;
use std::sync::Arc;
use thiserror::Error;

/// Why a node is not supported.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum Unsupported {
    /// No such operation in the table.
    #[error("operation {op} is not in the table")]
    Operation {
        /// Its name.
        op: String,
    },
    /// A type the operation does not take.
    #[error("{op}: type {dtype} of {operand}; possible: {possible}")]
    Type {
        /// Operation.
        op: &'static str,
        /// Which tensor, e.g. "source 1".
        operand: String,
        /// Its type.
        dtype: DataType,
        /// What would do.
        possible: &'static str,
    },
    /// A shape, stride or parameter the operation does not take.
    #[error("{op}: {reason}")]
    Shape {
        /// Operation.
        op: &'static str,
        /// What is wrong and what would do.
        reason: String,
    },
    /// The array cannot hold the design.
    #[error("{op} on {arch}: {reason}")]
    Resources {
        /// Operation.
        op: &'static str,
        /// Generation.
        arch: String,
        /// What is short.
        reason: String,
    },
}

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
pub trait Operation: Sync + Send + Debug {
    /// ggml's description in upper case.
    fn name(&self) -> &'static str;
    /// Whether type and shape rules allow `node` (its original tensors).
    ///
    /// # Errors
    /// [`Unsupported`] with the rule that is broken.
    fn check(&self, node: &Node) -> Result<(), Unsupported>;
    /// Where it runs.
    fn placement(&self, node: &Node) -> Placement;
    /// How tensors may be reshaped.
    fn flatten(&self) -> Flatten {
        Flatten::Never
    }
    /// Whether [`Node::params`] are part of the kernel's name (the C++ backend leaves them out for unary operations).
    fn params_in_name(&self) -> bool {
        true
    }
    /// The parameters that the result depends on although they are not part of the name: kernels that differ in them share a
    /// name. Where kernels are kept by name, these have to be added to it.
    fn nameless_params<'a>(&self, params: &'a OpParams) -> &'a [i32] {
        let _ = params;
        &[]
    }
    /// The element type on the array for source `index` (`None`: the output) given its original type. `default` is what
    /// the general rules give: f32 for f16 (or bf16, by policy), the type itself otherwise.
    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        let _ = (node, index);
        default
    }
    /// Whether the kernel reads source `index` with the strides it has, as a shim DMA can, so that no packed copy is made.
    /// Only for types that stay as they are. The strides are then part of the kernel's name.
    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        let _ = (node, index);
        false
    }
    /// Whether a kernel of `node` has to read all of source `index` (`None`: write all of every output). One that touches
    /// less was made for other types or shapes, and is refused. Operations that choose among rows, skip elements or take
    /// sources larger than they need say no.
    fn needs_all(&self, node: &Node, index: Option<usize>) -> bool {
        let _ = (node, index);
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
        crate::table::examples(self.name(), dtype)
    }
    /// The operations of ggml's graph that a fused one stands for, in order; empty for ggml's own.
    fn stands_for(&self) -> Vec<&'static str> {
        Vec::new()
    }
    /// Tiles, buffers and channels for a normalised node, checked against the generation's resources.
    ///
    /// # Errors
    /// [`Unsupported::Resources`].
    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported>;
    /// The CPU function that defines the result of `node`, original or normalised. Inputs are the node's present sources
    /// in order, each as the [`crate::Tensor::span_bytes`] of its tensor.
    ///
    /// # Errors
    /// [`Unsupported`] as [`Operation::check`].
    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported>;
}
