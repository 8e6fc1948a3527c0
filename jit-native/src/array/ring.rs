//! Rings: equal buffers of one tile that are filled and emptied in turn.
//!
//! A ring is one end of what mlir-aie calls an ObjectFifo. Two locks count its buffers: *empty* starts with as many as there
//! are, *full* with 0. Who fills the next buffer acquires *empty* by 1 before and releases *full* by 1 after; who empties it does
//! the reverse. One of the two is a channel of the tile's DMA, the other its core, or in a mem tile another channel.

use super::error::ArrayError;
use super::tile::Tile;

/// Where a core sees its own memory; the offset in the tile's memory is added.
pub const OWN_MEMORY: u32 = 0x7_0000;
/// Where a core sees the memory of the tile below its own.
pub const SOUTH_MEMORY: u32 = 0x4_0000;
/// The number by which a core acquires and releases lock 0 of its own tile; others follow.
pub const OWN_LOCKS: u8 = 48;

/// Buffers of one tile with their two locks.
///
/// A dispatch may cut the memory of a ring differently for each shape; see [`Ring::cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    /// The tile.
    pub tile: Tile,
    /// Offset of buffer 0 in the tile's memory, in bytes.
    pub address: u32,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Number of buffers.
    pub depth: u8,
    /// Bytes of the whole ring.
    pub capacity: u32,
    /// The tile's lock that counts empty buffers.
    pub empty: u8,
    /// The tile's lock that counts full buffers.
    pub full: u8,
}

impl Ring {
    /// Locks hold six bits.
    const DEPTH: u8 = 63;

    /// The same memory as `depth` buffers of `stride` bytes.
    ///
    /// # Errors
    /// When they do not fit, or `stride` is no multiple of 4, or there is none.
    pub fn cut(self, stride: u32, depth: u8) -> Result<Self, ArrayError> {
        let ring = Self { stride, depth, ..self };
        ring.check()?;
        range("the size of a buffer", stride.into(), (self.capacity / u32::from(depth)).into())?;
        Ok(ring)
    }

    /// Whether its numbers make a ring.
    pub(super) fn check(&self) -> Result<(), ArrayError> {
        for (what, value) in [("the size of a buffer", self.stride), ("the address of a ring", self.address)] {
            if !value.is_multiple_of(4) {
                return Err(ArrayError::Unaligned { what, value: value.into(), unit: 4 });
            }
        }
        range("the number of buffers of a ring", self.depth.into(), Self::DEPTH.into())
    }

    /// Its memory, from the first byte to the one behind the last. What does not fit 32 bits is beyond any tile.
    pub(super) fn bytes(&self) -> (u32, u32) {
        (self.address, self.address.saturating_add(self.stride.saturating_mul(self.depth.into())))
    }

    /// Two rings of one tile that are used at once.
    pub(super) fn check_apart(&self, other: &Self) -> Result<(), ArrayError> {
        let ((start, end), (used_start, used_end)) = (self.bytes(), other.bytes());
        if start < used_end && used_start < end {
            return Err(ArrayError::Overlap { tile: self.tile, start, end, used_start, used_end });
        }
        let shared = [self.empty, self.full].into_iter().find(|lock| [other.empty, other.full].contains(lock));
        shared.map_or(Ok(()), |number| Err(ArrayError::InUse { tile: self.tile, what: "lock", number }))
    }

    /// Where a core sees buffer 0 in its own tile's memory.
    #[must_use]
    pub fn core_address(&self) -> u32 {
        OWN_MEMORY + self.address
    }

    /// The numbers by which the tile's own core knows the locks of empty and of full buffers.
    #[must_use]
    pub fn core_locks(&self) -> (u8, u8) {
        (OWN_LOCKS + self.empty, OWN_LOCKS + self.full)
    }
}

fn range(what: &'static str, value: u64, max: u64) -> Result<(), ArrayError> {
    let error = ArrayError::Range { what, value, min: 1, max };
    if value == 0 || value > max { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_cut_within_their_memory() {
        let ring =
            Ring { tile: Tile::new(0, 2), address: 0x400, stride: 64, depth: 2, capacity: 128, empty: 0, full: 1 };
        assert_eq!(ring.cut(32, 4), Ok(Ring { stride: 32, depth: 4, ..ring }));
        assert_eq!(ring.cut(128, 1), Ok(Ring { stride: 128, depth: 1, ..ring }));
        assert_eq!(ring.cut(68, 2).unwrap_err().to_string(), "the size of a buffer is 68: it has to be 1 to 64");
        assert_eq!(ring.cut(30, 2).unwrap_err().to_string(), "the size of a buffer is 30, no multiple of 4");
        assert!(ring.cut(0, 2).is_err() && ring.cut(4, 0).is_err() && ring.cut(1, 64).is_err());
        assert_eq!((ring.core_address(), ring.core_locks()), (0x7_0400, (48, 49)));
    }

    #[test]
    fn rings_in_use_at_once_share_nothing() {
        let ring =
            Ring { tile: Tile::new(0, 2), address: 0x400, stride: 64, depth: 2, capacity: 128, empty: 0, full: 1 };
        let behind = Ring { address: 0x480, empty: 2, full: 3, ..ring };
        assert_eq!(ring.check_apart(&behind), Ok(()));
        let message = |other: Ring| ring.check_apart(&other).unwrap_err().to_string();
        let overlap = "bytes 0x400..0x480 of tile (0,2) are in use from 0x47c to 0x4fc";
        assert_eq!(message(Ring { address: 0x47C, ..behind }), overlap);
        assert_eq!(message(Ring { full: 0, ..behind }), "lock 0 of tile (0,2) is in use already");
    }
}
