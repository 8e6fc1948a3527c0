//! A node of a compute graph, reduced to what decides its kernel.

use crate::tensor::{DataType, Tensor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// ggml's 64 bytes of parameters, as sixteen 32-bit words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpParams(pub [i32; 16]);

impl OpParams {
    /// Word `index` as an integer.
    pub fn int(&self, index: usize) -> i32 {
        self.0[index]
    }

    /// Word `index` as a float.
    pub fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.0[index].cast_unsigned())
    }

    /// The bytes as they lie in memory (little-endian words).
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Operation, parameters and tensors. Plain data; no pointers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// ggml's description in upper case (`ggml_op_desc`): `MUL_MAT`, `SILU`, `SWIGLU`.
    pub op: String,
    /// Parameters.
    pub params: OpParams,
    /// The result.
    pub output: Tensor,
    /// Sources by ggml's slots; a hole is `None`. Trailing holes are cut off.
    pub sources: Vec<Option<Tensor>>,
    /// Results behind the first, which only fused operations have. They are f32 without gaps, also on the array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_outputs: Vec<Tensor>,
}

impl Node {
    /// A node with one result.
    pub fn new(op: impl Into<String>, params: OpParams, output: Tensor, sources: Vec<Option<Tensor>>) -> Self {
        Self { op: op.into(), params, output, sources, further_outputs: Vec::new() }
    }

    /// Source `index`, if present.
    pub fn source(&self, index: usize) -> Option<&Tensor> {
        self.sources.get(index).and_then(Option::as_ref)
    }

    /// The sources that are present, in slot order: the inputs of the node's kernel.
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.sources.iter().flatten()
    }

    /// The results; all nodes of ggml have one.
    pub fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.output).chain(&self.further_outputs)
    }

    /// Every tensor: present sources, then the outputs, which is the argument order of the kernel.
    pub fn arguments(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs().chain(self.outputs())
    }
}

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
}
