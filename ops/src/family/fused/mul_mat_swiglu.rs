//! The gate and the values of a gated layer, and the gate's function of both.
//!
//! No compiler makes it yet, so that only reference kernels are it. It stays because two products with one right operand and a gate behind
//! them are what the next native products are built with.

use crate::fused_form::{Form, Origin, Part};
use crate::node::{Node, OpParams};
use crate::tensor::{DataType, Tensor};
use Origin::{Made, Source};

/// Sources: the weights of the gate, those of the values, and the right operand that both have.
pub static MUL_MAT_SWIGLU: Form = Form {
    name: "MUL_MAT_SWIGLU",
    parts: &[
        Part { op: "MUL_MAT", sources: &[Source(0), Source(2)] },
        Part { op: "MUL_MAT", sources: &[Source(1), Source(2)] },
        Part { op: "SWIGLU", sources: &[Made(0), Made(1)] },
    ],
    parameters: 2,
    commutes: false,
    in_place: &[],
    example: |dtype| {
        let tensor = Tensor::contiguous;
        let weights = Some(tensor(dtype, [512, 8, 1, 1]));
        let sources = vec![weights, weights, Some(tensor(DataType::F32, [512, 2, 1, 1]))];
        Node::new("MUL_MAT_SWIGLU", OpParams::default(), tensor(DataType::F32, [8, 2, 1, 1]), sources)
    },
};
