//! Chains of dispatches: packed, and in flight.
//!
//! A kernel driver queues several chains of a context, so the host need not wait for one before it continues. What it does
//! meanwhile may touch memory only as far as no chain in flight does: [`ChainsInFlight::last_conflict`] says.

use super::joined::SharedJoined;
use super::objects::{buffer_range, kernel};
use super::stream::Stream;
use super::touched::Touched;
use super::{ContextOf, DeviceBackend, LoadedKernel};
use crate::artifact::KernelArtifact;
use crate::command_list::{BufferRef, Command};
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::submission_queue::InFlight;
use aie_device_memory::{Span, Spans};
use std::collections::VecDeque;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

/// Which stream a dispatch runs. Another than the kernel's own is released when the chain has ended and nothing else has it.
#[derive(Debug)]
pub(super) enum Runs<H> {
    /// The kernel's.
    Own,
    /// One that was made for the data at hand ([`crate::StreamMaker`]).
    Made(Box<Stream<H>>),
    /// Those of neighbours.
    Joined(SharedJoined<H>),
}

/// A dispatch in a chain.
#[derive(Debug)]
pub(super) struct Packet<H> {
    /// Index of the submission in its batch.
    pub(super) submission: usize,
    /// Its command in the submission; the first of those that were joined.
    pub(super) command: usize,
    /// Index of its PDI in the context.
    pub(super) slot: usize,
    /// Device addresses: inputs, then outputs.
    pub(super) arguments: Vec<Range<u64>>,
    /// How many of them are outputs.
    pub(super) outputs: usize,
    /// What it touches, if less than its arguments.
    pub(super) touched: Option<Touched>,
    /// Its stream.
    pub(super) runs: Runs<H>,
}

impl<H> Packet<H> {
    /// Its command, or those that were joined.
    fn commands(&self) -> &[usize] {
        match &self.runs {
            Runs::Own | Runs::Made(_) => slice::from_ref(&self.command),
            Runs::Joined(joined) => &joined.commands,
        }
    }

    fn inputs(&self) -> usize {
        self.arguments.len().saturating_sub(self.outputs)
    }

    /// What it may read.
    fn reads(&self) -> &[Range<u64>] {
        self.touched.as_ref().map_or(&self.arguments[..self.inputs()], |touched| &touched.reads)
    }

    /// What it may write.
    fn writes(&self) -> &[Range<u64>] {
        self.touched.as_ref().map_or(&self.arguments[self.inputs()..], |touched| &touched.writes)
    }

    /// Bytes that are moved.
    fn bytes(&self) -> u64 {
        let all = || self.arguments.iter().map(|range| range.end - range.start).sum();
        self.touched.as_ref().map_or_else(all, |touched| touched.traffic.bytes)
    }
}

#[derive(Debug)]
pub(super) struct Chain<H> {
    packets: Vec<Packet<H>>,
}

impl<H> Default for Chain<H> {
    fn default() -> Self {
        Self { packets: Vec::new() }
    }
}

impl<H> Chain<H> {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Drops the packets and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    pub(super) fn push(&mut self, packet: Packet<H>) {
        self.packets.push(packet);
    }

    /// Index of the submission that a dispatch is of.
    pub(super) fn submission(&self, index: usize) -> usize {
        self.packets[index].submission
    }

    /// Commands of the first `dispatches`.
    pub(super) fn commands(&self, dispatches: usize) -> usize {
        self.packets.iter().take(dispatches).map(|packet| packet.commands().len()).sum()
    }

    fn reads(&self) -> impl Iterator<Item = &Range<u64>> {
        self.packets.iter().flat_map(Packet::reads)
    }

    /// What it may write.
    pub(super) fn writes(&self) -> impl Iterator<Item = &Range<u64>> {
        self.packets.iter().flat_map(Packet::writes)
    }

    /// Whether a host that reads and writes these ranges has to wait for the chain.
    pub(super) fn conflicts(&self, reads: &[Range<u64>], writes: &[Range<u64>]) -> bool {
        self.writes().any(|range| overlaps(range, reads) || overlaps(range, writes))
            || self.reads().any(|range| overlaps(range, writes))
    }
}

/// Whether a range has an address in common with one of the others.
pub(super) fn overlaps(range: &Range<u64>, others: &[Range<u64>]) -> bool {
    others.iter().any(|other| range.start < other.end && other.start < range.end)
}

#[derive(Debug)]
pub(super) struct ChainInFlight<C, H> {
    pub(super) context: C,
    /// The backend's number of it.
    pub(super) number: u64,
    pub(super) chain: Chain<H>,
    /// When it was started.
    pub(super) since: Instant,
    /// How long it was expected to take.
    pub(super) expected_ns: u64,
    /// When it was started, for a timeline.
    pub(super) started: Option<u64>,
}

/// All of them, oldest first. They are of one context.
#[derive(Debug)]
pub(super) struct ChainsInFlight<C, H> {
    pub(super) list: VecDeque<ChainInFlight<C, H>>,
    spare: Vec<Chain<H>>,
}

