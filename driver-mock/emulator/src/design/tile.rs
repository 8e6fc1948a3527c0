//! What one tile is configured to do.

use super::descriptor::{Descriptor, Owner};
use super::place::{Place, descriptors, register_name};
use super::position::Position;
use super::program::{CoreLock, Program};
use super::replay::Written;
use super::switch::Switch;
use aie_hal::Arch;
use aie_hal::format::core_control::{ACCUMULATOR_CONTROL, CONTROL, ENABLE, RESET};
use aie_hal::format::dma_channel::{ChannelControl, Direction, DmaChannel, DmaTask, FinishOnTlast};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::TileKind;
use aie_hal::format::shim_mux;
use aie_isa::Isa;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A tile of the design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Where it is.
    #[serde(flatten)]
    pub position: Position,
    /// The core, if it has one.
    pub core: Option<Core>,
    /// Data memory that is written before the kernel starts.
    pub memory: Vec<Region>,
    /// Locks that are used, or start with another value than 0.
    pub locks: Vec<LockState>,
    /// Buffer descriptors.
    pub descriptors: Vec<Descriptor>,
    /// DMA channels that have a task, or a setting that is not the usual one.
    pub channels: Vec<Channel>,
    /// The stream switch.
    pub switch: Switch,
    /// DMA channels that a shim tile's multiplexer connects with its switch.
    pub connected: Vec<ChannelId>,
    /// Further registers.
    pub registers: Vec<Register>,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Core {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it is in reset, as it is after power-on.
    pub in_reset: bool,
    /// Where its cascade input comes from and its output goes to, if that was set.
    pub cascade: Option<(Owner, Owner)>,
    /// Its program, if it has one.
    pub program: Option<Program>,
    /// Locks that the program names.
    pub locks: Vec<CoreLock>,
}

/// A part of data memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// First byte.
    pub start: u32,
    /// Bytes.
    pub bytes: u32,
    /// Words of it that are not zero.
    pub nonzero_words: u32,
}

/// Who uses a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum User {
    /// The program of a core.
    Core {
        /// Its column.
        column: u8,
        /// Its row.
        row: u8,
    },
    /// A buffer descriptor.
    Descriptor {
        /// Column of its tile.
        column: u8,
        /// Row of its tile.
        row: u8,
        /// Its number.
        descriptor: u8,
    },
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockState {
    /// Its number.
    pub lock: u8,
    /// The value it starts with.
    pub value: u8,
    /// Who acquires it.
    pub acquired_by: Vec<User>,
    /// Who releases it.
    pub released_by: Vec<User>,
}

/// Which channel of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelId {
    /// Direction.
    pub direction: Direction,
    /// Number among those of its direction.
    pub channel: u8,
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.direction, self.channel)
    }
}

impl From<DmaChannel> for ChannelId {
    fn from(channel: DmaChannel) -> Self {
        Self { direction: channel.direction(), channel: channel.number() }
    }
}

/// A task of a channel, with the descriptors it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// First descriptor.
    pub descriptor: u8,
    /// How often its chain runs.
    pub runs: u16,
    /// Whether a completion token is sent at the end.
    pub token: bool,
    /// The descriptors in order, each once.
    pub chain: Vec<u8>,
    /// Whether the chain goes back to one of its own, so that the task never ends.
    pub endless: bool,
}

/// A DMA channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Which.
    #[serde(flatten)]
    pub id: ChannelId,
    /// Tasks that the configuration starts.
    pub tasks: Vec<Task>,
    /// Whether it is left in reset.
    pub in_reset: bool,
    /// Whether arriving packets choose their descriptor.
    pub out_of_order: bool,
    /// Whether TLAST ends a transfer.
    pub finish_on_tlast: bool,
    /// Packet id of its completion tokens.
    pub controller: u8,
}

/// A register that is shown as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Register {
    /// Offset in the tile.
    pub offset: u32,
    /// What it is, if that is known.
    pub name: Option<String>,
    /// What was written last.
    pub value: u32,
}

/// Bit of a channel's control register that holds it in reset, in core and mem tiles.
pub(super) const CHANNEL_RESET: u32 = 2;

impl Task {
    /// A task with the chain that the descriptors give at the moment.
    pub(super) fn of(kind: TileKind, task: DmaTask, written: &Written) -> Self {
        let mut chain: Vec<u8> = Vec::new();
        let mut next = Some(task.descriptor);
        let mut endless = false;
        while let Some(id) = next {
            if chain.contains(&id) {
                endless = true;
                break;
            }
            chain.push(id);
            next = Descriptor::of(kind, id, written).next;
        }
        Self { descriptor: task.descriptor, runs: u16::from(task.repeat) + 1, token: task.token, chain, endless }
    }
}

