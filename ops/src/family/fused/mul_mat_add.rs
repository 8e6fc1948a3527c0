//! A product and the sum that takes it: what a layer adds to the values that pass it by, or a bias.
//!
//! No compiler makes it yet, so that only reference kernels are it. It stays because a residual sum around a product is what the next
//! native products are built with.

use crate::fused_form::{Form, Origin, Part};
use crate::node::{Node, OpParams};
use crate::tensor::{DataType, Tensor};
use Origin::{Made, Source};

/// Sources: the two of the product, and what is added.
pub static MUL_MAT_ADD: Form = Form {
    name: "MUL_MAT_ADD",
    parts: &[
        Part { op: "MUL_MAT", sources: &[Source(0), Source(1)] },
        Part { op: "ADD", sources: &[Made(0), Source(2)] },
    ],
    parameters: 0,
    commutes: true,
    in_place: &[2],
    example: |dtype| {
        let tensor = Tensor::contiguous;
        let out = tensor(DataType::F32, [8, 2, 1, 1]);
        let factors = [tensor(dtype, [512, 8, 1, 1]), tensor(DataType::F32, [512, 2, 1, 1])];
        let sources = factors.into_iter().chain([out]).map(Some).collect();
        Node::new("MUL_MAT_ADD", OpParams::default(), out, sources)
    },
};
