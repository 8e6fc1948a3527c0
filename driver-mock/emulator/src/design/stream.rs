//! The instruction stream, step by step, in terms of what each write configures.

use super::descriptor::{Address, Descriptor};
use super::place::{Place, descriptors, register_name};
use super::position::Position;
use super::replay::{Outside, Replay};
use super::tile::{ChannelId, Task};
use aie_hal::format::dma_channel::{ChannelControl, Direction, DmaTask};
use aie_hal::format::instructions::{Instruction, InstructionStream};
use serde::Serialize;

/// An instruction stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// Generation of the device that it says it is for.
    pub generation: u8,
    /// Columns of the partition.
    pub columns: u8,
    /// Rows of the array.
    pub rows: u8,
    /// Arguments it uses: the highest index plus one.
    pub arguments: usize,
    /// Its operations.
    pub steps: Vec<Step>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its place in the stream.
    pub index: usize,
    /// What it does; a block write can do several things.
    pub actions: Vec<Action>,
}

/// A transfer that a task starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// Its descriptor.
    pub descriptor: u8,
    /// Where it begins.
    pub address: Address,
    /// Words of a run.
    pub words: u64,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Writes a whole buffer descriptor.
    Descriptor {
        /// Its tile.
        tile: Position,
        /// What it is now.
        descriptor: Descriptor,
    },
    /// Writes a word of a buffer descriptor, or some bits of it.
    DescriptorWord {
        /// Its tile.
        tile: Position,
        /// Its number.
        descriptor: u8,
        /// Which word.
        word: u8,
        /// Bits written.
        mask: u32,
        /// Their values.
        value: u32,
    },
    /// Puts the address of an argument into a descriptor.
    AddressPatch {
        /// Its tile.
        tile: Position,
        /// Its number; none if the register is not a descriptor's address.
        descriptor: Option<u8>,
        /// Offset of the register.
        register: u32,
        /// The argument.
        argument: u16,
        /// Bytes from its start.
        byte: u64,
    },
    /// Starts a task of a DMA channel.
    Start {
        /// The tile.
        tile: Position,
        /// The channel.
        channel: ChannelId,
        /// The task.
        task: Task,
        /// What it moves.
        transfers: Vec<Transfer>,
    },
    /// Writes a channel's control register.
    Control {
        /// The tile.
        tile: Position,
        /// The channel.
        channel: ChannelId,
        /// Bits written.
        mask: u32,
        /// Their values.
        value: u32,
        /// Packet id of its completion tokens, if that is what is written.
        controller: Option<u8>,
    },
    /// Sets a lock.
    Lock {
        /// The tile.
        tile: Position,
        /// The lock.
        lock: u8,
        /// What is written; a lock keeps six bits of it.
        value: u32,
    },
    /// Writes words of data memory, as run-time parameters are.
    Memory {
        /// The tile.
        tile: Position,
        /// First byte.
        byte: u32,
        /// The words.
        words: Vec<u32>,
    },
    /// Writes program memory.
    Program {
        /// The tile.
        tile: Position,
        /// First address.
        address: u32,
        /// How much.
        bytes: u32,
    },
    /// Writes another register.
    Register {
        /// The tile.
        tile: Position,
        /// Its offset.
        offset: u32,
        /// What it is, if that is known.
        name: Option<String>,
        /// Bits written.
        mask: u32,
        /// Their values.
        value: u32,
    },
    /// Waits until bits of a register have a value.
    Poll {
        /// The tile.
        tile: Position,
        /// Offset of the register.
        offset: u32,
        /// What it is, if that is known.
        name: Option<String>,
        /// Bits that count.
        mask: u32,
        /// The value.
        value: u32,
        /// Whether other work has to wait too.
        busy: bool,
    },
    /// Waits for a completion token of a channel of each tile of a rectangle.
    WaitToken {
        /// First column.
        column: u8,
        /// First row.
        row: u8,
        /// Columns.
        columns: u8,
        /// Rows.
        rows: u8,
        /// The channel.
        channel: ChannelId,
    },
    /// Does nothing.
    Noop,
    /// A point at which another context may take over.
    Preempt {
        /// What is to be saved.
        level: u8,
    },
    /// Loads another PDI.
    LoadPdi {
        /// Its number.
        id: u16,
        /// Its bytes.
        size: u32,
        /// Its device address.
        address: u64,
    },
    /// Uses an address of no tile.
    Outside {
        /// The address.
        address: u64,
    },
    /// An operation that is not decoded.
    Other {
        /// What it is called, or its code.
        name: String,
        /// Its payload.
        words: Vec<u32>,
    },
}

