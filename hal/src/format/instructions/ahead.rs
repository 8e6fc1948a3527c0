//! Tasks of shims that may be started before the dispatches in front of theirs have ended.
//!
//! Such a task reads memory that nothing in flight writes, and what it sends waits in the array until the dispatch takes it that it was
//! made for. A stream does not say whether its design has room for that: [`AheadChannel`] is what its maker says of a channel.

use super::{Instruction, opcode};
use crate::format::bd::ShimBd;
use crate::format::dma_channel::{Direction, DmaChannel, DmaTask};
use crate::format::register::TileKind;
use crate::format::{tile_address, tile_location};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A channel of a shim whose tasks may run ahead, for all dispatches of one PDI.
///
/// Who makes the PDI and its streams promises that
/// - what the channel sends goes through channels that the configuration has started forever, and holds up nothing but itself when it
///   waits there;
/// - a core takes nothing of it before the dispatch that it was made for has begun in another way;
/// - when a dispatch has ended, all its tasks on the channel have;
/// - the descriptors are used by tasks of this channel alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AheadChannel {
    /// Column of the shim, counted from the partition's first.
    pub column: u8,
    /// Number of its MM2S channel.
    pub channel: u8,
    /// Packet id of what is sent, where the channel leads to several places: tasks with others do not run ahead.
    pub packet: Option<u8>,
    /// The first of its descriptors.
    pub first_descriptor: u8,
    /// How many it has.
    pub descriptors: u8,
    /// Column of the shim that gets the results of what the channel sends: their token tells that a dispatch has ended.
    pub results: u8,
}

/// Tasks that a channel holds, the one that it runs included.
const QUEUE: u8 = 4;
/// Descriptors of a shim.
const DESCRIPTORS: u8 = 16;

impl AheadChannel {
    pub(super) fn descriptors(&self) -> Range<u8> {
        self.first_descriptor..self.first_descriptor.saturating_add(self.descriptors).min(DESCRIPTORS)
    }

    /// How many of its tasks may be started and not have ended.
    pub(super) fn most(&self) -> usize {
        self.descriptors().len().min(QUEUE.into())
    }

    /// Its descriptors and its registers, by address.
    fn registers(&self) -> [Range<u64>; 2] {
        let at = |offset| u64::from(tile_address(self.column, 0, offset));
        let Range { start, end } = self.descriptors();
        let channel = DmaChannel::new(TileKind::Shim, Direction::MemoryToStream, self.channel);
        let queue = channel.map_or(0..0, |channel| at(channel.task_queue()) - 4..at(channel.task_queue()) + 4);
        [at(ShimBd::register(start))..at(ShimBd::register(end)), queue]
    }

    /// Whether an operation has to do with the channel or its descriptors.
    pub(super) fn is_touched(&self, operation: &Instruction<'_>) -> bool {
        let touches = |first: u64, bytes: u64| {
            self.registers().iter().any(|range| range.start < first.saturating_add(bytes) && first < range.end)
        };
        match *operation {
            Instruction::Write { address, .. } | Instruction::MaskWrite { address, .. } => touches(address, 4),
            Instruction::BlockWrite { address, data } => touches(address.into(), 4 * data.len() as u64),
            Instruction::AddressPatch { register, .. } => touches(register, 8),
            // What a register of the column says may be about what the channel has sent.
            Instruction::MaskPoll { address, .. } | Instruction::MaskPollBusy { address, .. } => {
                u32::try_from(address).ok().is_none_or(|address| tile_location(address).0 == self.column)
            }
            Instruction::Sync { direction, column, columns, channel, .. } => {
                direction == Direction::MemoryToStream
                    && channel == self.channel
                    && (column..column.saturating_add(columns)).contains(&self.column)
            }
            _ => false,
        }
    }
}

/// A task of a shim that a stream starts, in operations that follow each other: a descriptor, its address, sometimes the number of the
/// tokens' controller, and the push.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub operations: Range<usize>,
    pub descriptor: u8,
    pub argument: u16,
    column: u8,
    direction: Direction,
    channel: u8,
    packet: Option<u8>,
    /// Whether it sends a token, takes a lock or goes on with another descriptor, so that something else depends on when it runs.
    is_bound: bool,
}

