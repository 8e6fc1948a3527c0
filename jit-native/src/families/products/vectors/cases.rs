//! What the machine for decoded tokens has to get right beside its products.

use super::build::OPERATIONS;
use crate::families::elements::cases::{f32s, norm, one};
use crate::kit::Case;
use aie_hal::Arch;

/// What a decoded token needs beside its products: elements and rows that are no whole slices of the cores.
pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let operations = OPERATIONS.iter();
    operations.map(|op| if op.contains("NORM") { norm(op, [578, 2, 1, 1]) } else { one(op, f32s) }).collect()
}
