//! DMA channels at work: from task to descriptor to lock, and to the next descriptor.
//!
//! A channel goes from one state to the next (see [`Activity`]) until it has to wait or has done enough for a round; how it moves
//! words is in [`dma_words`](super::dma_words). Whatever a channel cannot do is an error with its tile, channel and descriptor,
//! where hardware would set a bit and stop.

use super::clock::Resource;
use super::dma::{self, Activity, Descriptor, Position, Running};
use super::error::{ArrayError, DmaProblem, Result};
use super::host::HostMemory;
use super::tile::SIDE;
use super::tiles::Array;
use super::timeline::Occupation;
use aie_hal::format::dma_channel::{Direction, DmaTask};
use aie_hal::format::register::TileKind;

/// Channels of a mem tile that reach its neighbours too.
const FAR_CHANNELS: usize = 4;

/// How much a channel may still do in a round, and whether anything has moved in it.
pub(super) struct Round {
    pub left: usize,
    pub moved: bool,
}

impl Round {
    /// Counts something that has moved.
    pub fn step(&mut self) {
        self.steps(1);
    }

    /// Counts words that have moved.
    pub fn steps(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
        self.moved = true;
    }
}

/// A channel of a tile, and the descriptor that it runs: where an error is.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub index: usize,
    pub direction: Direction,
    pub channel: usize,
    pub descriptor: u8,
}

impl Array {
    /// The slave port that a memory-to-stream channel feeds.
    pub(super) fn source_port(kind: TileKind, channel: usize) -> usize {
        match kind {
            TileKind::Core => 1 + channel,
            TileKind::Mem => channel,
            // South 3 and 7.
            TileKind::Shim => 2 + 3 + 4 * channel,
        }
    }

    pub(super) fn dma_error(&self, site: Site, problem: DmaProblem) -> ArrayError {
        let tile = &self.tiles[site.index];
        let Site { direction, channel, descriptor, .. } = site;
        ArrayError::Dma { column: tile.column, row: tile.row, direction, channel, descriptor, problem }
    }

    /// Loads a descriptor; one that iterates is at its next iteration afterwards.
    fn load_descriptor(&mut self, site: Site) -> Result<Descriptor> {
        let tile = &mut self.tiles[site.index];
        let number = site.descriptor;
        let half = dma::descriptors(TileKind::Mem) / 2;
        if number >= dma::descriptors(tile.kind)
            || tile.kind == TileKind::Mem && (number >= half) != (site.channel % 2 == 1)
        {
            return Err(self.dma_error(site, DmaProblem::NotOfThisChannel));
        }
        let first = dma::descriptor_register(tile.kind, number);
        let words: [u32; 8] = std::array::from_fn(|word| tile.register(first + 4 * word as u32));
        let descriptor = Descriptor::load(tile.kind, &words, site.direction, tile.column, tile.row);
        let compresses = tile.channels[site.direction as usize][site.channel].control.compresses();
        // The iteration counts loads of the descriptor, in its own registers.
        let (word, low) = dma::iteration_field(tile.kind);
        let value = words[word] & !(0x3f << low) | descriptor.next_iteration() << low;
        if value != words[word] {
            tile.registers.insert(first + 4 * word as u32, value);
        }
        if !descriptor.valid {
            return Err(self.dma_error(site, DmaProblem::NotValid));
        }
        if descriptor.qos != 0 {
            return Err(self.dma_error(site, DmaProblem::Qos { qos: descriptor.qos }));
        }
        if descriptor.compress && compresses {
            return Err(self.dma_error(site, DmaProblem::Compression));
        }
        if descriptor.header.is_some() && descriptor.length == 0 {
            return Err(self.dma_error(site, DmaProblem::EmptyPacket));
        }
        Ok(descriptor)
    }

