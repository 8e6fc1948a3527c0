//! A tile's DMA channels: their control registers, and the tasks that start them.
//!
//! Pushing a task ([`DmaTask`]) onto its queue starts a channel. mlir-aie's PDIs also write the bit that enabled
//! channels of older hardware, under a mask of nothing. Source: aie-rt; the same on aie2 and aie2p.

use super::register::{RegisterError, RegisterWrite, TileKind};
use std::fmt;

/// Direction of a DMA channel, seen from the tile that has it. Displayed by the names of AMD's manuals, `S2MM` and `MM2S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Stream to memory: an output of the array, at the shim.
    StreamToMemory = 0,
    /// Memory to stream: an input of the array, at the shim.
    MemoryToStream = 1,
}

impl Direction {
    /// The number that a completion token's wait has for the direction.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The direction with a code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::StreamToMemory, Self::MemoryToStream].into_iter().find(|direction| direction.code() == code)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamToMemory => "S2MM",
            Self::MemoryToStream => "MM2S",
        })
    }
}

/// As its name.
impl serde::Serialize for Direction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An entry of a DMA channel's task queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaTask {
    /// First buffer descriptor: 0 to 15 in core and shim tiles, 0 to 47 in mem tiles.
    pub descriptor: u8,
    /// How often the descriptor runs again after its first run.
    pub repeat: u8,
    /// Whether a completion token is issued at the end.
    pub token: bool,
}

impl DmaTask {
    const TOKEN: u32 = 1 << 31;
    /// Mem tiles use all of them, core and shim tiles the low four.
    const DESCRIPTOR: u32 = 0x3F;

    /// The entry as a word. Bits of `descriptor` above its six are dropped.
    #[must_use]
    pub fn encode(self) -> u32 {
        let token = if self.token { Self::TOKEN } else { 0 };
        (u32::from(self.descriptor) & Self::DESCRIPTOR) | (u32::from(self.repeat) << 16) | token
    }

    /// The entry of a word; bits without a meaning are ignored.
    #[must_use]
    pub fn decode(word: u32) -> Self {
        Self { descriptor: (word & Self::DESCRIPTOR) as u8, repeat: (word >> 16) as u8, token: word & Self::TOKEN != 0 }
    }
}

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
    Off = 0,
    /// With the word that carries TLAST.
    WithoutCounts = 1,
    /// The same; completion tokens tell how many words came.
    CountsInTokens = 2,
    /// The same; a register counts the words that came.
    CountsInRegister = 3,
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

    /// What a register's word says. Bits without a meaning here are not looked at.
    #[must_use]
    pub fn decode(word: u32) -> Self {
        let finish_on_tlast = match (word & Self::FINISH_ON_TLAST) >> Self::FINISH_ON_TLAST.trailing_zeros() {
            0 => FinishOnTlast::Off,
            1 => FinishOnTlast::WithoutCounts,
            2 => FinishOnTlast::CountsInTokens,
            _ => FinishOnTlast::CountsInRegister,
        };
        Self { controller: (word >> 8) as u8, finish_on_tlast, out_of_order: word & Self::OUT_OF_ORDER != 0 }
    }

    /// The register's word.
    #[must_use]
    pub fn encode(self) -> u32 {
        let out_of_order = if self.out_of_order { Self::OUT_OF_ORDER } else { 0 };
        ((self.finish_on_tlast as u32) << Self::FINISH_ON_TLAST.trailing_zeros())
            | (u32::from(self.controller) << 8)
            | out_of_order
    }
}

impl DmaChannel {
    const RESET: u32 = 1 << 1;
    /// Packet id of a shim's controller.
    const CONTROLLER: u8 = 15;

    /// Channel `channel`: 0 or 1 in a core or shim tile, 0 to 5 in a mem tile.
    ///
    /// # Errors
    /// When the tile does not have it.
    pub fn new(tile: TileKind, direction: Direction, channel: u8) -> Result<Self, RegisterError> {
        tile.within("DMA channel", if tile == TileKind::Mem { 5 } else { 1 }, channel)?;
        Ok(Self { tile, direction, channel })
    }

