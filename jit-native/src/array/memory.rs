//! The data memory of one tile: what is used, and where there is room.

use super::error::ArrayError;
use super::tile::Tile;
use std::collections::BTreeMap;

/// Memories begin at multiples of this many bytes: the widest load of a core needs no more.
pub(super) const ALIGNMENT: u32 = 64;

/// Used ranges of one tile's memory, by their first byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    used: BTreeMap<u32, u32>,
}

impl Memory {
    /// Takes `bytes` bytes from `start` on.
    pub fn take(&mut self, tile: Tile, start: u32, bytes: u32, limit: usize) -> Result<(), ArrayError> {
        let end = u64::from(start) + u64::from(bytes);
        if end > limit as u64 {
            return Err(ArrayError::Memory { tile, start: start.into(), end, limit });
        }
        let end = end as u32;
        let overlapping = self.used.range(..end).next_back().filter(|used| *used.1 > start);
        if let Some((used_start, used_end)) = overlapping {
            let (used_start, used_end) = (*used_start, *used_end);
            return Err(ArrayError::Overlap { tile, start, end, used_start, used_end });
        }
        if bytes > 0 {
            self.used.insert(start, end);
        }
        Ok(())
    }

    /// Takes `bytes` bytes from the first gap that has room, and gives the first of them.
    pub fn allocate(&mut self, tile: Tile, bytes: u32, limit: usize) -> Result<u32, ArrayError> {
        let limit_bytes = u32::try_from(limit).unwrap_or(u32::MAX);
        let (mut start, mut free) = (0u32, 0);
        let ends = self.used.iter().map(|(start, end)| (*start, *end)).chain([(limit_bytes, limit_bytes)]);
        for (used_start, used_end) in ends {
            let gap = used_start.saturating_sub(start);
            if gap >= bytes {
                self.take(tile, start, bytes, limit)?;
                return Ok(start);
            }
            free = free.max(gap);
            start = used_end.next_multiple_of(ALIGNMENT);
        }
        Err(ArrayError::Full { tile, bytes, free })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILE: Tile = Tile::new(0, 2);
    const LIMIT: usize = 0x1000;

    #[test]
    fn gaps_are_used_and_overlaps_rejected() {
        let mut memory = Memory::default();
        memory.take(TILE, 0x100, 0x10, LIMIT).unwrap();
        // Behind it the next multiple of the alignment.
        assert_eq!(memory.allocate(TILE, 0x200, LIMIT), Ok(0x140));
        assert_eq!(memory.allocate(TILE, 0x100, LIMIT), Ok(0));
        assert_eq!(memory.allocate(TILE, 0xC80, LIMIT), Ok(0x340));
        assert_eq!(memory.allocate(TILE, 0x41, LIMIT), Err(ArrayError::Full { tile: TILE, bytes: 0x41, free: 0x40 }));
    }

    #[test]
    fn ranges_do_not_overlap_and_end_in_the_memory() {
        let mut memory = Memory::default();
        memory.take(TILE, 0x100, 0x100, LIMIT).unwrap();
        memory.take(TILE, 0x200, 0x100, LIMIT).unwrap();
        memory.take(TILE, 0, 0x100, LIMIT).unwrap();
        let error = memory.take(TILE, 0x2FC, 8, LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "bytes 0x2fc..0x304 of tile (0,2) are in use from 0x200 to 0x300");
        let error = memory.take(TILE, 0xFFC, 8, LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "bytes 0xffc..0x1004 of tile (0,2): it has 0x1000");
    }
}
