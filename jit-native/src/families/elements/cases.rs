//! What functions of elements and of rows have to get right: every operation on f32, and the paths around them (broadcast, bf16, long rows, sinks).

use super::elementwise;
use crate::kit::{Case, Exactness, Input};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// Elements that are no whole vectors, for all columns.
const SOME: [usize; 4] = [602, 1, 1, 1];

pub(in crate::families) fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

fn bf16s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::BF16, ne)
}

/// Functions of elements.
pub(super) fn elementwise(_: &Arch) -> Vec<Case> {
    let mut cases: Vec<Case> = elementwise::OPERATIONS.iter().map(|op| one(op, f32s)).collect();
    cases.extend(["ADD", "SILU", "SWIGLU"].map(|op| one(op, bf16s).exactly(Exactness::ROUNDED)));
    // Rows, columns and one number, repeated.
    let ne = [34, 5, 3, 1];
    cases.extend([[34, 1, 1, 1], [1, 5, 1, 1], [1, 1, 1, 1]].map(|b| Case::new("MUL", f32s(ne), &[f32s(ne), f32s(b)])));
    // Gate and values in one tensor.
    cases.push(Case::new("SWIGLU", f32s([64, 3, 1, 1]), &[f32s([128, 3, 1, 1])]));
    cases
}

/// An operation on a line of elements.
pub(in crate::families) fn one(op: &str, tensor: fn([usize; 4]) -> Tensor) -> Case {
    let x = tensor(SOME);
    if ["ADD", "SUB", "MUL", "DIV"].contains(&op) {
        return Case::new(op, x, &[x, x]).input(1, Input::Between(0.1, 1.0));
    }
    if op.contains("GLU") {
        let case = Case::new(op, x, &[x, x]).floats(&[(2, 1.702), (3, 7.0)]);
        return case.input(0, Input::Between(-9.0, 9.0)).input(1, Input::Between(-9.0, 9.0));
    }
    let (low, high) = match op {
        "SQRT" | "LOG" => (0.01, 100.0),
        "SIN" | "COS" => (-6.5, 6.5),
        _ => (-8.0, 8.0),
    };
    let parameters = [(0, 0.1), (1, 0.8), (2, 1.3), (3, 0.5), (4, -1e-6)];
    Case::new(op, x, &[x]).floats(&parameters).input(0, Input::Between(low, high))
}

/// A norm of rows, with weights where it has them.
pub(in crate::families) fn norm(op: &str, ne: [usize; 4]) -> Case {
    let (x, weights) = (f32s(ne), f32s([ne[0], 1, 1, 1]));
    let sources = if op.ends_with("_MUL") { vec![x, weights] } else { vec![x] };
    Case::new(op, x, &sources).floats(&[(0, 1e-5)])
}

/// Norms and softmax.
pub(super) fn rows(_: &Arch) -> Vec<Case> {
    let short = [66, 5, 2, 1];
    let mut cases: Vec<Case> =
        ["RMS_NORM", "RMS_NORM_MUL", "NORM", "NORM_MUL", "L2_NORM"].map(|op| norm(op, short)).into();
    cases.push(norm("RMS_NORM_MUL", [4800, 2, 1, 1]));
    let x = f32s([16, 3, 8, 1]);
    cases.push(Case::new("GROUP_NORM", x, &[x]).floats(&[(1, 1e-5)]).ints(&[(0, 4)]));
    let x = f32s([40, 3, 6, 1]);
    let scale = [(0, 0.7), (1, 0.0)];
    let soft_max = |sources: &[Tensor]| Case::new("SOFT_MAX", x, sources).input(0, Input::Between(-9.0, 9.0));
    cases.push(soft_max(&[x]).floats(&scale));
    for mask in [f32s, bf16s] {
        let sources = [x, mask([40, 4, 1, 1]), f32s([6, 1, 1, 1])];
        cases.push(soft_max(&sources).floats(&[(0, 0.7), (1, 8.0)]).input(1, Input::Mask));
    }
    let x = f32s([4608, 2, 1, 1]);
    cases.push(Case::new("SOFT_MAX", x, &[x]).floats(&scale).input(0, Input::Between(-9.0, 9.0)));
    cases
}

/// Rotations of pairs beside each other and half a row apart, of a part of a row, with factors, with four positions.
pub(super) fn rope(_: &Arch) -> Vec<Case> {
    vec![
        rotation([64, 4, 3, 1], [64, 0], 1, false),
        rotation([64, 3, 2, 1], [64, 2], 1, true),
        rotation([80, 3, 2, 1], [64, 2], 1, false),
        rotation([64, 3, 3, 1], [64, 8], 4, false).ints(&[(11, 8), (12, 12), (13, 12), (14, 0)]),
    ]
}

/// A rotation with so many positions for each token, and with frequency factors or without.
pub(in crate::families) fn rotation(
    ne: [usize; 4],
    [dimensions, mode]: [i32; 2],
    positions: usize,
    factors: bool,
) -> Case {
    let mut sources = vec![f32s(ne), Tensor::contiguous(DataType::I32, [positions * ne[2], 1, 1, 1])];
    if factors {
        sources.push(f32s([dimensions as usize / 2, 1, 1, 1]));
    }
    let numbers = (0..positions * ne[2]).map(|index| 7 + 5 * index as u32).collect();
    let parameters = [(5, 10_000.0), (6, 1.0), (7, 0.0), (8, 1.0), (9, 32.0), (10, 1.0)];
    let case = Case::new("ROPE", f32s(ne), &sources).floats(&parameters);
    let case = case.ints(&[(1, dimensions), (2, mode), (4, 512)]).input(1, Input::Whole(numbers));
    if factors { case.input(2, Input::Between(0.9, 1.1)) } else { case }
}