    /// Lets a channel run until it waits, or has moved enough for one round.
    pub(super) fn run_channel(
        &mut self,
        index: usize,
        direction: Direction,
        channel: usize,
        host: &mut impl HostMemory,
    ) -> Result<bool> {
        if self.tiles[index].held.channels >> (SIDE * direction as usize + channel) & 1 == 1 {
            return Ok(false);
        }
        let mut round = Round { left: self.burst, moved: false };
        let mut site = Site { index, direction, channel, descriptor: 0 };
        while round.left > 0 {
            let tile = &mut self.tiles[index];
            let state = &mut tile.channels[direction as usize][channel];
            if state.control.holds(tile.kind) {
                break;
            }
            let Some(mut running) = state.running.take() else {
                let Some((task, pushed)) = state.queue.pop_front() else {
                    tile.busy &= !(1 << (SIDE * direction as usize + channel));
                    break;
                };
                self.begin_task(site, task, pushed)?;
                round.step();
                continue;
            };
            site.descriptor = running.descriptor_id;
            let goes_on = match running.activity {
                Activity::Header => self.take_header(&mut site, &mut running)?,
                Activity::Acquire => self.take_lock(site, &mut running)?,
                Activity::Move(mut position) => {
                    let ended = match direction {
                        Direction::MemoryToStream => {
                            self.send(site, &running.descriptor, &mut position, &mut round, host)?
                        }
                        Direction::StreamToMemory => {
                            self.receive(site, &running.descriptor, &mut position, &mut round, host)?
                        }
                    };
                    running.activity = Activity::Move(position);
                    if ended {
                        self.end_descriptor(site, running, position)?;
                        round.step();
                        continue;
                    }
                    false
                }
            };
            let tile = &mut self.tiles[index];
            let state = &mut tile.channels[direction as usize][channel];
            // A control packet of its own may have put the channel into reset meanwhile.
            if tile.kind == TileKind::Shim || !state.control.holds(tile.kind) {
                state.running = Some(running);
            }
            if !goes_on {
                break;
            }
            round.step();
        }
        Ok(round.moved)
    }

    fn begin_task(&mut self, mut site: Site, task: DmaTask, pushed: u64) -> Result<()> {
        let Site { index, direction, channel, .. } = site;
        let out_of_order = self.tiles[index].channels[direction as usize][channel].control.out_of_order()
            && direction == Direction::StreamToMemory;
        site.descriptor = task.descriptor;
        let (descriptor, activity) = if out_of_order {
            (Descriptor::default(), Activity::Header)
        } else {
            (self.load_descriptor(site)?, Activity::Acquire)
        };
        let state = &mut self.tiles[index].channels[direction as usize][channel];
        let was_idle = state.clock <= pushed;
        state.clock = state.clock.max(pushed);
        if self.tiles[index].kind == TileKind::Shim {
            self.delay_task(site, was_idle);
        }
        let (runs, descriptor_id) = (u32::from(task.repeat) + 1, task.descriptor);
        let running = Running { task, runs, descriptor_id, descriptor, activity };
        self.tiles[index].channels[direction as usize][channel].running = Some(Box::new(running));
        Ok(())
    }

    /// The time that the start of a shim channel's task takes, which may have had nothing to do when the task was pushed.
    fn delay_task(&mut self, site: Site, was_idle: bool) {
        let delays = self.rules.delays;
        let state = &mut self.tiles[site.index].channels[site.direction as usize][site.channel];
        let apart = if was_idle { delays.task_start_idle } else { delays.task_start_busy };
        state.clock = match state.started {
            Some(last) => state.clock.max(last + apart.expected),
            None if site.direction == Direction::MemoryToStream => state.clock + delays.first_read,
            None => state.clock + delays.first_write,
        };
        state.started = Some(state.clock);
    }

    /// Lets the header of an arriving packet choose the descriptor. False if there is none.
    fn take_header(&mut self, site: &mut Site, running: &mut Running) -> Result<bool> {
        let input = &mut self.tiles[site.index].channels[site.direction as usize][site.channel].input;
        let Some((word, _)) = input.pop_at(0) else { return Ok(false) };
        running.descriptor_id = (word.data >> 5 & 0x3f) as u8;
        site.descriptor = running.descriptor_id;
        running.descriptor = self.load_descriptor(*site)?;
        running.activity = Activity::Acquire;
        Ok(true)
    }

    /// Acquires the lock of a descriptor. False if it has to wait.
    fn take_lock(&mut self, site: Site, running: &mut Running) -> Result<bool> {
        if let Some((lock, value)) = running.descriptor.acquire {
            let (tile, lock) = self.dma_lock(site, lock)?;
            if !acquire(&mut self.tiles[tile].locks[lock], value) {
                return Ok(false);
            }
            let there = self.tiles[tile].releases[lock].take(value.abs());
            let state = &mut self.tiles[site.index].channels[site.direction as usize][site.channel];
            state.clock = state.clock.max(there);
        }
        let begin = self.tiles[site.index].channels[site.direction as usize][site.channel].clock;
        running.activity = Activity::Move(Position::starting(begin));
        Ok(true)
    }

