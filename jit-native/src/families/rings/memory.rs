//! What lies where in the data memory of a product core.
//!
//! ```text
//!   0x0000  parameters, of the lower core alone | 0x0040 arriving columns, 2 x 128 | 0x0140 a result | 0x0180 constants of the types
//!   0x0380  weights: a ring of 4 x 2048
//!   0x2380  spare words of a portion            \
//!   0x4000  words of a portion                   | a column in bf16 while tiles are made of it
//!   0x6000  sums of units, of 16 rows            |
//!   0x8000  offsets of the columns              /
//!   0x9000  tiles of the columns
//! ```
//!
//! A bank has 16 KiB, and what a loop loads and what it stores are in two: words move from the ring or spare ones to the portion, and back.

use super::parameters::{OFFSET, WORDS};
use crate::array::CoreMemory;

/// A place: its offset and bytes.
pub(super) type Place = (u32, u32);

/// The block of parameters.
pub(super) const PARAMETERS: Place = (OFFSET, 4 * WORDS);
/// Columns as they arrive: two buffers.
pub(super) const OPERAND: Place = (0x40, OPERAND_DEPTH as u32 * OPERAND_BLOCK);
pub(super) const OPERAND_BLOCK: u32 = 128;
pub(super) const OPERAND_DEPTH: u8 = 2;
/// One result of sixteen rows.
pub(super) const RESULT: Place = (0x140, RESULT_BLOCK);
pub(super) const RESULT_BLOCK: u32 = 64;
/// What the program knows of the types of weights.
pub(super) const TYPES: Place = (0x180, 0x180);
/// Where a job is in its stream of weights.
pub(super) const STATE: Place = (0x300, 0x20);
/// What the program knows of the type at hand.
pub(super) const KNOWN: Place = (0x320, 0x40);
/// Where words of a portion are put in order, in turn with [`PORTION`]. It begins where [`RING`] ends, so that a portion that begins there may
/// go on behind it.
pub(super) const SPARE: Place = (RING.0 + RING.1, PORTION.0 - RING.0 - RING.1);
/// Factors of the scales of a portion, and sums of its parts, once its words are in order: the memory of [`SPARE`].
pub(super) const FACTORS: Place = (SPARE.0, 0x1200);
pub(super) const SUMS: Place = (SPARE.0 + FACTORS.1, SPARE.1 - FACTORS.1);
/// Words of a portion.
pub(super) const PORTION: Place = (0x4000, 0x2000);
/// Of the factors, where those of parts begin, behind those of the units of a group: there is only one then.
pub(super) const PART_FACTORS: Place = (FACTORS.0 + 128, FACTORS.1 - 128);
/// Sums of units of sixteen rows. At the end there are those of a portion, where fewer are kept.
pub(super) const PARTS: Place = (0x6000, 0x2000);
/// Offsets of all columns.
pub(super) const OFFSETS: Place = (0x8000, 0x1000);
/// The same of types with large units, of which there are fewer sums and more offsets.
pub(super) const LARGE_PARTS: Place = (PARTS.0, 0x1000);
pub(super) const LARGE_OFFSETS: Place = (0x7000, 0x2000);
/// A column in bf16, or a piece of it, in the memory of all of these, which are not in use yet.
pub(super) const LINEAR: Place = (SPARE.0, TILES.0 - SPARE.0);
/// Weights as they arrive: [`DEPTH`] buffers of [`BLOCK`].
pub(super) const RING: Place = (0x380, DEPTH as u32 * BLOCK);
pub(super) const DEPTH: u8 = 4;
pub(super) const BLOCK: u32 = 2048;
/// Rows begin at multiples of these bytes.
pub(super) const SKIP: usize = 64;
/// Tiles of all columns.
pub(super) const TILES: Place = (0x9000, 0x7000);
/// Bytes of what is kept of a part of the units of a group: what offsets add, and the sum of the part.
pub(super) const OFFSET_BYTES: i64 = 128;

/// Locks of a core's rings: the first of two, for empty and full buffers.
pub(super) const WEIGHTS_LOCKS: u8 = 0;
pub(super) const OPERAND_LOCKS: u8 = 2;
pub(super) const RESULT_LOCKS: u8 = 4;

/// As the array has them.
pub(super) const CORE: CoreMemory = CoreMemory {
    weights: (RING.0, BLOCK, DEPTH),
    operand: (OPERAND.0, OPERAND_BLOCK, OPERAND_DEPTH),
    result: (RESULT.0, RESULT_BLOCK, 1),
    parameters: (OFFSET, WORDS),
};
