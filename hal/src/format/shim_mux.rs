//! What connects a shim tile's DMA with its stream switch.
//!
//! The shim's South ports lead to the programmable logic or the network on chip; the multiplexer in front of the
//! slaves and the demultiplexer behind the masters can connect the DMA instead. Channels and ports that can be
//! connected are fixed. Source: aie-rt; the same on aie2 and aie2p.

use super::dma_channel::Direction;
use super::register::{RegisterError, RegisterWrite, TileKind};
use super::stream_switch::Port;

const MULTIPLEXER: u32 = 0x1_F000;
const DEMULTIPLEXER: u32 = 0x1_F004;
const SELECT_MASK: u32 = 3;
const SELECT_DMA: u32 = 1;

/// The South port of the stream switch that a DMA channel can be connected with: a slave for channels from memory, a
/// master for channels to memory. None if there is no such channel.
#[must_use]
pub fn port(direction: Direction, channel: u8) -> Option<Port> {
    match (direction, channel) {
        (Direction::MemoryToStream, 0) => Some(Port::South(3)),
        (Direction::MemoryToStream, 1) => Some(Port::South(7)),
        (Direction::StreamToMemory, 0) => Some(Port::South(2)),
        (Direction::StreamToMemory, 1) => Some(Port::South(3)),
        _ => None,
    }
}

/// Offset of the register that connects channels of a direction.
#[must_use]
pub fn register(direction: Direction) -> u32 {
    match direction {
        Direction::MemoryToStream => MULTIPLEXER,
        Direction::StreamToMemory => DEMULTIPLEXER,
    }
}

/// Whether the register of a channel's direction, with the value `word`, connects the channel with its [`port`].
#[must_use]
pub fn is_connected(direction: Direction, channel: u8, word: u32) -> bool {
    connect(direction, channel).is_ok_and(|write| word & write.mask == write.value)
}

/// Connects DMA channel `channel`, 0 or 1, of the shim tile with its South [`port`].
///
/// A channel from memory drives South slave 3 (channel 0) or 7 (channel 1), a channel to memory takes from South
/// master 2 or 3.
///
/// # Errors
/// When there is no such channel.
pub fn connect(direction: Direction, channel: u8) -> Result<RegisterWrite, RegisterError> {
    let channel = TileKind::Shim.within("DMA channel", 1, channel)?;
    let low = match direction {
        // Two bits for each of South 2, 3, 6 and 7, from bit 8 on.
        Direction::MemoryToStream => 10 + 4 * channel,
        // Two bits for each of South 2 to 5, from bit 4 on.
        Direction::StreamToMemory => 4 + 2 * channel,
    };
    Ok(RegisterWrite::masked(register(direction), SELECT_MASK << low, SELECT_DMA << low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_back() {
        let channels = [Direction::StreamToMemory, Direction::MemoryToStream].map(|d| [(d, 0u8), (d, 1)]).concat();
        for (direction, channel) in &channels {
            let write = connect(*direction, *channel).unwrap();
            assert!(is_connected(*direction, *channel, write.value) && port(*direction, *channel).is_some());
            // Bits 01 say DMA; 00 the programmable logic and 10 the network on chip.
            assert!(!is_connected(*direction, *channel, 0) && !is_connected(*direction, *channel, 2 * write.value));
            assert!(!is_connected(*direction, 1 - channel, write.value));
        }
        assert_eq!(port(Direction::StreamToMemory, 2), None);
        assert!(!is_connected(Direction::StreamToMemory, 2, u32::MAX));
    }
}
