//! Concatenates instruction streams.
//!
//! A part's stream waits at its end until nothing of it moves. In front of that wait the tasks of later parts can be started that may
//! [run ahead](AheadChannel), so that their data is under way while the part ends and the next one begins:
//!
//! - Tasks of one channel stay in their order, and a channel holds as many as its queue has places: what is moved delays only tasks of its
//!   own channel, and these come later anyway.
//! - So everything that a part needs is in front of it on every channel, and what it has to wait for needs nothing of a later part: its
//!   results are made of its own operands, and what was sent ahead waits behind them where it holds up nothing else. There is no deadlock that
//!   the parts apart do not have.
//! - The end of a part is the end of its tasks. Until then their descriptors are in use; what is moved gets another one of the channel's.
//! - Only whole tasks move, and only such as read what no part writes; others of the channel keep their place, and what is behind them stays
//!   behind. So does all else: parameters and locks of cores, and what is not recognised as a task. A part that does anything else with the
//!   channel or its descriptors nothing goes past, on that channel.
//!
//! What is written as it [is already](known) is left out: products of one operand have the same descriptor, and layers the same parameters.

mod known;

use super::ahead::{AheadChannel, Task, last_wait};
use super::{HEADER_BYTES, Instruction, InstructionStream, InstructionWriter, KeptMemory, address, opcode};
use crate::format::dma_channel::Direction;
use crate::format::error::FormatError;
use crate::format::words::Words;
use known::Known;
use std::ops::Range;

/// Where an argument of a stream lies in a stream that it becomes part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgumentPlace {
    /// Position of the argument that holds it.
    pub argument: u16,
    /// Bytes from the start of that one.
    pub offset: u64,
}

/// Why a stream cannot be a part of another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {operation} of the stream {reason}")]
pub struct JoinError {
    operation: usize,
    reason: String,
}

impl InstructionStream<'_> {
    /// Whether it can be part of another stream: it waits for a completion token, and its operations access registers and wait, and do
    /// nothing else.
    ///
    /// That nothing moves any more at its end is for the stream's maker to see to, as it is for dispatches that follow each other in
    /// a chain.
    #[must_use]
    pub fn can_be_joined(&self) -> bool {
        self.has_completion_token() && self.operations().all(|operation| refusal(&operation).is_none())
    }
}

/// Why an operation cannot be executed as part of another stream.
fn refusal(operation: &Instruction<'_>) -> Option<String> {
    match operation {
        Instruction::Write { .. }
        | Instruction::BlockWrite { .. }
        | Instruction::MaskWrite { .. }
        | Instruction::MaskPoll { .. }
        | Instruction::MaskPollBusy { .. }
        | Instruction::Noop
        | Instruction::Sync { .. }
        | Instruction::AddressPatch { .. }
        | Instruction::Custom { opcode: opcode::MERGE_SYNC, .. } => None,
        Instruction::Preempt { .. } => Some("lets another context take over".to_owned()),
        Instruction::LoadPdi { .. } => Some("loads another PDI".to_owned()),
        Instruction::Custom { opcode, .. } => Some(format!("has code {opcode:#04x}, which may mean anything")),
    }
}

/// Its operations, with its arguments where `places` says.
fn relocated<'a>(
    stream: &InstructionStream<'a>,
    places: &[ArgumentPlace],
) -> impl Iterator<Item = Result<Instruction<'a>, JoinError>> {
    stream.operations().enumerate().map(move |(number, operation)| {
        let error = |reason: String| JoinError { operation: number, reason };
        if let Some(reason) = refusal(&operation) {
            return Err(error(reason));
        }
        let Instruction::AddressPatch { register, argument, offset } = operation else { return Ok(operation) };
        let place = places.get(usize::from(argument));
        let place = place.ok_or_else(|| error(format!("uses argument {argument} of {}", places.len())))?;
        let moved = place.offset.checked_add(offset).filter(|moved| *moved < address::limit(place.argument));
        let offset = moved.ok_or_else(|| error(format!("has an address {offset:#x} bytes behind its argument")))?;
        Ok(Instruction::AddressPatch { register, argument: place.argument, offset })
    })
}

