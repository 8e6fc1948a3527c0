//! ObjectFifos: a stream with a ring at each of its ends.
//!
//! An end in a shim has no ring: the host's memory is behind it. The other ends have one of `depth` buffers each, filled or
//! emptied by a channel of their own. A ring of a mem tile that one fifo fills can be what another one sends
//! ([`FifoSide::Ring`]): so data is forwarded, split (each part is a ring) or joined.

use super::error::ArrayError;
use super::program::ArrayProgram;
use super::ring::Ring;
use super::tile::{Channel, Tile};
use aie_hal::format::dma_channel::Direction;

/// Where a fifo begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FifoSide {
    /// At a tile, with a new ring unless it is a shim.
    Tile(Tile),
    /// At a ring that is there already.
    Ring(Ring),
}

impl From<Tile> for FifoSide {
    fn from(tile: Tile) -> Self {
        Self::Tile(tile)
    }
}

impl From<Ring> for FifoSide {
    fn from(ring: Ring) -> Self {
        Self::Ring(ring)
    }
}

/// One end of a fifo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoEnd {
    /// The DMA channel.
    pub channel: Channel,
    /// The ring; none in a shim.
    pub ring: Option<Ring>,
}

/// A stream with its rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Where it begins.
    pub from: FifoEnd,
    /// Where it ends; with several, all get the same.
    pub to: Vec<FifoEnd>,
}

impl ArrayProgram {
    /// A fifo of `depth` buffers of `bytes` bytes at each end, on the next free channels of the tiles.
    ///
    /// # Errors
    /// When a tile has no memory, lock or channel left for it.
    pub fn fifo<T: Into<FifoSide>>(
        &mut self,
        from: impl Into<FifoSide>,
        to: impl IntoIterator<Item = T>,
        bytes: u32,
        depth: u8,
    ) -> Result<Fifo, ArrayError> {
        let from = self.fifo_end(from.into(), Direction::MemoryToStream, bytes, depth)?;
        let to = to.into_iter().map(|to| self.fifo_end(to.into(), Direction::StreamToMemory, bytes, depth));
        let to: Vec<FifoEnd> = to.collect::<Result<_, _>>()?;
        self.stream(from.channel, to.iter().map(|end| end.channel))?;
        Ok(Fifo { from, to })
    }

    fn fifo_end(&mut self, side: FifoSide, direction: Direction, bytes: u32, depth: u8) -> Result<FifoEnd, ArrayError> {
        let (tile, ring) = match side {
            FifoSide::Tile(tile) if self.grid().limits(tile)?.data_bytes == 0 => (tile, None),
            FifoSide::Tile(tile) => (tile, Some(self.ring(tile, None, bytes, depth)?)),
            FifoSide::Ring(ring) => (ring.tile, Some(ring)),
        };
        Ok(FifoEnd { channel: self.channel(tile, direction)?, ring })
    }
}

#[cfg(test)]
mod tests;