impl Tile {
    /// The tile as it was written.
    pub(super) fn of(arch: &Arch, isa: &Isa, position: Position, written: &Written) -> Self {
        let kind = position.kind;
        let (mut memory, mut program, mut values, mut registers) =
            (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let mut ids = Vec::new();
        for (offset, value) in &written.words {
            match Place::of(arch, kind, *offset) {
                Place::Memory(byte) => add(&mut memory, byte, *value),
                Place::Program(address) => {
                    program.insert(address, *value);
                }
                Place::Lock(lock) => values.push((lock, (value & 0x3F) as u8)),
                Place::Descriptor { id, .. } if *value != 0 && !ids.contains(&id) => ids.push(id),
                Place::Other => {
                    registers.push(Register { offset: *offset, name: register_name(kind, *offset), value: *value });
                }
                _ => {}
            }
        }
        let core = (kind == TileKind::Core).then(|| Core::of(isa, written, &program));
        let locks = values
            .into_iter()
            .filter(|(_, value)| *value != 0)
            .map(|(lock, value)| LockState { lock, value, acquired_by: Vec::new(), released_by: Vec::new() })
            .collect();
        let is_connected = |channel: &DmaChannel| {
            let word = written.word(shim_mux::register(channel.direction()));
            shim_mux::is_connected(channel.direction(), channel.number(), word)
        };
        let connected = DmaChannel::all(kind).filter(|channel| kind == TileKind::Shim && is_connected(channel));
        Self {
            position,
            core,
            memory,
            locks,
            descriptors: ids.into_iter().map(|id| Descriptor::of(kind, id, written)).collect(),
            channels: DmaChannel::all(kind).filter_map(|channel| Channel::of(kind, channel, written)).collect(),
            switch: Switch::of(kind, written),
            connected: connected.map(ChannelId::from).collect(),
            registers,
        }
    }

    /// A descriptor.
    pub fn descriptor(&self, id: u8) -> Option<&Descriptor> {
        self.descriptors.iter().find(|descriptor| descriptor.id == id)
    }

    /// The lock with a number, which is added if it is not there.
    fn lock(&mut self, lock: u8) -> &mut LockState {
        let index = self.locks.iter().position(|state| state.lock >= lock).unwrap_or(self.locks.len());
        if self.locks.get(index).is_none_or(|state| state.lock != lock) {
            let state = LockState { lock, value: 0, acquired_by: Vec::new(), released_by: Vec::new() };
            self.locks.insert(index, state);
        }
        &mut self.locks[index]
    }
}

impl Core {
    fn of(isa: &Isa, written: &Written, program: &BTreeMap<u32, u32>) -> Self {
        let control = written.word(CONTROL);
        let cascade = written.words.get(&ACCUMULATOR_CONTROL).map(|word| {
            let input = if word & 1 == 0 { Owner::North } else { Owner::West };
            (input, if word & 2 == 0 { Owner::South } else { Owner::East })
        });
        let (program, locks) = Program::of(isa, program);
        Self {
            enabled: control & ENABLE != 0,
            in_reset: control & RESET != 0,
            cascade,
            program: (!program.lines.is_empty()).then_some(program),
            locks,
        }
    }
}

impl Channel {
    fn of(kind: TileKind, channel: DmaChannel, written: &Written) -> Option<Self> {
        let word = written.word(channel.control());
        let control = ChannelControl::decode(word);
        let pushed = written.tasks.iter().filter(|(of, _)| *of == channel);
        let found = Self {
            id: channel.into(),
            tasks: pushed.map(|(_, task)| Task::of(kind, *task, written)).collect(),
            in_reset: kind != TileKind::Shim && word & CHANNEL_RESET != 0,
            out_of_order: control.out_of_order,
            finish_on_tlast: control.finish_on_tlast != FinishOnTlast::Off,
            controller: control.controller,
        };
        let usual = !found.in_reset && !found.out_of_order && !found.finish_on_tlast && found.controller == 0;
        (!usual || !found.tasks.is_empty()).then_some(found)
    }
}

/// Adds a word to the regions of data memory.
fn add(memory: &mut Vec<Region>, byte: u32, value: u32) {
    let nonzero = u32::from(value != 0);
    match memory.last_mut() {
        Some(last) if last.start + last.bytes == byte => {
            last.bytes += 4;
            last.nonzero_words += nonzero;
        }
        _ => memory.push(Region { start: byte, bytes: 4, nonzero_words: nonzero }),
    }
}

/// Enters who uses which lock into the tiles that have them.
pub(super) fn link_locks(tiles: &mut BTreeMap<(u8, u8), Tile>) {
    let mut uses = Vec::new();
    for (key, tile) in tiles.iter() {
        let (column, row) = *key;
        for descriptor in &tile.descriptors {
            let user = User::Descriptor { column, row, descriptor: descriptor.id };
            for (found, acquire) in [(descriptor.acquire, true), (descriptor.release, false)] {
                let key = found.and_then(|found| neighbour(*key, found.owner));
                uses.extend(key.zip(found).map(|(key, found)| (key, found.lock, acquire, user)));
            }
        }
        for lock in tile.core.iter().flat_map(|core| &core.locks) {
            let key = neighbour(*key, lock.owner);
            uses.extend(key.map(|key| (key, lock.lock, lock.acquire, User::Core { column, row })));
        }
    }
    for (key, lock, acquire, user) in uses {
        if let Some(tile) = tiles.get_mut(&key) {
            let state = tile.lock(lock);
            if acquire { state.acquired_by.push(user) } else { state.released_by.push(user) }
        }
    }
}

/// The tile that is meant by an owner, seen from another.
pub(super) fn neighbour((column, row): (u8, u8), owner: Owner) -> Option<(u8, u8)> {
    match owner {
        Owner::Own => Some((column, row)),
        Owner::South => Some((column, row.checked_sub(1)?)),
        Owner::West => Some((column.checked_sub(1)?, row)),
        Owner::North => Some((column, row.checked_add(1)?)),
        Owner::East => Some((column.checked_add(1)?, row)),
        Owner::Nobody => None,
    }
}

/// Whether the descriptors of a kind of tile include one with this number.
pub(super) fn has_descriptor(kind: TileKind, id: u8) -> bool {
    id < descriptors(kind).1
}

/// Whether a kind of tile has a lock with this number.
pub(super) fn has_lock(kind: TileKind, id: u8) -> bool {
    Lock::new(kind, id).is_ok()
}
