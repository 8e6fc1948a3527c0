//! What stays where a stream has written it.

use crate::format::tile_address;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Memory of a tile that nothing but streams writes, for all dispatches of one PDI: no core and no channel. Who makes the PDI promises that.
/// So what a stream writes there as it is already can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptMemory {
    /// Column, counted from the partition's first.
    pub column: u8,
    /// Row.
    pub row: u8,
    /// Offset of the first byte in the tile.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
}

impl KeptMemory {
    pub(super) fn addresses(&self) -> Range<u64> {
        let first = u64::from(tile_address(self.column, self.row, self.offset));
        first..first + u64::from(self.bytes)
    }
}
