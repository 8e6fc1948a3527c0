//! A norm and the product with its weights: every layer of a language model begins with it.

use crate::fused_form::{Form, Origin, Part};
use crate::node::{Node, OpParams};
use crate::tensor::{DataType, Tensor};
use Origin::{Made, Source};

const SCALED: Part = Part { op: "MUL", sources: &[Made(0), Source(1)] };

/// Sources: the rows, and their weights.
pub static RMS_NORM_MUL: Form = Form {
    name: "RMS_NORM_MUL",
    parts: &[Part { op: "RMS_NORM", sources: &[Source(0)] }, SCALED],
    parameters: 0,
    commutes: false,
    in_place: &[0],
    example: |dtype| example("RMS_NORM_MUL", dtype),
};

/// Sources: the rows, and their weights.
pub static NORM_MUL: Form = Form {
    name: "NORM_MUL",
    parts: &[Part { op: "NORM", sources: &[Source(0)] }, SCALED],
    parameters: 0,
    commutes: false,
    in_place: &[0],
    example: |dtype| example("NORM_MUL", dtype),
};

fn example(op: &str, dtype: DataType) -> Node {
    let (rows, weights) = ([512, 2, 1, 1], Tensor::contiguous(DataType::F32, [512, 1, 1, 1]));
    let sources = vec![Some(Tensor::contiguous(dtype, rows)), Some(weights)];
    Node::new(op, OpParams::default(), Tensor::contiguous(DataType::F32, rows), sources)
}