impl InstructionWriter {
    /// Adds all operations of `stream`, whose arguments lie where `places` says.
    ///
    /// # Errors
    /// [`JoinError`] for a stream for another partition, an operation that cannot be part of another stream, or an argument that has no
    /// place. What was added before stays.
    pub fn append(&mut self, stream: &InstructionStream<'_>, places: &[ArgumentPlace]) -> Result<&mut Self, JoinError> {
        self.check_partition(stream)?;
        for operation in relocated(stream, places) {
            self.push(&operation?);
        }
        Ok(self)
    }

    fn check_partition(&self, stream: &InstructionStream<'_>) -> Result<(), JoinError> {
        let (own, header) = (self.header, stream.header());
        let reason = || format!("is for another partition: {header:?} instead of {own:?}");
        if own == header { Ok(()) } else { Err(JoinError { operation: 0, reason: reason() }) }
    }
}

/// A stream that becomes part of a joined one.
#[derive(Clone, Copy, Debug)]
pub struct JoinPart<'a> {
    /// What it does.
    pub stream: InstructionStream<'a>,
    /// Where its arguments lie.
    pub places: &'a [ArgumentPlace],
    /// The channels of its design whose tasks may run ahead.
    pub ahead: &'a [AheadChannel],
    /// The memory of its design that nothing but streams writes.
    pub kept: &'a [KeptMemory],
    /// By argument: whether no part of the joined stream writes it. Missing ones are taken to be written.
    pub constant: &'a [bool],
    /// Whether its operations stay together and as they are, so that others can take their place ([`can_replace`]).
    pub is_replaceable: bool,
}

/// What parts become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedStream {
    /// The stream.
    pub bytes: Vec<u8>,
    /// Where in it the operations of replaceable parts are, in their order.
    pub pieces: Vec<Range<usize>>,
    /// How many tasks are started ahead of their part.
    pub ahead: usize,
}

/// Why there is no joined stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinFailure {
    /// One of the parts cannot be part of another stream.
    #[error("{cause} (part {part})")]
    Part {
        /// Which.
        part: usize,
        /// Why.
        cause: JoinError,
    },
    /// It would be too long.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A part, taken apart.
struct Planned<'a> {
    operations: Vec<Instruction<'a>>,
    /// By channel that runs ahead: its tasks, and whether they may. None: nothing is known, and nothing goes past.
    tasks: Vec<Option<Vec<(Task, bool)>>>,
    /// Where its last wait begins.
    wait: usize,
    is_replaceable: bool,
}

impl<'a> Planned<'a> {
    fn new(part: &JoinPart<'a>, channels: &[AheadChannel]) -> Result<Self, JoinError> {
        let operations: Vec<Instruction<'a>> = relocated(&part.stream, part.places).collect::<Result<_, _>>()?;
        // The tasks name the arguments of the part itself.
        let own: Vec<Instruction<'a>> =
            if channels.is_empty() { Vec::new() } else { part.stream.operations().collect() };
        let mut planned =
            Self { wait: last_wait(&operations), operations, tasks: Vec::new(), is_replaceable: part.is_replaceable };
        planned.tasks = channels.iter().map(|channel| planned.tasks_on(channel, part, &own)).collect();
        Ok(planned)
    }

