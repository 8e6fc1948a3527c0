//! Locks: counting semaphores of 6 bits that tiles synchronise with.
//!
//! A lock is set by writing its value register. It is acquired and released by *reading* an address that says lock,
//! operation and value; bit 0 of what is read says whether it was done, so that software polls. Source: aie-rt; the
//! same on aie2 and aie2p.

use super::register::{RegisterError, RegisterWrite, TileKind, within};

/// A lock of a tile, by the tile's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    tile: TileKind,
    id: u8,
}

/// A request to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockRequest {
    /// Below 0: waits until the lock is at least the negative of it, then adds it. From 0 on: waits until it is equal.
    Acquire(i8),
    /// Adds it.
    Release(i8),
}

/// Bit of what a request reads that says whether it was done.
pub const DONE: u32 = 1;

impl Lock {
    /// The lock `id`: 0 to 15 in a core or shim tile, 0 to 63 in a mem tile.
    ///
    /// # Errors
    /// When the tile does not have it.
    pub fn new(tile: TileKind, id: u8) -> Result<Self, RegisterError> {
        tile.within("lock", if tile == TileKind::Mem { 63 } else { 15 }, id)?;
        Ok(Self { tile, id })
    }

    /// The lock whose value register is at `offset`. None if that is none.
    #[must_use]
    pub fn at(tile: TileKind, offset: u32) -> Option<Self> {
        let distance = offset.checked_sub(Self::first(tile))?;
        let lock = Self::new(tile, u8::try_from(distance / 0x10).ok()?).ok()?;
        distance.is_multiple_of(0x10).then_some(lock)
    }

    /// Its number in its tile.
    #[must_use]
    pub fn id(self) -> u8 {
        self.id
    }

    /// Offset of its value register, of which the low 6 bits are the value.
    #[must_use]
    pub fn register(self) -> u32 {
        Self::first(self.tile) + 0x10 * u32::from(self.id)
    }

    fn first(tile: TileKind) -> u32 {
        match tile {
            TileKind::Core => 0x1_F000,
            TileKind::Mem => 0xC_0000,
            TileKind::Shim => 0x1_4000,
        }
    }

    /// Sets the lock to `value`, -64 to 63, of which the register keeps the low 6 bits, as aie-rt writes it.
    ///
    /// # Errors
    /// When the value is outside of this range.
    pub fn set(self, value: i8) -> Result<RegisterWrite, RegisterError> {
        let value = within("value of a lock", -64, 63, value)?;
        Ok(RegisterWrite::word(self.register(), value & 0x3F))
    }

    /// Offset whose reading makes `request`; see [`DONE`].
    ///
    /// # Errors
    /// When the value is not from -64 to 63.
    pub fn request(self, request: LockRequest) -> Result<u32, RegisterError> {
        let first = match self.tile {
            TileKind::Core | TileKind::Shim => 0x4_0000,
            TileKind::Mem => 0xD_0000,
        };
        let (operation, value) = match request {
            LockRequest::Acquire(value) => (0x200, value),
            LockRequest::Release(value) => (0, value),
        };
        let value = within("value of a lock request", -64, 63, value)?;
        Ok(first + 0x400 * u32::from(self.id) + operation + 4 * (value & 0x7F))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_values_have_limits() {
        for (tile, last) in [(TileKind::Core, 15), (TileKind::Mem, 63), (TileKind::Shim, 15)] {
            let lock = Lock::new(tile, last).unwrap();
            assert_eq!(Lock::new(tile, last + 1).unwrap_err().max, i64::from(last));
            assert_eq!(lock.set(64).unwrap_err().to_string(), "value of a lock: expected -64 to 63, found 64");
            assert_eq!(lock.set(63).unwrap().value, 63);
            let register = lock.register();
            assert_eq!(Lock::at(tile, register), Some(lock));
            assert!([register - 4, register + 0x10].iter().all(|offset| Lock::at(tile, *offset).is_none()));
            assert!(lock.request(LockRequest::Acquire(-65)).is_err());
        }
    }

    #[test]
    fn requests_of_all_locks_differ() {
        for tile in [TileKind::Core, TileKind::Mem, TileKind::Shim] {
            let locks = (0..64).map_while(|id| Lock::new(tile, id).ok());
            let offsets: std::collections::BTreeSet<u32> = locks
                .flat_map(|lock| {
                    (-64..64).flat_map(move |value| {
                        [LockRequest::Acquire(value), LockRequest::Release(value)].map(|r| lock.request(r).unwrap())
                    })
                })
                .collect();
            let count = if tile == TileKind::Mem { 64 } else { 16 };
            assert_eq!(offsets.len(), count * 256);
        }
    }
}
