//! What a core sees of its array: memory and locks of its tile and its neighbours, and its streams.
//!
//! A core runs with the tiles of its group only, so that groups can run at the same time: see [`cores`](super::cores).

use super::fifo::Word;
use super::rules::Rules;
use super::tile::Tile;
use crate::core::{Fault, Reach, Surroundings};

/// Where the cascade comes from (bit 0: north or west) and goes to (bit 1: south or east).
const ACCUMULATOR_CONTROL: u32 = 0x3_6060;
/// Values between two cores: two at each end.
const CASCADE_DEPTH: usize = 4;
/// Status of core events, and the number of the first that an instruction raises.
const CORE_EVENTS: u32 = 0x3_4200;
const INSTRUCTION_EVENT: u32 = 33;
/// The first row of cores.
const FIRST_ROW: u8 = 2;

/// The columns and rows of an array.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub columns: u8,
    pub rows: u8,
}

impl Size {
    fn core(self, column: u8, row: u8) -> Option<(u8, u8)> {
        (column < self.columns && (FIRST_ROW..self.rows).contains(&row)).then_some((column, row))
    }

    /// The core tile in a direction, as core addresses and lock ids number them: south, west, north, own.
    pub fn neighbour(self, (column, row): (u8, u8), side: u32) -> Option<(u8, u8)> {
        match side {
            0 => self.core(column, row.checked_sub(1)?),
            1 => self.core(column.checked_sub(1)?, row),
            2 => self.core(column, row + 1),
            _ => Some((column, row)),
        }
    }
}

/// A core's way out of itself.
pub struct View<'a, 'b> {
    /// The tiles of its group.
    pub tiles: &'a mut [&'b mut Tile],
    /// Which of them is its own.
    pub own: usize,
    pub size: Size,
    pub rules: Rules,
    /// The tile outside of its group that it has wanted to reach.
    pub wanted: Option<(u8, u8)>,
    /// Its own cycle.
    pub cycle: u64,
}

impl View<'_, '_> {
    fn place(&self) -> (u8, u8) {
        (self.tiles[self.own].column, self.tiles[self.own].row)
    }

    fn find(&self, at: (u8, u8)) -> Option<usize> {
        self.tiles.iter().position(|tile| (tile.column, tile.row) == at)
    }

    /// The tile in a direction, if it is one of the group.
    #[inline]
    fn neighbour(&self, side: u32) -> Option<usize> {
        if side == 3 { Some(self.own) } else { self.find(self.size.neighbour(self.place(), side)?) }
    }

    #[inline]
    fn memory(&mut self, address: u32, bytes: usize) -> Result<&mut [u8], Fault> {
        let side = (address >> 16).checked_sub(4).filter(|side| *side < 4);
        let tile = side.and_then(|side| self.neighbour(side));
        let at = (address & 0xffff) as usize;
        let memory = tile.and_then(|tile| self.tiles[tile].memory.get_mut(at..at.saturating_add(bytes)));
        memory.ok_or(Fault::Memory { address, bytes })
    }

    fn lock_tile(&mut self, id: u32) -> Result<&mut Tile, Fault> {
        let tile = if id < 64 { self.neighbour(id / 16) } else { None };
        tile.map(|tile| &mut *self.tiles[tile]).ok_or(Fault::Lock(id))
    }

    fn tile(&mut self) -> &mut Tile {
        self.tiles[self.own]
    }

    /// The cycle of the array's clock that the core is at.
    fn now(&self) -> u64 {
        self.cycle + self.tiles[self.own].core_delay
    }

    /// The core has to wait until a time.
    fn wait_until(&mut self, time: u64) {
        let now = self.now();
        if time > now {
            let tile = self.tile();
            tile.core_delay += time - now;
            tile.record.stall(now, time);
        }
    }

    /// The core takes so many cycles longer.
    fn wait(&mut self, cycles: u64) {
        self.tile().core_delay += cycles;
    }