impl Task {
    /// The one that begins with operation `first`.
    pub fn at(operations: &[Instruction<'_>], first: usize) -> Option<Self> {
        let Instruction::BlockWrite { address, data } = *operations.get(first)? else { return None };
        let (column, 0, offset) = tile_location(address) else { return None };
        let descriptor = (0..DESCRIPTORS).find(|descriptor| ShimBd::register(*descriptor) == offset)?;
        let bd = ShimBd::decode(&data.exactly()?);
        let Instruction::AddressPatch { register, argument, .. } = *operations.get(first + 1)? else { return None };
        if register != u64::from(address) + 4 {
            return None;
        }
        let channels = [Direction::StreamToMemory, Direction::MemoryToStream]
            .into_iter()
            .flat_map(|direction| (0..2).map(move |channel| (direction, channel)))
            .filter_map(|(direction, channel)| DmaChannel::new(TileKind::Shim, direction, channel).ok());
        let at = |offset| u64::from(tile_address(column, 0, offset));
        let mut controller = None;
        let mut push = first + 2;
        if let Instruction::MaskWrite { address, mask, .. } = *operations.get(push)? {
            controller = Some((address, mask));
            push += 1;
        }
        let Instruction::Write { address, value } = *operations.get(push)? else { return None };
        let channel = channels.into_iter().find(|channel| at(channel.task_queue()) == address)?;
        let named = channel.token_controller();
        if controller.is_some_and(|controller| controller != (at(named.offset), named.mask)) {
            return None;
        }
        let task = DmaTask::decode(value);
        (task.descriptor == descriptor && bd.valid).then(|| Self {
            operations: first..push + 1,
            descriptor,
            argument,
            column,
            direction: channel.direction(),
            channel: channel.number(),
            packet: bd.enable_packet.then_some(bd.packet_id as u8),
            is_bound: task.token || bd.use_next || bd.acquire || bd.release_value != 0,
        })
    }

    /// Whether it is one of the channel like any other: with a descriptor of the channel's, and nothing else depends on it.
    pub fn is_plain_on(&self, of: &AheadChannel) -> bool {
        !self.is_bound
            && self.direction == Direction::MemoryToStream
            && (self.column, self.channel) == (of.column, of.channel)
            && of.descriptors().contains(&self.descriptor)
    }

    /// Whether what it sends goes where it may run ahead.
    pub fn is_of_packet(&self, of: &AheadChannel) -> bool {
        self.packet == of.packet
    }

    /// One of its operations with another descriptor.
    pub fn with_descriptor<'a>(&self, operation: &Instruction<'a>, descriptor: u8) -> Instruction<'a> {
        let moved = |address: u32| address - ShimBd::register(self.descriptor) + ShimBd::register(descriptor);
        match *operation {
            Instruction::BlockWrite { address, data } => Instruction::BlockWrite { address: moved(address), data },
            Instruction::AddressPatch { register, argument, offset } => {
                Instruction::AddressPatch { register: moved(register as u32).into(), argument, offset }
            }
            Instruction::Write { address, value } => {
                let task = DmaTask { descriptor, ..DmaTask::decode(value) };
                Instruction::Write { address, value: task.encode() }
            }
            other => other,
        }
    }
}

/// Where the last waits of a stream begin: those that nothing but the reset of what it has changed comes behind.
pub(super) fn last_wait(operations: &[Instruction<'_>]) -> usize {
    let waits = |operation: &Instruction<'_>| {
        matches!(operation, Instruction::Sync { .. } | Instruction::Custom { opcode: opcode::MERGE_SYNC, .. })
    };
    let Some(last) = operations.iter().rposition(waits) else { return operations.len() };
    operations[..last].iter().rposition(|operation| !waits(operation)).map_or(0, |before| before + 1)
}