impl<C, H> Default for ChainsInFlight<C, H> {
    fn default() -> Self {
        Self { list: VecDeque::new(), spare: Vec::new() }
    }
}

impl<C: Copy, H> ChainsInFlight<C, H> {
    pub(super) fn context(&self) -> Option<C> {
        self.list.front().map(|flight| flight.context)
    }

    /// An empty chain, with the memory of one that has ended.
    pub(super) fn empty(&mut self) -> Chain<H> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the memory of a chain that has ended.
    pub(super) fn recycle(&mut self, mut chain: Chain<H>) {
        chain.clear();
        self.spare.push(chain);
    }

    /// How many of the oldest have to end before the host may read and write these ranges.
    pub(super) fn last_conflict(&self, reads: &[Range<u64>], writes: &[Range<u64>]) -> usize {
        self.list.iter().rposition(|flight| flight.chain.conflicts(reads, writes)).map_or(0, |last| last + 1)
    }
}

/// Why a chain failed.
#[derive(Debug)]
pub struct ChainFailure {
    /// Index of the dispatch in the chain, when known: those before it have run, those behind it have not.
    pub command: Option<usize>,
    /// Whether the state of the context is unknown, so that it has to be destroyed. Its end is also what makes sure that the device
    /// does not touch the memory of these dispatches any more.
    pub discard_context: bool,
    /// The error of the submission.
    pub cause: DeviceError,
}

/// A chain, for the backend that runs it.
pub struct ChainView<'a, B: DeviceBackend> {
    pub(super) device: &'a B,
    pub(super) context: ContextOf<B>,
    pub(super) chain: &'a Chain<B::Heap>,
    pub(super) batch: &'a VecDeque<InFlight>,
}

/// A dispatch of a chain.
pub struct Dispatch<'a, B: DeviceBackend> {
    /// What it runs; of joined dispatches the first.
    pub kernel: &'a LoadedKernel<B>,
    /// The kernel with the instructions of this dispatch: its own, those made for the data at hand, or those of all that were joined.
    pub artifact: &'a KernelArtifact,
    /// Where these instructions are.
    pub instructions: &'a B::Heap,
    /// Index of the PDI in the context.
    pub slot: usize,
    /// Inputs, then outputs, as device addresses.
    pub arguments: &'a [Range<u64>],
    /// How many of them are outputs.
    pub outputs: usize,
    /// What it may read, as device addresses inside its arguments. Those of joined dispatches are wider than what each uses.
    pub reads: &'a [Range<u64>],
    /// What it may write.
    pub writes: &'a [Range<u64>],
    /// Bytes that it moves, as far as known: those that its instructions name, or all of its arguments.
    pub bytes: u64,
    device: &'a B,
    submission: &'a InFlight,
    commands: &'a [usize],
    bindings: &'a [BufferRef],
}

/// The kernel of a command, and its arguments.
fn dispatched(submission: &InFlight, command: usize) -> Option<(&Arc<dyn Executable>, &[BufferRef], usize)> {
    match submission.commands().get(command)? {
        Command::Dispatch { executable, bindings, outputs } => Some((executable, bindings, *outputs)),
        _ => None,
    }
}

/// As many of the dispatches that were joined messages name.
pub(super) const NAMED: usize = 8;

/// Dispatches of a submission that were one on the device, for messages.
fn describe(submission: &InFlight, commands: &[usize]) -> String {
    let name = |command: &usize| dispatched(submission, *command).map_or("a kernel", |(e, ..)| e.artifact().name());
    match commands {
        [] => "a dispatch".to_owned(),
        [command] => format!("dispatch of `{}` (command {command})", name(command)),
        [first, .., last] => {
            // A token can be one dispatch.
            let names = commands.iter().take(NAMED).map(|command| format!("`{}`", name(command)));
            let more = (commands.len() > NAMED).then(|| format!("{} more", commands.len() - NAMED));
            let names: Vec<String> = names.chain(more).collect();
            format!("dispatch of {} joined (commands {first} to {last})", names.join(", "))
        }
    }
}

impl<'a, B: DeviceBackend> ChainView<'a, B> {
    /// The context to run it in.
    pub fn context(&self) -> ContextOf<B> {
        self.context
    }

