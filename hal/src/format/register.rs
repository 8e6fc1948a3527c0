//! Tile registers: which kind of tile has one, and what is written to it.

use std::fmt;

/// A kind of tile. The kinds differ in what their registers' offsets are; aie2 and aie2p agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileKind {
    /// A tile with a core and 64 KiB of data memory.
    Core = 0,
    /// A tile with 512 KiB of memory and no core.
    Mem = 1,
    /// A tile of row 0, which reaches the host's memory.
    Shim = 2,
}

impl TileKind {
    /// `number` when the tile has such a thing: they count from 0 to `last`.
    pub(super) fn within(self, what: &str, last: u8, number: u8) -> Result<u32, RegisterError> {
        within(format!("{what} of a {self} tile"), 0, last.into(), number)
    }
}

impl fmt::Display for TileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Mem => "mem",
            Self::Shim => "shim",
        })
    }
}

/// As its name.
impl serde::Serialize for TileKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A write to one register of a tile: `*offset = (*offset & !mask) | (value & mask)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterWrite {
    /// Offset of the register within the tile, in bytes.
    pub offset: u32,
    /// Bits that are written; [`u32::MAX`] for the whole word, which needs no reading.
    pub mask: u32,
    /// Their values.
    pub value: u32,
}

impl RegisterWrite {
    /// A write of the whole word.
    #[must_use]
    pub fn word(offset: u32, value: u32) -> Self {
        Self { offset, mask: u32::MAX, value }
    }

    /// A write of the bits in `mask`.
    #[must_use]
    pub fn masked(offset: u32, mask: u32, value: u32) -> Self {
        Self { offset, mask, value }
    }
}

/// A number is outside of what a field of a register holds, or the tile has no such register.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {min} to {max}, found {found}")]
pub struct RegisterError {
    /// What the number is, with the kind of tile.
    pub what: String,
    /// Least value.
    pub min: i64,
    /// Greatest value.
    pub max: i64,
    /// Requested value.
    pub found: i64,
}

/// `found` when it is in `min..=max`.
pub(super) fn within(what: impl Into<String>, min: i64, max: i64, found: impl Into<i64>) -> Result<u32, RegisterError> {
    let found = found.into();
    // The masks of the callers keep the bits of a negative number that its field has.
    if (min..=max).contains(&found) {
        Ok(found as u32)
    } else {
        Err(RegisterError { what: what.into(), min, max, found })
    }
}