impl Stream {
    /// The operations of a stream, on what a PDI has configured.
    pub(super) fn of(stream: &InstructionStream<'_>, replay: &mut Replay<'_>) -> Self {
        let header = stream.header();
        let steps = stream.operations().enumerate();
        let steps = steps.map(|(index, operation)| Step { index, actions: actions(operation, replay) }).collect();
        let arguments = stream.argument_count();
        Self { generation: header.generation, columns: header.columns, rows: header.rows, arguments, steps }
    }

    /// All actions in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.steps.iter().flat_map(|step| &step.actions)
    }
}

fn actions(operation: Instruction<'_>, replay: &mut Replay<'_>) -> Vec<Action> {
    let outside = |Outside(address)| Action::Outside { address };
    let one = |result: Result<Action, Outside>| vec![result.unwrap_or_else(outside)];
    match operation {
        Instruction::Write { address, value } => one(write(replay, address, u32::MAX, value)),
        Instruction::MaskWrite { address, value, mask } => one(write(replay, address, mask, value)),
        Instruction::BlockWrite { address, data } => {
            block(replay, address.into(), &data.to_vec()).unwrap_or_else(|error| vec![outside(error)])
        }
        Instruction::MaskPoll { address, value, mask } => one(poll(replay, address, mask, value, false)),
        Instruction::MaskPollBusy { address, value, mask } => one(poll(replay, address, mask, value, true)),
        Instruction::AddressPatch { register, argument, offset } => {
            one(replay.patch(register, argument, offset).map(|(tile, register, descriptor)| Action::AddressPatch {
                tile,
                descriptor,
                register,
                argument,
                byte: offset,
            }))
        }
        Instruction::Sync { direction, column, row, columns, rows, channel } => {
            let channel = ChannelId { direction, channel };
            vec![Action::WaitToken { column, row, columns, rows, channel }]
        }
        Instruction::Noop => vec![Action::Noop],
        Instruction::Preempt { level } => vec![Action::Preempt { level }],
        Instruction::LoadPdi { id, size, address } => vec![Action::LoadPdi { id, size, address }],
        Instruction::Custom { opcode, payload } => {
            let name = match opcode {
                0x82 => "read registers".to_owned(),
                0x83 => "record timer".to_owned(),
                0x84 => "merge sync".to_owned(),
                code => format!("operation {code:#04x}"),
            };
            vec![Action::Other { name, words: payload.to_vec() }]
        }
        other => vec![Action::Other { name: format!("{other:?}"), words: Vec::new() }],
    }
}

fn write(replay: &mut Replay<'_>, address: u64, mask: u32, value: u32) -> Result<Action, Outside> {
    let (tile, offset) = replay.locate(address)?;
    let (_, place) = replay.write(address, mask, value)?;
    let word = replay.tile(tile).word(offset);
    Ok(match place {
        Place::Memory(byte) => Action::Memory { tile, byte, words: vec![word] },
        Place::Program(address) => Action::Program { tile, address, bytes: 4 },
        Place::Lock(lock) => Action::Lock { tile, lock, value: word },
        Place::Descriptor { id, word } => Action::DescriptorWord { tile, descriptor: id, word, mask, value },
        Place::TaskQueue(channel) => {
            let written = replay.tile(tile);
            let task = Task::of(tile.kind, DmaTask::decode(word), written);
            let transfer = |id: &u8| {
                let Descriptor { address, words, .. } = Descriptor::of(tile.kind, *id, written);
                Transfer { descriptor: *id, address, words }
            };
            let transfers = task.chain.iter().map(transfer).collect();
            Action::Start { tile, channel: channel.into(), task, transfers }
        }
        Place::Control(channel) => {
            let only = mask == ChannelControl::CONTROLLER_MASK;
            let controller = only.then(|| ChannelControl::decode(word).controller & 0x1F);
            Action::Control { tile, channel: channel.into(), mask, value, controller }
        }
        Place::Switch | Place::Multiplexer | Place::CoreControl | Place::Cascade | Place::Other => {
            Action::Register { tile, offset, name: name(place, tile, offset), mask, value }
        }
    })
}

