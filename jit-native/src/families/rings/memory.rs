//! The buffers of a core, and of the mem tile for it.

use super::parameters::{OFFSET, WORDS};
use crate::array::CoreMemory;

/// Bytes of a block of weights, of an operand's, and of results: 16 of f32.
pub(super) const BLOCK: u32 = 2048;
pub(super) const OPERAND_BLOCK: u32 = 128;
pub(super) const RESULT_BLOCK: u32 = 64;
/// Buffers for them.
pub(super) const DEPTH: u8 = 4;
pub(super) const OPERAND_DEPTH: u8 = 2;
/// Where the buffers lie in a core: the weights' as one circle of 8 KiB.
pub(super) const OPERAND: u32 = OFFSET + 4 * WORDS;
pub(super) const RESULT: u32 = OPERAND + OPERAND_BLOCK * OPERAND_DEPTH as u32;
pub(super) const WEIGHTS: u32 = 0x2000;
/// Locks of a core's rings: the first of two, for empty and full buffers.
pub(super) const WEIGHTS_LOCKS: u8 = 0;
pub(super) const OPERAND_LOCKS: u8 = 2;
pub(super) const RESULT_LOCKS: u8 = 4;

/// As the array has them.
pub(super) const CORE: CoreMemory = CoreMemory {
    weights: (WEIGHTS, BLOCK, DEPTH),
    operand: (OPERAND, OPERAND_BLOCK, OPERAND_DEPTH),
    result: (RESULT, RESULT_BLOCK, 1),
    parameters: (OFFSET, WORDS),
};
