//! The memory and the locks that the family's array has.

use super::parameters::{OFFSET, WORDS};

/// Cores of a column.
pub(super) const CORES: usize = 4;
/// A core's memory behind its parameters.
pub(in crate::families) const ARENA: u32 = OFFSET + 4 * WORDS;
pub(in crate::families) const ARENA_BYTES: usize = 0x1_0000 - ARENA as usize;
pub(super) const MEM_TILE_BYTES: usize = 0x8_0000;

/// Locks of a core's rings: the first of two, for empty and full buffers. The first three are those of the design.
pub(super) mod lock {
    pub const KEYS: u8 = 0;
    pub const QUERIES: u8 = 2;
    pub const PART: u8 = 4;
    pub const VALUES: u8 = 6;
    pub const MASK: u8 = 8;
    pub const ARRIVING: u8 = 10;
    pub const RESULT: u8 = 12;
    /// Of the mem tile, for core 0; each core has two.
    pub const MEM_VALUES: u8 = 32;
    pub const MEM_MASK: u8 = 40;
    pub const MEM_RESULT: u8 = 48;
}
