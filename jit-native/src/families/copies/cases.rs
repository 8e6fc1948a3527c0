//! What copies have to get right, to the byte: layouts, f32 that becomes f16 and bf16, and rows whose streams are made for them.

use crate::kit::{Case, Exactness, Input};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// Copies.
pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let f32s = |ne| Tensor::contiguous(DataType::F32, ne);
    let (turned, some) = (f32s([20, 30, 3, 1]), f32s([12, 5, 4, 1]));
    let turned = Tensor { ne: [30, 20, 3, 1], nb: [turned.nb[1], turned.nb[0], turned.nb[2], turned.nb[3]], ..turned };
    let mut cases = vec![
        Case::new("CONT", f32s(turned.ne), &[turned]),
        Case::new("DUP", some, &[some]),
        Case::new("CONCAT", f32s([12, 10, 4, 1]), &[some, some]).ints(&[(0, 1)]),
        Case::new("REPEAT", f32s([24, 5, 8, 1]), &[some]),
        get_rows(),
        set_rows(DataType::F32),
    ];
    cases.extend([DataType::F16, DataType::BF16].map(set_rows));
    let halves = Tensor::contiguous(DataType::F16, [66, 5, 1, 1]);
    cases.push(Case::new("CPY", halves, &[f32s([66, 5, 1, 1]), halves]));
    cases.extend(shapes());
    cases.into_iter().map(|case| case.exactly(Exactness::Bytes)).collect()
}

/// What shims are asked for: transfers of 4 to 256 bytes; few rows out of longer ones; rows as far apart as steps go; a task that repeats
/// as often as it can, and one whose iterations are a fourth dimension.
fn shapes() -> Vec<Case> {
    let f32s = |ne| Tensor::contiguous(DataType::F32, ne);
    let of = |ne: [usize; 4], words: [usize; 3]| {
        let [rows, planes, blocks] = words.map(|words| 4 * words);
        Case::new("CONT", f32s(ne), &[Tensor { ne, nb: [4, rows, planes, blocks], ..f32s(ne) }])
    };
    let mut cases: Vec<Case> = [1, 4, 16, 32, 64].map(|words| of([words, 1, 1, 1], [words; 3])).into();
    cases.extend([2, 64].map(|rows| of([32, rows, 1, 1], [40, 40 * rows, 40 * rows])));
    cases.push(of([32, 2, 1, 1], [1 << 20, 2 << 20, 2 << 20]));
    cases.push(Case::new("REPEAT", f32s([32, 256, 1, 1]), &[f32s([32, 1, 1, 1])]));
    cases.push(of([6, 5, 4, 3], [7, 40, 200]));
    cases
}

/// Rows of a table, one of them twice.
pub(in crate::families) fn get_rows() -> Case {
    let f32s = |ne| Tensor::contiguous(DataType::F32, ne);
    let sources = [f32s([70, 40, 1, 1]), Tensor::contiguous(DataType::I32, [4, 1, 1, 1])];
    Case::new("GET_ROWS", f32s([70, 4, 1, 1]), &sources).input(1, Input::Whole(vec![3, 39, 0, 3]))
}

/// Three rows into a cache, two of them neighbours.
pub(in crate::families) fn set_rows(dtype: DataType) -> Case {
    rows_to(dtype, 64, vec![4, 5, 0])
}

/// Rows of so many elements into these places of a cache.
pub(in crate::families) fn rows_to(dtype: DataType, elements: usize, places: Vec<u32>) -> Case {
    let count = places.len();
    let rows = Tensor::contiguous(DataType::F32, [elements, count, 1, 1]);
    let (indices, cache) =
        (Tensor::contiguous(DataType::I64, [count, 1, 1, 1]), Tensor::contiguous(dtype, [elements, 11, 1, 1]));
    Case::new("SET_ROWS", cache, &[rows, indices, cache]).input(1, Input::Whole(places))
}
