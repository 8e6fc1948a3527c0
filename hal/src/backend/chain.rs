//! Chains of dispatches: packed, and in flight.
//!
//! A kernel driver queues several chains of a context, so the host need not wait for one before it continues. What it does
//! meanwhile may touch memory only as far as no chain in flight does: [`ChainsInFlight::last_conflict`] says.

use super::objects::{buffer_range, kernel};
use super::{ContextOf, DeviceBackend, LoadedKernel};
use crate::artifact::KernelArtifact;
use crate::command_list::{BindingTable, BufferRef, Command};
use crate::error::DeviceError;
use crate::submission_queue::InFlight;
use aie_device_memory::Spans;
use std::collections::VecDeque;
use std::ops::Range;

/// Where a dispatch of a chain comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// Index of the submission in its batch.
    pub(super) submission: usize,
    /// Index of the command in the submission.
    pub(super) command: usize,
}

/// The instructions that were made for one dispatch ([`crate::StreamMaker`]), in a piece `H` of the device heap.
#[derive(Debug)]
pub(super) struct Made<H> {
    pub(super) artifact: KernelArtifact,
    pub(super) instructions: H,
    /// What they touch; none where the instructions do not say it.
    pub(super) touched: Option<Touched>,
}

/// What the instructions of one dispatch touch of its arguments: a row of a table, for example, and not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touched {
    /// Device addresses that may be written.
    pub(super) writes: Vec<Range<u64>>,
    /// Bytes that are moved, both ways.
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Packet<H> {
    origin: Origin,
    slot: usize,
    /// Its arguments in the chain's: inputs up to `outputs`, then outputs.
    arguments: Range<usize>,
    outputs: usize,
    /// Its instructions, when they are not the kernel's own. They are released when the chain has ended.
    made: Option<Made<H>>,
}

impl<H> Packet<H> {
    fn touched(&self) -> Option<&Touched> {
        self.made.as_ref().and_then(|made| made.touched.as_ref())
    }
}

#[derive(Debug)]
pub(super) struct Chain<H> {
    packets: Vec<Packet<H>>,
    /// Device addresses.
    arguments: Vec<Range<u64>>,
}

impl<H> Default for Chain<H> {
    fn default() -> Self {
        Self { packets: Vec::new(), arguments: Vec::new() }
    }
}

impl<H> Chain<H> {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Drops the packets and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.arguments.clear();
    }

    /// Adds a dispatch of the PDI in `slot`.
    /// The chain is unchanged when an argument is wrong.
    pub(super) fn push(
        &mut self,
        origin: Origin,
        slot: usize,
        arguments: impl Iterator<Item = Result<Range<u64>, DeviceError>>,
        outputs: usize,
        made: Option<Made<H>>,
    ) -> Result<(), DeviceError> {
        let start = self.arguments.len();
        for argument in arguments {
            match argument {
                Ok(range) => self.arguments.push(range),
                Err(cause) => {
                    self.arguments.truncate(start);
                    return Err(cause);
                }
            }
        }
        let end = self.arguments.len();
        self.packets.push(Packet {
            origin,
            slot,
            arguments: start..end,
            outputs: end.saturating_sub(outputs).max(start),
            made,
        });
        Ok(())
    }

    pub(super) fn origin(&self, index: usize) -> Origin {
        self.packets[index].origin
    }

    fn reads(&self) -> impl Iterator<Item = &Range<u64>> {
        self.packets.iter().flat_map(|packet| &self.arguments[packet.arguments.start..packet.outputs])
    }

    /// What it may write.
    pub(super) fn writes(&self) -> impl Iterator<Item = &Range<u64>> {
        self.packets.iter().flat_map(|packet| match packet.touched() {
            Some(touched) => touched.writes.as_slice(),
            None => &self.arguments[packet.outputs..packet.arguments.end],
        })
    }

    /// Whether a host that reads and writes these ranges has to wait for the chain.
    pub(super) fn conflicts(&self, reads: &[Range<u64>], writes: &[Range<u64>]) -> bool {
        let overlap = |a: &Range<u64>, with: &[Range<u64>]| with.iter().any(|b| a.start < b.end && b.start < a.end);
        self.writes().any(|range| overlap(range, reads) || overlap(range, writes))
            || self.reads().any(|range| overlap(range, writes))
    }
}

#[derive(Debug)]
pub(super) struct ChainInFlight<C, H> {
    pub(super) context: C,
    /// The backend's number of it.
    pub(super) number: u64,
    pub(super) chain: Chain<H>,
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
    /// What it runs.
    pub kernel: &'a LoadedKernel<B>,
    /// The kernel with the instructions of this dispatch: its own, or those made for the data at hand.
    pub artifact: &'a KernelArtifact,
    /// Where these instructions are.
    pub instructions: &'a B::Heap,
    /// Index of the PDI in the context.
    pub slot: usize,
    /// Inputs, then outputs, as device addresses.
    pub arguments: &'a [Range<u64>],
    /// How many of them are outputs.
    pub outputs: usize,
    /// Bytes that it moves, as far as known: those that its instructions name, or all of its arguments.
    pub bytes: u64,
    /// Index of the command in its submission, for messages.
    pub command: usize,
    name: &'a str,
    device: &'a B,
    bindings: &'a [BufferRef],
    table: &'a BindingTable,
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
            let Origin { submission, command } = packet.origin;
            let Command::Dispatch { executable, bindings, outputs } = &batch[submission].commands()[command] else {
                return None;
            };
            let kernel = kernel(device, command, executable).ok()?;
            let (artifact, instructions) = match &packet.made {
                Some(made) => (&made.artifact, &made.instructions),
                None => (&kernel.artifact, &kernel.instructions),
            };
            let arguments = &chain.arguments[packet.arguments.clone()];
            let all = || arguments.iter().map(|range| range.end - range.start).sum();
            Some(Dispatch {
                kernel,
                artifact,
                instructions,
                slot: packet.slot,
                arguments,
                outputs: *outputs,
                bytes: packet.touched().map_or_else(all, |touched| touched.bytes),
                command,
                name: executable.artifact().name(),
                device,
                bindings,
                table: batch[submission].bindings(),
            })
        })
    }

    /// What failed when the dispatch at `index` did, or an unknown one, for messages.
    pub fn describe(&self, index: Option<usize>) -> String {
        let count = self.chain.len();
        let Origin { submission, command } = self.chain.origin(index.filter(|index| *index < count).unwrap_or(0));
        let name = match self.batch[submission].commands().get(command) {
            Some(Command::Dispatch { executable, .. }) => executable.artifact().name(),
            _ => "a kernel",
        };
        format!("dispatch of `{name}` (command {command}) in a chain of {count}")
    }
}

impl<'a, B: DeviceBackend> Dispatch<'a, B> {
    /// The kernel's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The arguments in the device's view.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] for a range that leaves its buffer.
    pub fn spans(&self) -> Result<Spans<'a>, DeviceError> {
        let span = |reference| {
            let range = buffer_range(self.device, self.table, self.command, reference)?;
            range.buffer.device_span(range.offset, range.length)
        };
        self.bindings.iter().map(span).collect()
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
            let origin = Origin { submission: 0, command: 0 };
            chain.push(origin, 0, [reads, writes].into_iter().cloned().map(Ok), 1, None).unwrap();
            flights.list.push_back(ChainInFlight { context: 1, number, chain, started: None });
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
