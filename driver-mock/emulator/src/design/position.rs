//! Which tile is meant.

use aie_hal::Arch;
use aie_hal::format::register::TileKind;
use serde::Serialize;
use std::fmt;

/// A tile of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Position {
    /// Column, counted from the partition's first.
    pub column: u8,
    /// Row; 0 is the shim.
    pub row: u8,
    /// Kind of tile.
    pub kind: TileKind,
}

impl Position {
    /// The tile of a generation's array. None above its last row. Columns are not limited: how many a partition has is
    /// decided when it is made.
    pub fn new(arch: &Arch, column: u8, row: u8) -> Option<Self> {
        arch.tile_kind(row).map(|kind| Self { column, row, kind })
    }

    /// What it is found by: column, row.
    pub fn key(self) -> (u8, u8) {
        (self.column, self.row)
    }
}

/// As `mem (0,1)`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({},{})", self.kind, self.column, self.row)
    }
}