    /// The tile that the core's cascade goes to: the next in the south or the east.
    fn cascade_neighbour(&self) -> Option<(u8, u8)> {
        let (column, row) = self.place();
        let east = self.tiles[self.own].register(ACCUMULATOR_CONTROL) & 2 != 0;
        if east { self.size.core(column + 1, row) } else { self.size.core(column, row.checked_sub(1)?) }
    }

    /// The same, if it takes from there.
    fn cascade_output(&self) -> Option<usize> {
        let next = self.find(self.cascade_neighbour()?)?;
        let east = self.tiles[self.own].register(ACCUMULATOR_CONTROL) & 2 != 0;
        let takes_west = self.tiles[next].register(ACCUMULATOR_CONTROL) & 1 != 0;
        (takes_west == east).then_some(next)
    }
}

impl Surroundings for View<'_, '_> {
    #[inline]
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let memory = self.memory(address, bytes.len())?;
        crate::core::copy(bytes, memory);
        Ok(())
    }

    #[inline]
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        crate::core::copy(self.memory(address, bytes.len())?, bytes);
        Ok(())
    }

    fn lock(&mut self, id: u32) -> Result<i32, Fault> {
        self.lock_tile(id).map(|tile| tile.locks[id as usize % 16])
    }

    fn change_lock(&mut self, id: u32, by: i32) -> Result<(), Fault> {
        let (now, lock) = (self.now(), id as usize % 16);
        let rules = self.rules;
        let tile = self.lock_tile(id)?;
        let value = tile.locks[lock].saturating_add(by);
        tile.locks[lock] = rules.lock_values.hold(value).ok_or(Fault::LockRange { id, value })?;
        if by < 0 {
            let there = tile.releases[lock].take(-by);
            self.wait_until(there);
        } else {
            tile.releases[lock].add(by, now);
        }
        self.wait(rules.delays.lock_request);
        Ok(())
    }

    fn bank_conflicts(&mut self, count: u64) {
        self.wait(count * self.rules.delays.bank_conflict);
    }

    fn read_stream(&mut self) -> Option<(u32, bool)> {
        let now = self.now();
        let (word, time) = self.tile().core_input.pop_at(now)?;
        self.wait_until(time);
        Some((word.data, word.last))
    }

    fn stream_readable(&mut self) -> bool {
        !self.tile().core_input.is_empty()
    }

    fn stream_writable(&mut self) -> bool {
        // The core's slave port is the first.
        self.tile().switch.has_space(0)
    }

    fn write_stream(&mut self, word: u32, last: bool) {
        let room = self.tile().switch.room_from(0);
        self.wait_until(room);
        let now = self.now();
        self.tile().switch.push_at(0, Word { data: word, last }, now);
    }

    fn cascade_readable(&mut self) -> bool {
        !self.tile().cascade.is_empty()
    }

    fn read_cascade(&mut self) -> Option<[u8; 64]> {
        let (value, time) = self.tile().cascade.pop_front()?;
        self.wait_until(time);
        Some(value)
    }

    fn cascade_writable(&mut self) -> bool {
        self.cascade_output().is_some_and(|next| self.tiles[next].cascade.len() < CASCADE_DEPTH)
    }

    fn write_cascade(&mut self, value: &[u8; 64]) {
        let now = self.now();
        if let Some(next) = self.cascade_output() {
            self.tiles[next].cascade.push_back((*value, now + 1));
        }
    }

    fn event(&mut self, number: u32) {
        self.tile().raise_event(CORE_EVENTS, INSTRUCTION_EVENT + number);
    }

    #[inline]
    fn reaches(&mut self, reach: Reach) -> bool {
        let at = match reach {
            Reach::Memory(address) if address >> 16 == 7 => return true,
            Reach::Memory(address) => match (address >> 16).checked_sub(4) {
                Some(side) => self.size.neighbour(self.place(), side),
                None => None,
            },
            Reach::Lock(id) => self.size.neighbour(self.place(), id / 16),
            Reach::Cascade => self.cascade_neighbour(),
        };
        // What does not exist is not waited for.
        self.wanted = at.filter(|at| self.find(*at).is_none());
        self.wanted.is_none()
    }

    #[inline]
    fn at(&mut self, cycle: u64) {
        self.cycle = cycle;
    }
}
