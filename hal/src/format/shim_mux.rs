//! What connects a shim tile's DMA with its stream switch.
//!
//! The shim's South ports lead to the programmable logic or the network on chip; the multiplexer in front of the
//! slaves and the demultiplexer behind the masters can connect the DMA instead. Channels and ports that can be
//! connected are fixed. Source: aie-rt; the same on aie2 and aie2p.

use super::dma_channel::Direction;
use super::register::{RegisterError, RegisterWrite, TileKind};

const MULTIPLEXER: u32 = 0x1_F000;
const DEMULTIPLEXER: u32 = 0x1_F004;
const SELECT_MASK: u32 = 3;
const SELECT_DMA: u32 = 1;

/// Connects DMA channel `channel`, 0 or 1, of the shim tile with its South port.
///
/// A channel from memory drives South slave 3 (channel 0) or 7 (channel 1), a channel to memory takes from South
/// master 2 or 3.
///
/// # Errors
/// When there is no such channel.
pub fn connect(direction: Direction, channel: u8) -> Result<RegisterWrite, RegisterError> {
    let channel = TileKind::Shim.within("DMA channel", 1, channel)?;
    let (offset, low) = match direction {
        // Two bits for each of South 2, 3, 6 and 7, from bit 8 on.
        Direction::MemoryToStream => (MULTIPLEXER, 10 + 4 * channel),
        // Two bits for each of South 2 to 5, from bit 4 on.
        Direction::StreamToMemory => (DEMULTIPLEXER, 4 + 2 * channel),
    };
    Ok(RegisterWrite::masked(offset, SELECT_MASK << low, SELECT_DMA << low))
}
