//! Words between ports: from the slaves of a switch to all masters they go to, and into what the masters lead to.

use super::stream::{Sink, Word};
use super::{Array, ArrayError, HostMemory, Result};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;

/// What connects a shim's DMA with its switch: who drives South slaves, and where South masters lead.
const MULTIPLEXER: u32 = 0x1_f000;
const DEMULTIPLEXER: u32 = 0x1_f004;
const SELECT_DMA: u32 = 1;

/// What takes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Slave,
    Dma,
    Core,
    Control,
    Firmware,
    Nowhere,
}

/// Where words go: a sink, with the tile that it is in. It has no fields that depend on the kind of sink, because it is copied
/// for every few words.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    tile: usize,
    /// Of a port or a channel.
    number: usize,
    taker: Taker,
}

impl Place {
    /// The place of a sink of a tile; `index` gives the number of a tile.
    pub fn new(tile: usize, sink: Sink, index: impl Fn(u8, u8) -> usize) -> Self {
        let (tile, number, taker) = match sink {
            Sink::Slave { column, row, port } => (index(column, row), port, Taker::Slave),
            Sink::Dma(channel) => (tile, channel, Taker::Dma),
            Sink::Core => (tile, 0, Taker::Core),
            Sink::Control => (tile, 0, Taker::Control),
            Sink::Firmware => (tile, 0, Taker::Firmware),
            Sink::Nowhere => (tile, 0, Taker::Nowhere),
        };
        Self { tile, number, taker }
    }
}

impl Array {
    /// Whether the multiplexers of a shim connect a DMA channel with the switch. Always true for other tiles.
    pub(super) fn shim_dma_is_connected(&self, index: usize, direction: Direction, channel: usize) -> bool {
        let tile = &self.tiles[index];
        let (register, low) = match direction {
            Direction::MemoryToStream => (MULTIPLEXER, 10 + 4 * channel),
            Direction::StreamToMemory => (DEMULTIPLEXER, 4 + 2 * channel),
        };
        tile.kind != TileKind::Shim || tile.register(register) >> low & 3 == SELECT_DMA
    }

    pub(super) fn run_switch(&mut self, index: usize) -> Result<bool> {
        let mut moved = self.send_responses(index);
        let mut ports = self.tiles[index].switch.occupied;
        while ports != 0 {
            let slave = ports.trailing_zeros() as usize;
            ports &= ports - 1;
            moved |= self.pass_words(index, slave)?.0;
        }
        Ok(moved)
    }

    /// Passes words of a slave port to all masters they go to, as long as all of them have space. Gives whether there were any,
    /// and a place without space if that is what stops further ones.
    fn pass_words(&mut self, index: usize, slave: usize) -> Result<(bool, Option<Place>)> {
        // The list is used again: words pass too often to allocate.
        let mut places = std::mem::take(&mut self.places);
        let moved = self.pass_words_to(index, slave, &mut places);
        self.places = places;
        moved
    }

    fn pass_words_to(&mut self, index: usize, slave: usize, places: &mut Vec<Place>) -> Result<(bool, Option<Place>)> {
        let mut moved = false;
        // Only words that are there now: in a circle they come back to the port.
        let mut left = self.tiles[index].switch.held(slave);
        while left > 0 && self.next_places(index, slave, places)? {
            let (mut space, mut fullest, mut room) = (usize::MAX, None, 0);
            for place in places.iter() {
                let here = self.space(*place);
                if here < space {
                    (space, fullest) = (here, Some(*place));
                }
                room = room.max(self.room_from(*place));
            }
            let (held, together) = (self.tiles[index].switch.held(slave), self.tiles[index].switch.together(slave));
            let count = space.min(together).min(left);
            left -= count;
            for _ in 0..count {
                if let Some((word, time)) = self.tiles[index].switch.take(slave, room) {
                    for place in places.iter() {
                        self.put(*place, word, time)?;
                    }
                }
            }
            moved |= count > 0;
            if count == held {
                break;
            }
            if count == space {
                return Ok((moved, fullest));
            }
        }
        Ok((moved, None))
    }

