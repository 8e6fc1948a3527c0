//! Control registers of a tile's DMA channels.
//!
//! Pushing a task ([`DmaTask`]) starts a channel. mlir-aie's PDIs also write the bit that enabled
//! channels of older hardware, under a mask of nothing. Source: aie-rt; the same on aie2 and aie2p.

use super::register::{RegisterError, RegisterWrite, TileKind, within};
use super::task_queue::{Direction, DmaTask};

/// A DMA channel of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmaChannel {
    tile: TileKind,
    direction: Direction,
    channel: u8,
}

/// When a stream-to-memory channel takes a transfer as finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FinishOnTlast {
    /// When its length is reached.
    #[default]
    Off,
    /// With the word that carries TLAST.
    WithoutCounts,
    /// The same; completion tokens tell how many words came.
    CountsInTokens,
    /// The same; a register tells how many words came.
    CountsInRegister,
}

/// What a channel's control register holds, besides reset and pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelControl {
    /// Packet id of completion tokens.
    pub controller: u8,
    /// Only where streams are written to memory.
    pub finish_on_tlast: FinishOnTlast,
    /// Whether arriving packets choose their buffer descriptor. Only where streams are written to memory.
    pub out_of_order: bool,
}

impl ChannelControl {
    /// Bits of the packet id of completion tokens that mlir-aie writes; the register has three more.
    pub const CONTROLLER_MASK: u32 = 0x1F00;
    /// Bit of [`ChannelControl::out_of_order`].
    pub const OUT_OF_ORDER: u32 = 1 << 3;
    /// Bits of [`ChannelControl::finish_on_tlast`].
    pub const FINISH_ON_TLAST: u32 = 3 << 16;

    /// The register's word.
    #[must_use]
    pub fn encode(self) -> u32 {
        let out_of_order = if self.out_of_order { Self::OUT_OF_ORDER } else { 0 };
        let finish: u32 = match self.finish_on_tlast {
            FinishOnTlast::Off => 0,
            FinishOnTlast::WithoutCounts => 1,
            FinishOnTlast::CountsInTokens => 2,
            FinishOnTlast::CountsInRegister => 3,
        };
        (finish << Self::FINISH_ON_TLAST.trailing_zeros()) | (u32::from(self.controller) << 8) | out_of_order
    }
}

impl DmaChannel {
    const RESET: u32 = 1 << 1;

    /// Channel `channel`: 0 or 1 in a core or shim tile, 0 to 5 in a mem tile.
    ///
    /// # Errors
    /// When the tile does not have it.
    pub fn new(tile: TileKind, direction: Direction, channel: u8) -> Result<Self, RegisterError> {
        let (what, last) = match tile {
            TileKind::Core => ("DMA channel of a core tile", 1),
            TileKind::Mem => ("DMA channel of a mem tile", 5),
            TileKind::Shim => ("DMA channel of a shim tile", 1),
        };
        within(what, 0, last, channel)?;
        Ok(Self { tile, direction, channel })
    }

    /// Offset of the control register.
    #[must_use]
    pub fn control(self) -> u32 {
        let first = match (self.tile, self.direction) {
            (TileKind::Core, Direction::StreamToMemory) => 0x1_DE00,
            (TileKind::Core, Direction::MemoryToStream) => 0x1_DE10,
            (TileKind::Mem, Direction::StreamToMemory) => 0xA_0600,
            (TileKind::Mem, Direction::MemoryToStream) => 0xA_0630,
            (TileKind::Shim, Direction::StreamToMemory) => 0x1_D200,
            (TileKind::Shim, Direction::MemoryToStream) => 0x1_D210,
        };
        first + 8 * u32::from(self.channel)
    }

    /// Offset of the task queue register.
    #[must_use]
    pub fn task_queue(self) -> u32 {
        self.control() + 4
    }

    /// Writes the control register.
    #[must_use]
    pub fn configure(self, control: ChannelControl) -> RegisterWrite {
        RegisterWrite::word(self.control(), control.encode())
    }

    /// Puts the channel into reset, or takes it out of it. `None` for channels of shim tiles, which have no reset.
    #[must_use]
    pub fn reset(self, reset: bool) -> Option<RegisterWrite> {
        let value = if reset { Self::RESET } else { 0 };
        (self.tile != TileKind::Shim).then(|| RegisterWrite::masked(self.control(), Self::RESET, value))
    }

    /// What mlir-aie and aie-rt write to enable the channel: it changes nothing.
    #[must_use]
    pub fn enable(self) -> RegisterWrite {
        RegisterWrite::masked(self.control(), 0, 1)
    }

    /// Starts `task`, behind those that wait already. A channel queues four; one more is lost.
    ///
    /// # Errors
    /// When the tile has no such descriptor.
    pub fn start(self, task: DmaTask) -> Result<RegisterWrite, RegisterError> {
        let (what, last) = match self.tile {
            TileKind::Core => ("buffer descriptor of a core tile", 15),
            TileKind::Mem => ("buffer descriptor of a mem tile", 47),
            TileKind::Shim => ("buffer descriptor of a shim tile", 15),
        };
        within(what, 0, last, task.descriptor)?;
        Ok(RegisterWrite::word(self.task_queue(), task.encode()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{MemoryToStream, StreamToMemory};
    use rstest::rstest;

    #[rstest]
    #[case(TileKind::Core, StreamToMemory, 1, 0x1_DE08)]
    #[case(TileKind::Core, MemoryToStream, 1, 0x1_DE18)]
    #[case(TileKind::Mem, StreamToMemory, 5, 0xA_0628)]
    #[case(TileKind::Mem, MemoryToStream, 5, 0xA_0658)]
    #[case(TileKind::Shim, StreamToMemory, 1, 0x1_D208)]
    #[case(TileKind::Shim, MemoryToStream, 1, 0x1_D218)]
    fn registers(#[case] tile: TileKind, #[case] direction: Direction, #[case] last: u8, #[case] control: u32) {
        let channel = DmaChannel::new(tile, direction, last).unwrap();
        assert_eq!((channel.control(), channel.task_queue()), (control, control + 4));
        assert_eq!(DmaChannel::new(tile, direction, last + 1).unwrap_err().max, i64::from(last));
        assert_eq!(channel.reset(true).is_none(), tile == TileKind::Shim);
    }

    #[test]
    fn descriptors_have_limits() {
        let task = |descriptor| DmaTask { descriptor, repeat: 0, token: false };
        let shim = DmaChannel::new(TileKind::Shim, StreamToMemory, 0).unwrap();
        let mem = DmaChannel::new(TileKind::Mem, StreamToMemory, 0).unwrap();
        assert_eq!(shim.start(task(16)).unwrap_err().what, "buffer descriptor of a shim tile");
        assert_eq!((mem.start(task(47)).unwrap().value, mem.start(task(48)).unwrap_err().max), (47, 47));
    }
}