    /// What comes after a descriptor: the next of its chain, the chain again, or the end of the task.
    fn end_descriptor(&mut self, mut site: Site, mut running: Box<Running>, position: Position) -> Result<()> {
        let Site { index, direction, channel, .. } = site;
        let tile = &mut self.tiles[index];
        let state = &mut tile.channels[direction as usize][channel];
        if tile.kind == TileKind::Shim {
            state.pieces += running.descriptor.pieces(position.moved);
        }
        let end = state.clock;
        let occupation = Occupation::Descriptor(running.descriptor_id);
        tile.record.add(Resource::Channel { direction, channel }, occupation, position.begin, end);
        if let Some((number, value)) = running.descriptor.release {
            let (tile, lock) = self.dma_lock(site, number)?;
            let clock = self.tiles[index].channels[direction as usize][channel].clock;
            let sum = self.tiles[tile].locks[lock] + value;
            let held = self.rules.lock_values.hold(sum);
            let held = held.ok_or_else(|| self.dma_error(site, DmaProblem::LockRange { lock: number, value: sum }))?;
            let tile = &mut self.tiles[tile];
            tile.locks[lock] = held;
            tile.releases[lock].add(value, clock);
        }
        let out_of_order = self.tiles[index].channels[direction as usize][channel].control.out_of_order()
            && direction == Direction::StreamToMemory;
        let next = match running.descriptor.next.filter(|_| !out_of_order) {
            Some(next) => Some(next),
            None => {
                running.runs -= 1;
                (running.runs > 0).then_some(running.task.descriptor)
            }
        };
        let state = &mut self.tiles[index].channels[direction as usize][channel];
        if direction == Direction::StreamToMemory && state.control.counts_in_register() {
            let last = u32::from(next.is_none()) << 30;
            let words = (position.moved as u32).min(0x3_ffff);
            state.counts.push_back(1 << 31 | last | u32::from(running.descriptor_id) << 24 | words);
        }
        let Some(next) = next else {
            if running.task.token {
                state.tokens = state.tokens.saturating_add(1);
                state.token_times.push_back(state.clock);
            }
            return Ok(());
        };
        if out_of_order {
            running.activity = Activity::Header;
        } else {
            site.descriptor = next;
            running.descriptor_id = next;
            running.descriptor = self.load_descriptor(site)?;
            running.activity = Activity::Acquire;
        }
        self.tiles[index].channels[direction as usize][channel].running = Some(running);
        Ok(())
    }

    /// The tile and the number of a lock as a DMA names it.
    fn dma_lock(&self, site: Site, lock: u32) -> Result<(usize, usize)> {
        self.lock_of_channel(site.index, site.channel, lock)
            .ok_or_else(|| self.dma_error(site, DmaProblem::NoLock { lock }))
    }

    /// The tile and the number of a lock as a channel of a tile names it.
    pub(super) fn lock_of_channel(&self, index: usize, channel: usize, lock: u32) -> Option<(usize, usize)> {
        let tile = &self.tiles[index];
        if tile.kind != TileKind::Mem {
            return (lock < 16).then_some((index, lock as usize));
        }
        let column = self.beside(tile.column, channel, lock / 64)?;
        Some((self.index(column, tile.row).ok()?, lock as usize % 64))
    }

    /// West, own and east column of a channel of a mem tile: 0, 1, 2.
    pub(super) fn beside(&self, column: u8, channel: usize, side: u32) -> Option<u8> {
        match side {
            1 => Some(column),
            _ if channel >= FAR_CHANNELS => None,
            0 => column.checked_sub(1),
            2 => Some(column + 1).filter(|column| *column < self.columns),
            _ => None,
        }
    }
}

/// Tries to acquire: negative values wait for at least as much, others for exactly as much.
pub fn acquire(lock: &mut i32, value: i32) -> bool {
    let free = if value < 0 { *lock >= -value } else { *lock == value };
    if free {
        *lock += if value < 0 { value } else { -value };
    }
    free
}