    /// Passes words of a slave port on, and lets what they go to make room for more: ports further on, and channels that write
    /// to memory. So a sender continues until a lock stops it, or a port that it shares. `passes` limits how often ports do so for
    /// each other: words that go round in a circle would make room forever.
    pub(super) fn pass_on(
        &mut self,
        index: usize,
        slave: usize,
        passes: &mut usize,
        host: &mut impl HostMemory,
    ) -> Result<bool> {
        let mut moved = false;
        while *passes > 0 {
            *passes -= 1;
            let (passed, full) = self.pass_words(index, slave)?;
            moved |= passed;
            let Some(place) = full else { break };
            if !self.make_room(place, passes, host)? {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    fn make_room(&mut self, place: Place, passes: &mut usize, host: &mut impl HostMemory) -> Result<bool> {
        match place.taker {
            Taker::Slave => self.pass_on(place.tile, place.number, passes, host),
            Taker::Dma => self.run_channel(place.tile, Direction::StreamToMemory, place.number, host),
            _ => Ok(false),
        }
    }

    /// Finds out where the next word of a slave port goes. False if there is none, or it goes nowhere now.
    fn next_places(&mut self, index: usize, slave: usize, places: &mut Vec<Place>) -> Result<bool> {
        places.clear();
        let tile = &mut self.tiles[index];
        let (column, row) = (tile.column, tile.row);
        let masters = tile.switch.route(slave).map_err(|unmatched| {
            let (port, header) = (unmatched.port, unmatched.header);
            ArrayError::Packet { column, row, port, header }
        })?;
        if masters.is_empty() {
            return Ok(false);
        }
        let tile = &self.tiles[index];
        let masters = tile.switch.masters_of(slave).filter(|master| !tile.switch.drops(slave, *master));
        places.extend(masters.map(|master| tile.places[master]));
        Ok(true)
    }

    /// How many words a place takes now.
    fn space(&self, place: Place) -> usize {
        let tile = &self.tiles[place.tile];
        match place.taker {
            _ if !tile.clocked => 0,
            Taker::Slave => tile.switch.space(place.number),
            Taker::Dma if self.shim_dma_is_connected(place.tile, Direction::StreamToMemory, place.number) => {
                tile.channels[Direction::StreamToMemory as usize][place.number].input.space()
            }
            Taker::Core => tile.core_input.space(),
            // A packet that has come to its end may have an answer, which has to leave first.
            Taker::Control => usize::from(tile.responses.is_empty()),
            Taker::Firmware => usize::MAX,
            Taker::Dma | Taker::Nowhere => 0,
        }
    }

    /// From when on a word that goes there now has a place.
    fn room_from(&self, place: Place) -> u64 {
        let tile = &self.tiles[place.tile];
        match place.taker {
            Taker::Slave => tile.switch.room_from(place.number),
            Taker::Dma => tile.channels[Direction::StreamToMemory as usize][place.number].input.room_from(),
            Taker::Core => tile.core_input.room_from(),
            Taker::Control | Taker::Firmware | Taker::Nowhere => 0,
        }
    }

    /// Whether what a master of a tile leads to takes a word.
    pub(super) fn has_space(&self, index: usize, sink: Sink) -> bool {
        let rows = usize::from(self.rows);
        self.space(Place::new(index, sink, |column, row| usize::from(column) * rows + usize::from(row))) > 0
    }

    #[inline]
    fn put(&mut self, place: Place, word: Word, time: u64) -> Result<()> {
        let tile = &mut self.tiles[place.tile];
        match place.taker {
            Taker::Slave => tile.switch.push(place.number, word, time),
            Taker::Dma => {
                tile.channels[Direction::StreamToMemory as usize][place.number].input.push_at(word, time);
            }
            Taker::Core => tile.core_input.push_at(word, time),
            Taker::Control => self.take_control_word(place.tile, word)?,
            Taker::Firmware | Taker::Nowhere => {}
        }
        Ok(())
    }
}
