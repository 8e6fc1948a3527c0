//! Reads and writes of registers and memory by address, with every effect that a write has.
//!
//! Registers without an effect keep what is written to them. An access that hardware answers with an error, or that
//! has no model, is a typed error; no address and no value is a reason to panic.

use super::dma;
use super::error::{ArrayError, Result};
use super::tile::{SIDE, Tile};
use super::tiles::{Array, PROGRAM};
use super::transfer::acquire;
use aie_hal::format::dma_channel::{Direction, DmaTask};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{MasterSource, Port, StreamSwitch};

/// Program memory, as a tile's registers see it.
const PROGRAM_AT: u32 = 0x2_0000;
/// What starts, stops and resets a core, and what tells its state.
const CORE_CONTROL: u32 = 0x3_2000;
const CORE_STATUS: u32 = 0x3_2004;
const CORE_ENABLE: u32 = 1;
const CORE_RESET: u32 = 2;
/// The whole status of a core that has come to `done`, as read on silicon: its enable bit is off.
const CORE_DONE: u32 = 1 << 20;
/// Events that are raised by their number, and the bits of those that have happened, of a core, its memory, a mem tile.
const EVENTS: [(u32, u32); 3] = [(0x3_4008, 0x3_4200), (0x1_4008, 0x1_4200), (0x9_4008, 0x9_4200)];
/// Bytes of event status: mem tiles have more events.
const EVENT_STATUS: [u32; 3] = [0x10, 0x10, 0x18];
/// Bit 0 makes memory zero: of a core's program, its data, a mem tile.
const ZERO_PROGRAM: u32 = 0x3_6070;
const ZERO_DATA: [u32; 2] = [0x1_6010, 0x9_6048];
/// Clock and reset of everything above a shim.
const COLUMN_CLOCK: u32 = 0xf_ff20;
const COLUMN_RESET: u32 = 0xf_ff28;
/// Enable bits of the two arbiters that merge in a fixed order.
const MERGE_ENABLES: [u32; 2] = [0x808, 0x818];
/// Registers of cores whose effect has no model: the bits that would have one, and what they do.
const UNMODELLED: [(u32, u32, &str); 5] = [
    (0x3_2008, 0x7f7f, "starting and stopping a core by events"),
    (0x3_200c, 0x7f, "resetting a core by an event"),
    (0x3_2010, 0x3d, "halting a core"),
    (0x3_2014, 0x7f7f_7f7f, "halting a core by events"),
    (0x3_2018, 0xf, "halting a core by what it does"),
];

/// Registers of a kind of tile's DMA: control of the first channel, status of the first, words written, counts; by
/// direction where there are two.
struct ChannelRegisters {
    control: [u32; 2],
    status: [u32; 2],
    words: u32,
    counts: u32,
}

fn channel_registers(kind: TileKind) -> ChannelRegisters {
    let (control, status, words, counts) = match kind {
        TileKind::Core => ([0x1_de00, 0x1_de10], [0x1_df00, 0x1_df10], 0x1_df18, 0x1_df20),
        TileKind::Mem => ([0xa_0600, 0xa_0630], [0xa_0660, 0xa_0680], 0xa_06b0, 0xa_06c8),
        TileKind::Shim => ([0x1_d200, 0x1_d210], [0x1_d220, 0x1_d228], 0x1_d230, 0x1_d238),
    };
    ChannelRegisters { control, status, words, counts }
}

const DIRECTIONS: [Direction; 2] = [Direction::StreamToMemory, Direction::MemoryToStream];

/// First register of the stream switch.
fn switch_at(kind: TileKind) -> u32 {
    if kind == TileKind::Mem { 0xb_0000 } else { 0x3_f000 }
}

/// The ports that a switch's register is to connect forever without a wire between them: on silicon a parity error of the switch, seen
/// where a mem tile's South 0 was to feed North 4.
fn missing_wire(kind: TileKind, place: u32, value: u32) -> Option<(Port, Port)> {
    let switch = StreamSwitch(kind);
    let master = switch.master(place / 4).filter(|_| place < 0x100)?;
    let Some(MasterSource::Circuit(slave)) = MasterSource::decode(value) else { return None };
    let slave = switch.slave(slave)?;
    (!switch.has_wire(slave, master)).then_some((slave, master))
}