    /// All channels of a tile: those that write streams to memory, then the others.
    pub fn all(tile: TileKind) -> impl Iterator<Item = Self> {
        let of = move |direction| (0..6).map_while(move |channel| Self::new(tile, direction, channel).ok());
        [Direction::StreamToMemory, Direction::MemoryToStream].into_iter().flat_map(of)
    }

    /// Its direction.
    #[must_use]
    pub fn direction(self) -> Direction {
        self.direction
    }

    /// Its number among those of its direction.
    #[must_use]
    pub fn number(self) -> u8 {
        self.channel
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

    /// Gives its completion tokens the packet id of the tile's controller, by which a shim's switch leads them out of the array.
    #[must_use]
    pub fn token_controller(self) -> RegisterWrite {
        let value = ChannelControl { controller: Self::CONTROLLER, ..ChannelControl::default() }.encode();
        RegisterWrite::masked(self.control(), ChannelControl::CONTROLLER_MASK, value)
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
        let last = if self.tile == TileKind::Mem { 47 } else { 15 };
        self.tile.within("buffer descriptor", last, task.descriptor)?;
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
        let first = DmaChannel::new(tile, direction, 0).unwrap();
        assert_eq!(first.control(), control - 8 * u32::from(last));
        assert_eq!(Direction::from_code(direction.code()), Some(direction));
        assert_eq!(DmaChannel::new(tile, direction, last + 1).unwrap_err().max, i64::from(last));
        assert_eq!(channel.reset(true).is_none(), tile == TileKind::Shim);
    }

    #[rstest]
    #[case(DmaTask::default(), 0)]
    #[case(DmaTask { descriptor: 1, repeat: 0, token: true }, 0x8000_0001)]
    #[case(DmaTask { descriptor: 15, repeat: 255, token: false }, 0x00FF_000F)]
    #[case(DmaTask { descriptor: 47, repeat: 0, token: false }, 0x2F)]
    fn tasks(#[case] task: DmaTask, #[case] word: u32) {
        assert_eq!(task.encode(), word);
        assert_eq!(DmaTask::decode(word), task);
    }

    #[test]
    fn controls_are_read_back() {
        for finish_on_tlast in [
            FinishOnTlast::Off,
            FinishOnTlast::WithoutCounts,
            FinishOnTlast::CountsInTokens,
            FinishOnTlast::CountsInRegister,
        ] {
            let control = ChannelControl { controller: 15, finish_on_tlast, out_of_order: true };
            assert_eq!(ChannelControl::decode(control.encode()), control);
        }
        assert_eq!(ChannelControl::decode(2), ChannelControl::default());
    }

    #[rstest]
    #[case(TileKind::Core, 4)]
    #[case(TileKind::Mem, 12)]
    #[case(TileKind::Shim, 4)]
    fn all_channels_have_their_own_registers(#[case] tile: TileKind, #[case] count: usize) {
        let controls: std::collections::BTreeSet<u32> = DmaChannel::all(tile).map(DmaChannel::control).collect();
        assert_eq!(controls.len(), count);
        let last = DmaChannel::all(tile).last().unwrap();
        assert_eq!((last.direction(), usize::from(last.number())), (MemoryToStream, count / 2 - 1));
    }

    #[test]
    fn descriptors_have_limits() {
        assert_eq!(Direction::from_code(2), None);
        let task = |descriptor| DmaTask { descriptor, repeat: 0, token: false };
        let shim = DmaChannel::new(TileKind::Shim, StreamToMemory, 0).unwrap();
        let mem = DmaChannel::new(TileKind::Mem, StreamToMemory, 0).unwrap();
        assert_eq!(shim.start(task(16)).unwrap_err().what, "buffer descriptor of a shim tile");
        assert_eq!((mem.start(task(47)).unwrap().value, mem.start(task(48)).unwrap_err().max), (47, 47));
    }
}