    fn tasks_on(
        &self,
        channel: &AheadChannel,
        part: &JoinPart<'_>,
        own: &[Instruction<'_>],
    ) -> Option<Vec<(Task, bool)>> {
        let is_known = part.ahead.contains(channel) && !part.is_replaceable;
        let mut tasks = Vec::new();
        let mut at = 0;
        while let Some(operation) = own.get(at) {
            match Task::at(own, at).filter(|task| is_known && task.is_plain_on(channel)) {
                Some(task) => {
                    at = task.operations.end;
                    let is_constant = part.constant.get(usize::from(task.argument)).copied().unwrap_or_default();
                    let runs_ahead = is_constant && task.is_of_packet(channel);
                    tasks.push((task, runs_ahead));
                }
                _ if channel.is_touched(operation) => return None,
                _ => at += 1,
            }
        }
        let ends = |operation: &Instruction<'_>| match *operation {
            Instruction::Sync { direction: Direction::StreamToMemory, column, columns, row: 0, .. } => {
                (column..column.saturating_add(columns)).contains(&channel.results)
            }
            _ => false,
        };
        let is_awaited = tasks.is_empty() || self.operations[self.wait..].iter().any(ends);
        (is_awaited && tasks.len() <= channel.most()).then_some(tasks)
    }

    /// The task that begins with an operation: number of its channel, and its own on that.
    fn task(&self, at: usize) -> Option<(usize, usize, &Task)> {
        self.tasks.iter().enumerate().find_map(|(channel, tasks)| {
            let tasks = tasks.as_ref()?;
            let number = tasks.iter().position(|(task, _)| task.operations.start == at)?;
            Some((channel, number, &tasks[number].0))
        })
    }
}

/// The tasks of a channel that runs ahead.
struct Queue {
    channel: AheadChannel,
    /// The next one: of which part, and its number there.
    next: (usize, usize),
    /// Those that may not have ended: of which part, and with which descriptor.
    started: Vec<(usize, u8)>,
}

impl Queue {
    /// The next task, if it can be started in front of the end of part `current`.
    fn next_ahead<'a>(
        &self,
        number: usize,
        parts: &'a [Planned<'_>],
        current: usize,
    ) -> Option<((usize, usize), &'a Task)> {
        parts[current].tasks[number].as_ref()?;
        let (mut part, mut at) = self.next;
        let (task, runs_ahead) = loop {
            match parts.get(part)?.tasks[number].as_ref()?.get(at) {
                Some(task) => break task,
                None => (part, at) = (part + 1, 0),
            }
        };
        (*runs_ahead && self.started.len() < self.channel.most()).then_some(((part, at), task))
    }

    fn start(
        &mut self,
        (part, number): (usize, usize),
        planned: &Planned<'_>,
        task: &Task,
        (writer, known): (&mut InstructionWriter, &mut Known),
    ) {
        let is_free = |descriptor: &u8| self.started.iter().all(|(_, used)| used != descriptor);
        // There is one: no more tasks are started than the channel has descriptors.
        let descriptor = Some(task.descriptor).filter(is_free);
        let descriptor = descriptor.or_else(|| self.channel.descriptors().find(is_free)).unwrap_or(task.descriptor);
        for operation in &planned.operations[task.operations.clone()] {
            let operation = task.with_descriptor(operation, descriptor);
            known.forget(&operation);
            writer.push(&operation);
        }
        self.started.push((part, descriptor));
        self.next = (part, number + 1);
    }
}