/// The name of any register.
fn name(place: Place, tile: Position, offset: u32) -> Option<String> {
    let of = |channel: aie_hal::format::dma_channel::DmaChannel, what: &str| {
        Some(format!("{} {} {what}", channel.direction(), channel.number()))
    };
    match place {
        Place::Switch => Some("stream switch".into()),
        Place::Multiplexer => Some("shim multiplexer".into()),
        Place::CoreControl => Some("core control".into()),
        Place::Cascade => Some("cascade".into()),
        Place::Lock(lock) => Some(format!("lock {lock}")),
        Place::Memory(_) => Some("data memory".into()),
        Place::Program(_) => Some("program memory".into()),
        Place::Descriptor { id, word } => Some(format!("BD {id} word {word}")),
        Place::Control(channel) => of(channel, "control"),
        Place::TaskQueue(channel) => of(channel, "task queue"),
        Place::Other => register_name(tile.kind, offset),
    }
}

fn poll(replay: &mut Replay<'_>, address: u64, mask: u32, value: u32, busy: bool) -> Result<Action, Outside> {
    let (tile, offset) = replay.locate(address)?;
    let name = name(Place::of(replay.arch, tile.kind, offset), tile, offset);
    Ok(Action::Poll { tile, offset, name, mask, value, busy })
}

/// A block write: whole descriptors as such, memory in one piece, everything else word by word.
fn block(replay: &mut Replay<'_>, address: u64, data: &[u32]) -> Result<Vec<Action>, Outside> {
    let mut actions: Vec<Action> = Vec::new();
    let mut rest = data;
    let mut address = address;
    while let Some(value) = rest.first() {
        let (tile, offset) = replay.locate(address)?;
        let words = usize::from(descriptors(tile.kind).2);
        let mut taken = 1;
        match Place::of(replay.arch, tile.kind, offset) {
            Place::Descriptor { id, word: 0 } if rest.len() >= words => {
                replay.write_block(address, rest[..words].iter().copied())?;
                let descriptor = Descriptor::of(tile.kind, id, replay.tile(tile));
                actions.push(Action::Descriptor { tile, descriptor });
                taken = words;
            }
            _ => {
                let action = write(replay, address, u32::MAX, *value)?;
                let joined = actions.last_mut().is_some_and(|last| join(last, &action));
                if !joined {
                    actions.push(action);
                }
            }
        }
        rest = &rest[taken..];
        address = address.saturating_add(4 * taken as u64);
    }
    Ok(actions)
}

/// Adds an action to the one before it, if both write memory without a gap.
fn join(last: &mut Action, next: &Action) -> bool {
    match (last, next) {
        (Action::Memory { tile, byte, words }, Action::Memory { tile: same, byte: at, words: more })
            if tile == same && *byte + 4 * words.len() as u32 == *at =>
        {
            words.extend(more);
            true
        }
        (Action::Program { tile, address, bytes }, Action::Program { tile: same, address: at, bytes: more })
            if tile == same && *address + *bytes == *at =>
        {
            *bytes += more;
            true
        }
        _ => false,
    }
}

/// The arguments that the tasks of a channel move, in the order of their numbers.
pub(super) fn arguments_of(stream: &Stream, tile: Position, direction: Direction, channel: u8) -> Vec<u16> {
    let wanted = ChannelId { direction, channel };
    let transfers = stream.actions().filter_map(|action| match action {
        Action::Start { tile: of, channel, transfers, .. } if *of == tile && *channel == wanted => Some(transfers),
        _ => None,
    });
    let mut arguments: Vec<u16> = transfers
        .flatten()
        .filter_map(|transfer| match transfer.address {
            Address::Argument { argument, .. } => Some(argument),
            _ => None,
        })
        .collect();
    arguments.sort_unstable();
    arguments.dedup();
    arguments
}
