//! What a decoded token has beside products and attention: elements and rows that are no whole vectors, for one column and for several.

use super::FAMILY;
use crate::families::copies;
use crate::families::elements::cases::{f32s, norm, one, rotation};
use crate::kit::{Case, Exactness};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let computed = FAMILY.operations.iter().filter(|op| !copies::FAMILY.operations.contains(op) && **op != "ROPE");
    let mut cases: Vec<Case> =
        computed.map(|op| if op.contains("NORM") { norm(op, [578, 2, 1, 1]) } else { one(op, f32s) }).collect();
    // Elements for more than one column, and in tiles of which two are in a ring.
    let wide = f32s([8192, 1, 1, 1]);
    cases.push(Case::new("ADD", wide, &[wide, wide]));
    // One token, and two of which each has four positions.
    cases.extend([
        rotation([64, 4, 1, 1], [64, 0], 1, false),
        rotation([64, 3, 1, 1], [64, 2], 1, true),
        rotation([80, 3, 1, 1], [64, 2], 1, false),
        rotation([64, 3, 2, 1], [64, 8], 4, false).ints(&[(11, 8), (12, 12), (13, 12), (14, 0)]),
    ]);
    let copied = |rows: Tensor, to: Tensor, op: &str| Case::new(op, to, &[rows, to]).exactly(Exactness::Bytes);
    let (line, halves) = (f32s([66, 5, 1, 1]), Tensor::contiguous(DataType::F16, [66, 5, 1, 1]));
    cases.push(copied(line, halves, "CPY"));
    cases.push(copies::cases::get_rows().exactly(Exactness::Bytes));
    cases.extend(["CONT", "DUP"].map(|op| Case::new(op, line, &[line]).exactly(Exactness::Bytes)));
    cases.extend(
        [DataType::F32, DataType::F16, DataType::BF16]
            .map(copies::cases::set_rows)
            .map(|case| case.exactly(Exactness::Bytes)),
    );
    cases
}
