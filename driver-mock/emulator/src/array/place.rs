//! Where the words of a master port go.

use super::stream::Sink;

/// What takes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    Slave,
    Dma,
    Core,
    Control,
    Firmware,
    Nowhere,
}

/// Where words go: a sink, with the tile that it is in. Small, because it is copied for every few words.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    tile: u16,
    /// Of a port or a channel.
    number: u8,
    pub taker: Taker,
    /// Whether it is in another tile than what leads there.
    pub is_hop: bool,
}

impl Place {
    /// The place of a sink of the tile `from`; `index` gives the number of a tile.
    pub fn new(from: usize, sink: Sink, index: impl Fn(u8, u8) -> usize) -> Self {
        let (tile, number, taker) = match sink {
            Sink::Slave { column, row, port } => (index(column, row), port, Taker::Slave),
            Sink::Dma(channel) => (from, channel, Taker::Dma),
            Sink::Core => (from, 0, Taker::Core),
            Sink::Control => (from, 0, Taker::Control),
            Sink::Firmware => (from, 0, Taker::Firmware),
            Sink::Nowhere => (from, 0, Taker::Nowhere),
        };
        // Columns and rows have eight bits each, and no tile has as many ports.
        Self { tile: tile as u16, number: number as u8, taker, is_hop: tile != from }
    }

    pub fn tile(self) -> usize {
        self.tile.into()
    }

    pub fn number(self) -> usize {
        self.number.into()
    }

    /// Whether it is a slave port of a tile.
    pub fn is_port(self, tile: usize, slave: usize) -> bool {
        self.taker == Taker::Slave && (self.tile(), self.number()) == (tile, slave)
    }
}
