//! The word that starts a DMA channel: its task queue entry.

/// Registers of one shim DMA channel, as offsets within the tile.
///
/// Source: mlir-aie; the same on aie2 and aie2p.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShimChannel {
    /// Direction, seen from the array.
    pub direction: Direction,
    /// Channel number, 0 or 1.
    pub channel: u8,
}

/// Direction of a DMA channel, seen from the tile that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Stream to memory: an output of the array, at the shim.
    StreamToMemory,
    /// Memory to stream: an input of the array, at the shim.
    MemoryToStream,
}

impl Direction {
    /// The number that a completion token's wait has for the direction.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::StreamToMemory => 0,
            Self::MemoryToStream => 1,
        }
    }

    /// The direction with a code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::StreamToMemory),
            1 => Some(Self::MemoryToStream),
            _ => None,
        }
    }
}

impl ShimChannel {
    /// Offset of the control register.
    #[must_use]
    pub fn control(self) -> u32 {
        let first = match self.direction {
            Direction::StreamToMemory => 0x1_D200,
            Direction::MemoryToStream => 0x1_D210,
        };
        first + 8 * u32::from(self.channel)
    }

    /// Offset of the task queue register.
    #[must_use]
    pub fn task_queue(self) -> u32 {
        self.control() + 4
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

    /// The entry of a word; bits without a meaning are not looked at.
    #[must_use]
    pub fn decode(word: u32) -> Self {
        Self { descriptor: (word & Self::DESCRIPTOR) as u8, repeat: (word >> 16) as u8, token: word & Self::TOKEN != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Direction::StreamToMemory, 0, 0x1D200, 0x1D204)]
    #[case(Direction::StreamToMemory, 1, 0x1D208, 0x1D20C)]
    #[case(Direction::MemoryToStream, 0, 0x1D210, 0x1D214)]
    #[case(Direction::MemoryToStream, 1, 0x1D218, 0x1D21C)]
    fn registers(#[case] direction: Direction, #[case] channel: u8, #[case] control: u32, #[case] queue: u32) {
        let channel = ShimChannel { direction, channel };
        assert_eq!((channel.control(), channel.task_queue()), (control, queue));
        assert_eq!(Direction::from_code(direction.code()), Some(direction));
        assert_eq!(Direction::from_code(2), None);
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
}
