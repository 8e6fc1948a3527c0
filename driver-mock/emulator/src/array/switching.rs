//! Words between ports: from the slaves of a switch to all masters they go to, and into what the masters lead to.

use super::error::{ArrayError, Result};
use super::fifo::Words;
use super::host::HostMemory;
use super::place::{Place, Taker};
use super::stream::Sink;
use super::tile::Tile;
use super::tiles::Array;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use arrayvec::ArrayVec;

/// What connects a shim's DMA with its switch: who drives South slaves, and where South masters lead.
const MULTIPLEXER: u32 = 0x1_f000;
const DEMULTIPLEXER: u32 = 0x1_f004;
const SELECT_DMA: u32 = 1;
/// DMA channels of a shim in each direction.
const SHIM_CHANNELS: usize = 2;
/// No tile has more master ports.
const MOST_MASTERS: usize = 23;

impl Tile {
    /// Finds the slave ports whose words all go to one place, and not back to the port itself.
    pub fn find_direct(&mut self) {
        for slave in 0..self.direct.len() {
            self.direct[slave] = match self.switch.circuit(slave) {
                Some([master]) => Some(self.places[*master]).filter(|place| !place.is_port(self.index, slave)),
                _ => None,
            };
        }
    }

    /// Takes over what a register of a shim says of its multiplexers, if it is one of theirs.
    pub fn connect_shim_channels(&mut self, offset: u32, value: u32) {
        let (direction, low, width) = match offset {
            MULTIPLEXER => (Direction::MemoryToStream, 10, 4),
            DEMULTIPLEXER => (Direction::StreamToMemory, 4, 2),
            _ => return,
        };
        let connected = (0..SHIM_CHANNELS).filter(|channel| value >> (low + width * channel) & 3 == SELECT_DMA);
        self.shim_channels[direction as usize] = connected.fold(0, |bits, channel| bits | 1 << channel);
    }
}

impl Array {
    /// Whether the multiplexers of a shim connect a DMA channel with the switch. Always true for other tiles.
    #[inline]
    pub(super) fn shim_dma_is_connected(&self, index: usize, direction: Direction, channel: usize) -> bool {
        let tile = &self.tiles[index];
        tile.kind != TileKind::Shim || tile.shim_channels[direction as usize] >> channel & 1 == 1
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
        let tile = &self.tiles[index];
        if tile.held.switch {
            return Ok((false, None));
        }
        if let Some(place) = tile.direct[slave] {
            return self.pass_words_directly(index, slave, place);
        }
        if let Some(masters) = tile.switch.circuit(slave)
            && !masters.iter().any(|master| tile.places[*master].is_port(index, slave))
        {
            let mut places = ArrayVec::<Place, MOST_MASTERS>::new();
            masters.iter().for_each(|master| places.push(tile.places[*master]));
            return self.pass_words_of_circuit(index, slave, &places);
        }
        // The list is used again: words pass too often to allocate.
        let mut places = std::mem::take(&mut self.places);
        let moved = self.pass_words_to(index, slave, &mut places);
        self.places = places;
        moved
    }

    /// The same for a port all of whose words go to one place.
    #[inline]
    fn pass_words_directly(&mut self, index: usize, slave: usize, place: Place) -> Result<(bool, Option<Place>)> {
        let held = self.tiles[index].switch.held(slave);
        if held == 0 {
            return Ok((false, None));
        }
        let space = self.space(place);
        let full = (space < held).then_some(place);
        if space > 0 {
            let room = self.room_from(place);
            let mut count = space.min(held);
            while count > 0 {
                let words = self.tiles[index].switch.take(slave, room, count);
                count -= words.len();
                self.put(place, &words)?;
            }
        }
        Ok((space > 0, full))
    }

    /// The same for a port whose words all go the same way, and do not come back at once.
    fn pass_words_of_circuit(&mut self, index: usize, slave: usize, places: &[Place]) -> Result<(bool, Option<Place>)> {
        let held = self.tiles[index].switch.held(slave);
        if held == 0 || places.is_empty() {
            return Ok((false, None));
        }
        let (mut count, mut full, mut room) = (held, None, 0);
        for place in places {
            let space = self.space(*place);
            if space < count {
                (count, full) = (space, Some(*place));
            }
            room = room.max(self.room_from(*place));
        }
        self.move_words(index, slave, places, count, room)?;
        Ok((count > 0, full))
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
            self.move_words(index, slave, places, count, room)?;
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

    /// Moves so many words of a slave port to places that have space for them, from a time on.
    #[inline]
    fn move_words(&mut self, index: usize, slave: usize, places: &[Place], mut count: usize, room: u64) -> Result<()> {
        // What comes back to the port that it leaves does so before the next word leaves.
        let most = if places.iter().any(|place| place.is_port(index, slave)) { 1 } else { Words::MOST };
        while count > 0 {
            let words = self.tiles[index].switch.take(slave, room, count.min(most));
            if words.is_empty() {
                break;
            }
            count -= words.len();
            for place in places {
                self.put(*place, &words)?;
            }
        }
        Ok(())
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
            Taker::Slave => self.pass_on(place.tile(), place.number(), passes, host),
            Taker::Dma => self.run_channel(place.tile(), Direction::StreamToMemory, place.number(), host),
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
    #[inline]
    fn space(&self, place: Place) -> usize {
        let tile = &self.tiles[place.tile()];
        match place.taker {
            _ if !tile.clocked => 0,
            Taker::Slave => tile.switch.space(place.number()),
            Taker::Dma if self.shim_dma_is_connected(place.tile(), Direction::StreamToMemory, place.number()) => {
                tile.channels[Direction::StreamToMemory as usize][place.number()].input.space()
            }
            Taker::Core => tile.core_input.space(),
            // A packet that has come to its end may have an answer, which has to leave first.
            Taker::Control => usize::from(tile.responses.is_empty()),
            Taker::Firmware => usize::MAX,
            Taker::Dma | Taker::Nowhere => 0,
        }
    }

    /// From when on a word that goes there now has a place.
    #[inline]
    fn room_from(&self, place: Place) -> u64 {
        let tile = &self.tiles[place.tile()];
        match place.taker {
            Taker::Slave => tile.switch.room_from(place.number()),
            Taker::Dma => tile.channels[Direction::StreamToMemory as usize][place.number()].input.room_from(),
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
    fn put(&mut self, place: Place, words: &Words) -> Result<()> {
        let hop = self.rules.delays.hop;
        let tile = &mut self.tiles[place.tile()];
        match place.taker {
            Taker::Slave if place.is_hop && hop > 0 => {
                tile.switch.push(place.number(), &words.later(hop));
            }
            Taker::Slave => tile.switch.push(place.number(), words),
            Taker::Dma => tile.channels[Direction::StreamToMemory as usize][place.number()].input.push(words),
            Taker::Core => tile.core_input.push(words),
            Taker::Control => {
                for word in words.iter() {
                    self.take_control_word(place.tile(), word)?;
                }
            }
            Taker::Firmware | Taker::Nowhere => {}
        }
        Ok(())
    }
}