/// Starts tasks of later parts, of all channels in turn. Gives how many.
fn run_ahead(
    queues: &mut [Queue],
    parts: &[Planned<'_>],
    current: usize,
    writer: &mut InstructionWriter,
    known: &mut Known,
) -> usize {
    let mut count = 0;
    loop {
        let before = count;
        for (number, queue) in queues.iter_mut().enumerate() {
            let Some((at, task)) = queue.next_ahead(number, parts, current) else { continue };
            queue.start(at, &parts[at.0], task, (writer, known));
            count += 1;
        }
        if count == before {
            return count;
        }
    }
}

/// The stream in which one part follows the other, with the tasks ahead that may run so. At least one part.
///
/// # Errors
/// [`JoinFailure`]: a part cannot be one, or the stream gets too long.
pub fn join(parts: &[JoinPart<'_>]) -> Result<JoinedStream, JoinFailure> {
    let mut channels: Vec<AheadChannel> = Vec::new();
    for channel in parts.iter().flat_map(|part| part.ahead) {
        if !channels.contains(channel) {
            channels.push(*channel);
        }
    }
    // Of a channel of which two things are said nothing is known.
    let all = channels.clone();
    let is_said_once = |channel: &AheadChannel| {
        let place = (channel.column, channel.channel);
        all.iter().filter(|other| (other.column, other.channel) == place).count() == 1
    };
    channels.retain(is_said_once);
    let Some(first) = parts.first() else {
        return Err(FormatError::new("joined instructions", 0, "a part", "none").into());
    };
    let mut writer = InstructionWriter::new(first.stream.header());
    let planned = parts.iter().enumerate().map(|(part, join)| {
        let checked = writer.check_partition(&join.stream).and_then(|()| Planned::new(join, &channels));
        checked.map_err(|cause| JoinFailure::Part { part, cause })
    });
    let planned: Vec<Planned<'_>> = planned.collect::<Result<_, _>>()?;
    let queue = |channel: &AheadChannel| Queue { channel: *channel, next: (0, 0), started: Vec::new() };
    let mut queues: Vec<Queue> = channels.iter().map(queue).collect();
    let mut known = Known::new(first.stream.header(), parts.iter().flat_map(|part| part.kept));
    let (mut pieces, mut ahead) = (Vec::new(), 0);
    for (index, part) in planned.iter().enumerate() {
        queues.iter_mut().for_each(|queue| queue.next = queue.next.max((index, 0)));
        if part.is_replaceable {
            ahead += run_ahead(&mut queues, &planned, index, &mut writer, &mut known);
        }
        let start = writer.bytes();
        let mut at = 0;
        while let Some(operation) = part.operations.get(at) {
            if at == part.wait && !part.is_replaceable {
                ahead += run_ahead(&mut queues, &planned, index, &mut writer, &mut known);
            }
            match part.task(at) {
                Some((channel, number, task)) => {
                    let queue = &mut queues[channel];
                    if queue.next <= (index, number) {
                        queue.start((index, number), part, task, (&mut writer, &mut known));
                    }
                    at = task.operations.end;
                }
                None => {
                    let repeated = if part.is_replaceable { 0 } else { known.repeated(&part.operations[at..]) };
                    if repeated > 0 {
                        at += repeated;
                        continue;
                    }
                    known.forget(operation);
                    writer.push(operation);
                    at += 1;
                    if !part.is_replaceable {
                        known.learn(&part.operations[..at]);
                    }
                }
            }
        }
        if part.is_replaceable {
            pieces.push(start..writer.bytes());
        }
        queues.iter_mut().for_each(|queue| queue.started.retain(|(of, _)| *of > index));
    }
    Ok(JoinedStream { bytes: writer.finish()?, pieces, ahead })
}

/// Whether operations can take the place of others in a joined stream: as many bytes, of the same kinds, with the same registers, arguments
/// and waits, so that what was found out of the joined stream stays right. Both without a header.
#[must_use]
pub fn can_replace(old: &[u8], new: &[u8]) -> bool {
    let [mut old, mut new] = [old, new].map(|bytes| Words::new(bytes, HEADER_BYTES));
    loop {
        let (Ok(before), Ok(after)) = (Instruction::decode(old), Instruction::decode(new)) else { return false };
        let (Some((before, rest)), Some((after, more))) = (before, after) else {
            return before.is_none() && after.is_none();
        };
        let alike = rest.len() == more.len()
            && match (before, after) {
                (Instruction::Write { address: a, .. }, Instruction::Write { address: b, .. }) => a == b,
                (Instruction::BlockWrite { address: a, data: x }, Instruction::BlockWrite { address: b, data: y }) => {
                    (a, x.len()) == (b, y.len())
                }
                (
                    Instruction::AddressPatch { register: a, argument: x, .. },
                    Instruction::AddressPatch { register: b, argument: y, .. },
                ) => (a, x) == (b, y),
                (before, after) => before == after,
            };
        if !alike {
            return false;
        }
        (old, new) = (rest, more);
    }
}

#[cfg(test)]
mod tests;
