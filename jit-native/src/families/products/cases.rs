//! What products have to get right: each type of weights with one column, with a few, and with enough for the loop of many; and
//! integers.

use crate::kit::{Case, Exactness, Input};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// Types of weights, with a length of rows.
const WEIGHTS: [(DataType, usize); 7] = [
    (DataType::BF16, 256),
    (DataType::F32, 128),
    (DataType::Q4_0, 128),
    (DataType::Q4_1, 128),
    (DataType::Q8_0, 128),
    (DataType::Q4_K, 256),
    (DataType::Q6_K, 512),
];

/// Columns: a token, some, and a prompt.
const COLUMNS: [usize; 3] = [1, 3, 20];

/// Products.
pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, depth) in WEIGHTS {
        cases.extend(COLUMNS.map(|columns| product(dtype, depth, 20, columns, DataType::F32)));
    }
    cases.push(product(DataType::BF16, 66, 18, 5, DataType::BF16));
    cases.extend(COLUMNS.map(integers));
    // Heads of keys, each for two heads of queries.
    let f32s = |ne| Tensor::contiguous(DataType::F32, ne);
    let heads = [Tensor::contiguous(DataType::BF16, [64, 20, 2, 1]), f32s([64, 2, 4, 1])];
    cases.push(Case::new("MUL_MAT", f32s([20, 2, 4, 1]), &heads).exactly(Exactness::PRODUCTS));
    cases
}

/// A product of integers, in rows that zeros follow on their way to the cores.
fn integers(columns: usize) -> Case {
    let sources = [20, columns].map(|rows| Tensor::contiguous(DataType::I8, [100, rows, 1, 1]));
    let case = Case::new("MUL_MAT", Tensor::contiguous(DataType::I32, [20, columns, 1, 1]), &sources);
    case.input(0, Input::Bytes).input(1, Input::Bytes).exactly(Exactness::Bytes)
}

fn product(weights: DataType, depth: usize, rows: usize, columns: usize, right: DataType) -> Case {
    let sources = [Tensor::contiguous(weights, [depth, rows, 1, 1]), Tensor::contiguous(right, [depth, columns, 1, 1])];
    let output = Tensor::contiguous(DataType::F32, [rows, columns, 1, 1]);
    Case::new("MUL_MAT", output, &sources).exactly(Exactness::PRODUCTS)
}