impl Array {
    /// Reads a register or a word of memory without any effect that reading it has.
    ///
    /// # Errors
    /// When there is no such tile.
    pub fn read(&self, column: u8, row: u8, offset: u32) -> Result<u32> {
        let tile = &self.tiles[self.index(column, row)?];
        let at = offset as usize;
        if let Some(bytes) = tile.memory.get(at..at.saturating_add(4)) {
            return Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        if let Some(lock) = lock_index(tile.kind, offset) {
            return Ok(tile.locks[lock].cast_unsigned());
        }
        if let Some(core) = &tile.core {
            let program = offset.checked_sub(PROGRAM_AT).map(|at| at as usize);
            let bytes = program.and_then(|at| core.program().get(at..at + 4));
            if let Some(bytes) = bytes {
                return Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            }
            if offset == CORE_STATUS {
                return Ok(tile.core_status());
            }
        }
        Ok(channel_register(tile, offset).unwrap_or_else(|| tile.register(offset)))
    }

    /// Reads a register or a word of memory with the effect that reading it has: requests to locks, counts of transfers.
    ///
    /// # Errors
    /// When there is no such tile, or the request takes a lock out of its range.
    pub fn access(&mut self, column: u8, row: u8, offset: u32) -> Result<u32> {
        let index = self.index(column, row)?;
        let tile = &mut self.tiles[index];
        if let Some((lock, is_acquire, value)) = lock_request(tile.kind, offset) {
            let (held, releases) = (&mut tile.locks[lock], &mut tile.releases[lock]);
            if is_acquire {
                let acquired = acquire(held, value);
                if acquired {
                    releases.take(value.abs());
                }
                return Ok(acquired.into());
            }
            let sum = *held + value;
            let Some(value_held) = self.rules.lock_values.hold(sum) else {
                return Err(ArrayError::LockRange { column, row, lock, value: sum });
            };
            *held = value_held;
            releases.add(value, self.now);
            return Ok(1);
        }
        let value = self.read(column, row, offset)?;
        let tile = &mut self.tiles[index];
        let first = channel_registers(tile.kind).counts;
        if let Some(channel) = offset.checked_sub(first).filter(|at| at % 4 == 0).map(|at| at as usize / 4)
            && let Some(channel) = tile.channels[Direction::StreamToMemory as usize].get_mut(channel)
        {
            channel.counts.pop_front();
        }
        Ok(value)
    }

    /// Writes the bits of `mask` of a register or a word of memory, with every effect that the write has.
    ///
    /// # Errors
    /// When there is no such tile, a task queue is full, or something is enabled that has no model.
    pub fn write(&mut self, column: u8, row: u8, offset: u32, value: u32, mask: u32) -> Result<()> {
        let old = if mask == u32::MAX { 0 } else { self.read(column, row, offset)? };
        let value = old & !mask | value & mask;
        let index = self.index(column, row)?;
        let tile = &mut self.tiles[index];
        let at = offset as usize;
        if let Some(place) = tile.memory.get_mut(at..at.saturating_add(4)) {
            place.copy_from_slice(&value.to_le_bytes());
            return Ok(());
        }
        if let Some(core) = &mut tile.core
            && (PROGRAM_AT..PROGRAM_AT + PROGRAM as u32).contains(&offset)
        {
            core.write_program((offset - PROGRAM_AT) as usize, &value.to_le_bytes());
            return Ok(());
        }
        if let Some(lock) = lock_index(tile.kind, offset) {
            let Some(held) = self.rules.lock_values.hold(value.min(i32::MAX as u32).cast_signed()) else {
                return Err(ArrayError::LockValue { column, row, lock, value });
            };
            tile.locks[lock] = held;
            tile.releases[lock].set(tile.locks[lock], self.now);
            return Ok(());
        }
        self.check_descriptor_free(index, offset)?;
        if self.write_event(index, offset, value) || self.write_channel(index, offset, value)? {
            return Ok(());
        }
        let tile = &mut self.tiles[index];
        tile.registers.insert(offset, value);
        if tile.kind == TileKind::Shim {
            tile.connect_shim_channels(offset, value);
        }
        if let Some(place) = offset.checked_sub(switch_at(tile.kind)) {
            if place < 0x400 {
                if let Some((slave, master)) = missing_wire(tile.kind, place, value) {
                    return Err(ArrayError::NoWire { column, row, slave, master });
                }
                tile.switch.configure(place, value);
                tile.find_direct();
            } else if MERGE_ENABLES.contains(&place) && value & 1 != 0 {
                let what = "merging packets in a fixed order";
                return Err(ArrayError::Unmodelled { column, row, offset, what });
            }
        }
        let unmodelled = UNMODELLED.iter().find(|(register, bits, _)| *register == offset && value & bits != 0);
        if let Some((_, _, what)) = unmodelled.filter(|_| tile.kind == TileKind::Core) {
            return Err(ArrayError::Unmodelled { column, row, offset, what });
        }
        match (tile.kind, offset) {
            (TileKind::Core, CORE_CONTROL) => tile.control_core(value, self.now),
            (TileKind::Core, ZERO_PROGRAM) if value & 1 != 0 => {
                tile.registers.insert(offset, value & !1);
                if let Some(core) = &mut tile.core {
                    core.write_program(0, &[0; PROGRAM]);
                }
            }
            (TileKind::Core | TileKind::Mem, _) if ZERO_DATA.contains(&offset) && value & 1 != 0 => {
                tile.registers.insert(offset, value & !1);
                tile.memory.fill(0);
            }
            (TileKind::Shim, COLUMN_CLOCK) => {
                for row in 1..self.rows {
                    let above = self.index(column, row)?;
                    self.tiles[above].clocked = value & 1 != 0;
                }
            }
            (TileKind::Shim, COLUMN_RESET) if value & 1 != 0 => {
                for row in 1..self.rows {
                    let above = self.index(column, row)?;
                    self.tiles[above].reset();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that a register is not of a descriptor that a task uses which waits or runs.
    fn check_descriptor_free(&self, index: usize, offset: u32) -> Result<()> {
        let tile = &self.tiles[index];
        let Some(descriptor) = dma::descriptor_at(tile.kind, offset) else { return Ok(()) };
        for direction in DIRECTIONS {
            for (channel, state) in tile.channels[direction as usize].iter().enumerate() {
                let task = state.tasks().find(|task| tile.chain(task.descriptor).any(|used| used == descriptor));
                // A packet may have chosen a descriptor that is in no chain.
                let runs = state.running.as_ref().filter(|running| running.descriptor_id == descriptor);
                if let Some(task) = task.or(runs.map(|running| &running.task)) {
                    let (column, row, task) = (tile.column, tile.row, task.descriptor);
                    return Err(ArrayError::LiveDescriptor { column, row, descriptor, direction, channel, task });
                }
            }
        }
        Ok(())
    }

    /// Raises an event by its number, or clears events that have happened. False if the register is for neither.
    fn write_event(&mut self, index: usize, offset: u32, value: u32) -> bool {
        let tile = &mut self.tiles[index];
        for ((generate, status), bytes) in EVENTS.into_iter().zip(EVENT_STATUS) {
            if offset == generate {
                tile.raise_event(status, value & ((bytes * 8).next_power_of_two() - 1));
                return true;
            }
            if (status..status + bytes).contains(&offset) {
                let left = tile.register(offset) & !value;
                tile.registers.insert(offset, left);
                return true;
            }
        }
        false
    }

    /// The control and start-queue registers of DMA channels. False if the register is none of them.
    fn write_channel(&mut self, index: usize, offset: u32, value: u32) -> Result<bool> {
        let tile = &mut self.tiles[index];
        for (direction, first) in DIRECTIONS.into_iter().zip(channel_registers(tile.kind).control) {
            let Some(at) = offset.checked_sub(first).filter(|at| at % 4 == 0) else { continue };
            let channel = at as usize / 8;
            let Some(state) = tile.channels[direction as usize].get_mut(channel) else { continue };
            if at % 8 == 0 {
                state.control.0 = value;
                if tile.kind != TileKind::Shim && state.control.holds(tile.kind) {
                    state.reset();
                }
            } else {
                let mut task = DmaTask::decode(value);
                if tile.kind != TileKind::Mem {
                    task.descriptor &= 0xf;
                }
                if !state.push(task, self.now) {
                    let (column, row) = (tile.column, tile.row);
                    let (descriptor, places) = (task.descriptor, dma::QUEUE);
                    return Err(ArrayError::QueueFull { column, row, direction, channel, descriptor, places });
                }
                tile.busy |= 1 << (SIDE * direction as usize + channel);
            }
            return Ok(true);
        }
        Ok(false)
    }
}

impl Tile {
    /// Enable and reset of the core.
    fn control_core(&mut self, value: u32, now: u64) {
        let Some(core) = &mut self.core else { return };
        if value & CORE_RESET != 0 {
            core.reset();
            self.wait = None;
            self.core_done = false;
        }
        // A core that is done goes on only after a reset.
        let enabled = value & (CORE_ENABLE | CORE_RESET) == CORE_ENABLE && !self.core_done;
        if enabled {
            self.core_delay = self.core_delay.max(now.saturating_sub(core.cycles()));
        }
        self.core_enabled = enabled;
    }

    /// The core's status: enabled, in reset, done, and what it waits for.
    fn core_status(&self) -> u32 {
        use crate::core::Wait;
        let stall = match self.wait.filter(|_| self.core_enabled) {
            // South, west, north, and own memory, which counts as east.
            Some(Wait::Lock { id, .. }) => [1 << 6, 1 << 7, 1 << 8, 1 << 9][(id as usize / 16).min(3)],
            Some(Wait::StreamRead) => 1 << 10,
            Some(Wait::StreamWrite) => 1 << 12,
            Some(Wait::CascadeRead) => 1 << 14,
            Some(Wait::CascadeWrite) => 1 << 15,
            _ => 0,
        };
        if self.core_done {
            return CORE_DONE;
        }
        self.register(CORE_CONTROL) & (CORE_ENABLE | CORE_RESET) | stall
    }

    /// Sets the bit of an event in the status registers from `status` on.
    pub fn raise_event(&mut self, status: u32, event: u32) {
        *self.registers.entry(status + event / 32 * 4).or_insert(0) |= 1 << (event % 32);
    }
}

/// Registers of DMA channels that are not what was written to them.
fn channel_register(tile: &Tile, offset: u32) -> Option<u32> {
    let registers = channel_registers(tile.kind);
    let place = |first: u32| offset.checked_sub(first).filter(|at| at % 4 == 0).map(|at| at as usize / 4);
    for direction in DIRECTIONS {
        let channels = &tile.channels[direction as usize];
        let first = registers.control[direction as usize];
        if let Some(at) = place(first)
            && let Some(channel) = channels.get(at / 2)
        {
            // Start queues cannot be read.
            return Some(if at % 2 == 0 { channel.control.0 } else { 0 });
        }
        if let Some(channel) = place(registers.status[direction as usize]).and_then(|at| channels.get(at)) {
            return Some(channel.status(direction));
        }
    }
    let channels = &tile.channels[Direction::StreamToMemory as usize];
    if let Some(channel) = place(registers.words).and_then(|at| channels.get(at)) {
        return Some(channel.words as u32);
    }
    let channel = place(registers.counts).and_then(|at| channels.get(at))?;
    Some(channel.counts.front().copied().unwrap_or(0))
}

fn lock_index(kind: TileKind, offset: u32) -> Option<usize> {
    let (first, count) = match kind {
        TileKind::Core => (0x1_f000, 16),
        TileKind::Mem => (0xc_0000, 64),
        TileKind::Shim => (0x1_4000, 16),
    };
    let index = offset.checked_sub(first)? / 16;
    (index < count && offset.is_multiple_of(16)).then_some(index as usize)
}

/// The lock, whether it is acquired, and the value of a request that is made by reading.
fn lock_request(kind: TileKind, offset: u32) -> Option<(usize, bool, i32)> {
    let (first, count) = match kind {
        TileKind::Core | TileKind::Shim => (0x4_0000, 16),
        TileKind::Mem => (0xd_0000, 64),
    };
    let at = offset.checked_sub(first)?;
    let lock = (at / 0x400) as usize;
    // Seven bits with a sign.
    let value = ((at >> 2 & 0x7f) as i32) << 25 >> 25;
    (lock < count).then_some((lock, at & 0x200 != 0, value))
}
