//! The memory and the locks that the family's array has.

use super::parameters::{OFFSET, WORDS};

/// Cores of a column.
pub(super) const CORES: usize = 4;
/// A core's memory behind its parameters.
pub(super) const ARENA: u32 = OFFSET + 4 * WORDS;
pub(super) const ARENA_BYTES: usize = 0x1_0000 - ARENA as usize;
pub(super) const MEM_TILE_BYTES: usize = 0x8_0000;
/// Locks of a core's rings, as the design gives them: the first of two, for empty and full buffers.
pub(super) const WEIGHTS: u8 = 0;
pub(super) const ARRIVING: u8 = 2;
pub(super) const SUMS: u8 = 4;
