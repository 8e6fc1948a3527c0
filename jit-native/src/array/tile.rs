//! Places of the array: tiles, and the channels of their DMAs.

use aie_hal::format::dma_channel::Direction;
use aie_hal::format::tile_address;
use std::fmt;

/// A tile by its column, counted from the partition's first one, and its row: 0 is the shim, 1 the mem tile, cores follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Column.
    pub column: u8,
    /// Row.
    pub row: u8,
}

impl Tile {
    /// The tile at a column and row.
    #[must_use]
    pub const fn new(column: u8, row: u8) -> Self {
        Self { column, row }
    }

    /// The address of an offset within the tile, as configurations and instruction streams write it.
    #[must_use]
    pub fn address(self, offset: u32) -> u32 {
        tile_address(self.column, self.row, offset)
    }
}

/// As column and row.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.column, self.row)
    }
}

/// What identifies a channel: its tile, the code of its direction, its number.
pub(super) type Key = (Tile, u8, u8);
/// A channel, and an id of its packets if tasks of it have ids.
pub(super) type SourceKey = (Key, Option<u8>);

/// A channel of a tile's DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The tile.
    pub tile: Tile,
    /// Whether it writes memory ([`Direction::StreamToMemory`]) or reads it.
    pub direction: Direction,
    /// Its number among those of its direction.
    pub number: u8,
}

impl Channel {
    /// Channel `number` of those that write what arrives into the tile's memory; at a shim, into the host's.
    #[must_use]
    pub const fn receive(tile: Tile, number: u8) -> Self {
        Self { tile, direction: Direction::StreamToMemory, number }
    }

    /// Channel `number` of those that send the tile's memory; at a shim, the host's.
    #[must_use]
    pub const fn send(tile: Tile, number: u8) -> Self {
        Self { tile, direction: Direction::MemoryToStream, number }
    }

    /// Its place in an order of all channels.
    pub(super) fn key(self) -> Key {
        (self.tile, self.direction.code(), self.number)
    }
}

/// As `S2MM 0 of tile (0,2)`.
impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of tile {}", self.direction, self.number, self.tile)
    }
}

/// Where words of an argument enter the array: a shim's channel, and the id of their packets where the channel leads to several places
/// ([`ArrayProgram::split`](super::ArrayProgram::split)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The channel.
    pub channel: Channel,
    /// The id, 0 to 31. None where the channel leads to one place, or gets words.
    pub packet: Option<u8>,
}

impl Source {
    /// Packets with an id.
    #[must_use]
    pub const fn packet(channel: Channel, id: u8) -> Self {
        Self { channel, packet: Some(id) }
    }

    /// What identifies it.
    pub(super) fn key(self) -> SourceKey {
        (self.channel.key(), self.packet)
    }
}

impl From<Channel> for Source {
    fn from(channel: Channel) -> Self {
        Self { channel, packet: None }
    }
}

/// As `MM2S 1 of tile (0,0), packet 3`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.channel.fmt(f)?;
        self.packet.map_or(Ok(()), |id| write!(f, ", packet {id}"))
    }
}

/// One end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A DMA channel.
    Dma(Channel),
    /// The stream port of a core, which its program reads or writes.
    Core(Tile),
}

impl End {
    /// The tile that it is in.
    #[must_use]
    pub fn tile(self) -> Tile {
        match self {
            Self::Dma(channel) => channel.tile,
            Self::Core(tile) => tile,
        }
    }
}

impl From<Channel> for End {
    fn from(channel: Channel) -> Self {
        Self::Dma(channel)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dma(channel) => channel.fmt(f),
            Self::Core(tile) => write!(f, "the core of tile {tile}"),
        }
    }
}