    /// The dispatches, in order.
    pub fn dispatches(&self) -> impl Iterator<Item = Dispatch<'a, B>> {
        let Self { device, chain, batch, .. } = *self;
        chain.packets.iter().filter_map(move |packet| {
            let submission = &batch[packet.submission];
            let (executable, bindings, _) = dispatched(submission, packet.command)?;
            let kernel = kernel(device, packet.command, executable).ok()?;
            let of = |stream: &'a Stream<B::Heap>| (&stream.artifact, &stream.instructions);
            let ((artifact, instructions), bindings) = match &packet.runs {
                Runs::Own => ((&kernel.artifact, &kernel.instructions), bindings),
                Runs::Made(stream) => (of(stream), bindings),
                Runs::Joined(joined) => (of(&joined.stream), joined.bindings.as_slice()),
            };
            Some(Dispatch {
                kernel,
                artifact,
                instructions,
                slot: packet.slot,
                arguments: &packet.arguments,
                outputs: packet.outputs,
                reads: packet.reads(),
                writes: packet.writes(),
                bytes: packet.bytes(),
                device,
                submission,
                commands: packet.commands(),
                bindings,
            })
        })
    }

    /// What failed when the dispatch at `index` did, or an unknown one, for messages.
    pub fn describe(&self, index: Option<usize>) -> String {
        let count = self.chain.len();
        let packet = &self.chain.packets[index.filter(|index| *index < count).unwrap_or(0)];
        let what = describe(&self.batch[packet.submission], packet.commands());
        format!("{what} in a chain of {count}")
    }
}

impl<'a, B: DeviceBackend> Dispatch<'a, B> {
    /// The commands that it runs: one, or those that were joined. Kernel, arguments and number of outputs of each.
    fn commands(&self) -> impl Iterator<Item = (&'a Arc<dyn Executable>, &'a [BufferRef], usize)> + use<'a, B> {
        let submission = self.submission;
        self.commands.iter().filter_map(move |command| dispatched(submission, *command))
    }

    /// What it is, for messages: kernel and command, or all that were joined.
    pub fn describe(&self) -> String {
        describe(self.submission, self.commands)
    }

    /// Names of its kernels, each with the bytes of its arguments: one, or those that were joined.
    pub fn kernels(&self) -> impl Iterator<Item = (&'a str, u64)> + use<'a, B> {
        self.commands().map(|(executable, bindings, _)| {
            (executable.artifact().name(), bindings.iter().map(|binding| binding.length as u64).sum())
        })
    }

    fn span(&self, reference: &'a BufferRef) -> Result<Span<'a>, DeviceError> {
        let command = self.commands.first().copied().unwrap_or_default();
        let range = buffer_range(self.device, self.submission.bindings(), command, reference)?;
        range.buffer.device_span(range.offset, range.length)
    }

    /// The arguments in the device's view.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] for a range that leaves its buffer.
    pub fn spans(&self) -> Result<Spans<'a>, DeviceError> {
        self.bindings.iter().map(|reference| self.span(reference)).collect()
    }

    /// The outputs of its commands in the device's view.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] for a range that leaves its buffer.
    pub fn results(&self) -> Result<Spans<'a>, DeviceError> {
        let outputs = self.commands().flat_map(|(_, bindings, outputs)| {
            let inputs = bindings.len().saturating_sub(outputs);
            bindings.iter().skip(inputs)
        });
        outputs.map(|reference| self.span(reference)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn in_flight(ranges: &[(Range<u64>, Range<u64>)]) -> ChainsInFlight<u8, ()> {
        let mut flights = ChainsInFlight::default();
        for ((reads, writes), number) in ranges.iter().zip(0..) {
            let mut chain = flights.empty();
            let arguments = vec![reads.clone(), writes.clone()];
            let (touched, runs) = (None, Runs::Own);
            chain.push(Packet { submission: 0, command: 0, slot: 0, arguments, outputs: 1, touched, runs });
            flights.list.push_back(ChainInFlight {
                context: 1,
                number,
                chain,
                since: Instant::now(),
                expected_ns: 0,
                started: None,
            });
        }
        flights
    }

    #[rstest]
    #[case::reads_what_chains_only_read(Some(0..10), None, 0)]
    #[case::reads_what_the_first_writes(Some(15..16), None, 1)]
    #[case::reads_what_the_second_writes(Some(35..36), None, 2)]
    #[case::writes_what_one_reads_and_writes(None, Some(9..12), 1)]
    #[case::writes_what_the_second_writes(None, Some(39..50), 2)]
    #[case::touches_what_lies_beside(Some(50..60), Some(40..50), 0)]
    fn the_host_waits_for_what_it_depends_on(
        #[case] reads: Option<Range<u64>>,
        #[case] writes: Option<Range<u64>>,
        #[case] expected: usize,
    ) {
        let flights = in_flight(&[(0..10, 10..20), (20..30, 30..40)]);
        assert_eq!(flights.last_conflict(reads.as_slice(), writes.as_slice()), expected);
    }

    #[test]
    fn chains_end_in_their_order() {
        let mut flights = in_flight(&[(0..1, 1..2), (2..3, 3..4)]);
        assert_eq!((flights.list.len(), flights.context()), (2, Some(1)));
        let first = flights.list.pop_front().unwrap();
        assert_eq!(first.number, 0);
        flights.recycle(first.chain);
        assert_eq!(flights.empty().len(), 0);
        assert_eq!(flights.list.pop_front().map(|flight| flight.number), Some(1));
        assert!(flights.list.pop_front().is_none() && flights.context().is_none());
    }
}
