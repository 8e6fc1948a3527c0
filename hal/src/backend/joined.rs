//! Merges adjacent dispatches of one PDI into one, by concatenating their instruction streams.
//!
//! A chain has room for few dispatches, and each has a cost of its own. The stream of a dispatch ends when everything has arrived,
//! so that the next one can follow in the same stream: barriers between them hold.
//!
//! Tasks that only read what no part writes, on channels whose maker says so, start in front of the end of the parts before theirs
//! ([`join`]).
//!
//! Parts whose streams are made for the data at hand keep their place and their length from run to run, mostly: then only their bytes are
//! replaced in the device heap, once no chain runs the stream any more.
//!
//! An argument of a joined dispatch is the span of what its parts use of one buffer. It may be wide, and only says where the streams'
//! addresses start; what is read and written are the parts' own ranges.

use super::DeviceBackend;
use super::LoadedKernel;
use super::chain::{NAMED, overlaps};
use super::stream::Stream;
use super::touched::Touched;
use crate::arch::Limits;
use crate::artifact::{Digest, KernelArtifact};
use crate::command_list::{BufferRef, RangeOf};
use crate::device::joined_stream_bytes;
use crate::format::instructions::{ArgumentPlace, InstructionStream, InstructionWriter, JoinFailure, JoinPart, join};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What a joined dispatch is at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    arguments: usize,
    stream_bytes: usize,
    expected_ns: u64,
}

impl Room {
    /// Longest expected time in nanoseconds. It is reckoned at the slow ends of memory and of operations, but on an idle NPU at 1,800 MHz;
    /// at 400 MHz it becomes 0.45 s, and beside a program that has the array half of the time 0.9 s, of the two seconds after which the
    /// kernel's driver gives up on a job.
    const EXPECTED_NS: u64 = 100_000_000;

    /// On a device with these limits, on which a chain may be expected to take `chain_ns`.
    pub(super) fn new(limits: &Limits, chain_ns: u64) -> Self {
        // Halves, so that a pace that changes little by little does not join anew each time.
        let halves = std::iter::successors(Some(Self::EXPECTED_NS), |ns| Some(ns / 2).filter(|ns| *ns > 0));
        let expected_ns = halves.into_iter().find(|ns| *ns <= chain_ns).unwrap_or_default();
        Self { arguments: limits.kernel_arguments, stream_bytes: joined_stream_bytes(limits), expected_ns }
    }
}

/// A dispatch that runs joined with its neighbours, or on its own when there are none.
#[derive(Debug)]
pub(super) struct Part<'a, B: DeviceBackend> {
    /// Index of the command in its submission.
    pub(super) command: usize,
    pub(super) kernel: &'a LoadedKernel<B>,
    pub(super) bindings: &'a [BufferRef],
    /// Their device addresses.
    pub(super) arguments: Vec<Range<u64>>,
    /// How many of them are outputs.
    pub(super) outputs: usize,
    /// The kernel with the stream that was made for the data at hand.
    pub(super) made: Option<KernelArtifact>,
    /// What that stream touches, where its instructions say it.
    pub(super) touched: Option<Touched>,
    /// Expected time.
    pub(super) expected_ns: u64,
    /// Whether its stream can be put behind another.
    pub(super) joinable: bool,
}

impl<B: DeviceBackend> Part<'_, B> {
    fn artifact(&self) -> &KernelArtifact {
        self.made.as_ref().unwrap_or(&self.kernel.artifact)
    }

    /// What it may write.
    fn writes(&self) -> &[Range<u64>] {
        let outputs = self.arguments.len().saturating_sub(self.outputs);
        self.touched.as_ref().map_or(&self.arguments[outputs..], |touched| &touched.writes)
    }

    /// Adds what it touches.
    fn touch(&self, touched: &mut Touched) {
        if let Some(exactly) = &self.touched {
            return touched.add(exactly);
        }
        let (inputs, outputs) = self.arguments.split_at(self.arguments.len().saturating_sub(self.outputs));
        touched.reads.extend_from_slice(inputs);
        touched.writes.extend_from_slice(outputs);
        let bytes = self.arguments.iter().map(|range| range.end - range.start);
        touched.traffic.bytes = bytes.fold(touched.traffic.bytes, u64::saturating_add);
    }
}

/// What the parts of a joined dispatch use of one buffer.
#[derive(Debug, Clone)]
struct Span<'a> {
    of: &'a RangeOf,
    range: Range<usize>,
    written: bool,
}

impl Span<'_> {
    fn is_of(&self, of: &RangeOf) -> bool {
        match (self.of, of) {
            (RangeOf::Buffer(a), RangeOf::Buffer(b)) => Arc::ptr_eq(a, b),
            (RangeOf::Slot(a), RangeOf::Slot(b)) => a == b,
            _ => false,
        }
    }
}

/// Adds the arguments of a part to the spans, none of which becomes longer than `most` bytes.
fn add_arguments<'a>(spans: &mut Vec<Span<'a>>, bindings: &'a [BufferRef], outputs: usize, most: usize) {
    let inputs = bindings.len().saturating_sub(outputs);
    for (index, BufferRef { of, offset, length }) in bindings.iter().enumerate() {
        let (start, end, written) = (*offset, offset.saturating_add(*length), index >= inputs);
        let wider = |span: &Span<'_>| span.range.start.min(start)..span.range.end.max(end);
        match spans.iter_mut().find(|span| span.is_of(of) && wider(span).len() <= most) {
            Some(span) => {
                span.range = wider(span);
                span.written |= written;
            }
            None => spans.push(Span { of, range: start..end, written }),
        }
    }
}

/// Adjacent dispatches that can become one.
#[derive(Debug)]
pub(super) struct Neighbours<'a, B: DeviceBackend> {
    /// Index of their submission in its batch.
    pub(super) submission: usize,
    pub(super) parts: Vec<Part<'a, B>>,
    /// Their commands.
    pub(super) commands: Vec<usize>,
    spans: Vec<Span<'a>>,
    /// What `spans` would be with one more.
    candidate: Vec<Span<'a>>,
    stream_bytes: usize,
    expected_ns: u64,
}

impl<B: DeviceBackend> Default for Neighbours<'_, B> {
    fn default() -> Self {
        Self {
            submission: 0,
            parts: Vec::new(),
            commands: Vec::new(),
            spans: Vec::new(),
            candidate: Vec::new(),
            stream_bytes: 0,
            expected_ns: 0,
        }
    }
}

impl<'a, B: DeviceBackend> Neighbours<'a, B> {
    /// The number of their PDI.
    pub(super) fn pdi(&self) -> Option<usize> {
        self.parts.first().map(|part| part.kernel.pdi.number)
    }

    /// Adds a dispatch. Gives it back when it cannot be joined with those that are there; the first one always can.
    pub(super) fn add(&mut self, submission: usize, part: Part<'a, B>, room: &Room) -> Option<Part<'a, B>> {
        let stream_bytes = self.stream_bytes + part.artifact().instructions().len();
        let expected_ns = self.expected_ns.saturating_add(part.expected_ns);
        self.candidate.clone_from(&self.spans);
        add_arguments(&mut self.candidate, part.bindings, part.outputs, B::ARGUMENT_BYTES);
        if let Some(first) = self.parts.first() {
            let fits = first.joinable
                && part.joinable
                && self.submission == submission
                && first.kernel.pdi.number == part.kernel.pdi.number
                && self.candidate.len() <= room.arguments
                && stream_bytes <= room.stream_bytes
                && expected_ns <= room.expected_ns;
            if !fits {
                return Some(part);
            }
        }
        self.submission = submission;
        std::mem::swap(&mut self.spans, &mut self.candidate);
        (self.stream_bytes, self.expected_ns) = (stream_bytes, expected_ns);
        self.commands.push(part.command);
        self.parts.push(part);
        None
    }

    /// Forgets them and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.commands.clear();
        self.spans.clear();
        (self.stream_bytes, self.expected_ns) = (0, 0);
    }

    /// What they touch.
    pub(super) fn touched(&self) -> Touched {
        let mut touched = Touched::default();
        self.parts.iter().for_each(|part| part.touch(&mut touched));
        touched
    }

    /// Whether one of them may write into these ranges.
    pub(super) fn write(&self, ranges: &[Range<u64>]) -> bool {
        self.parts.iter().flat_map(Part::writes).any(|written| overlaps(written, ranges))
    }

    /// Whether the stream of one of them was made for the data at hand.
    pub(super) fn has_made(&self) -> bool {
        self.parts.iter().any(|part| part.made.is_some())
    }

    /// Expected time.
    pub(super) fn expected_ns(&self) -> u64 {
        self.expected_ns
    }

    /// What they become, and under which circumstances.
    fn key(&self) -> Key {
        Key { commands: self.commands.clone(), constant: self.constant() }
    }

    /// By argument of the parts whose tasks may run ahead: whether no part writes it. Of parts with a stream for the data at hand that is
    /// all they may write, so that another stream does not change it.
    fn constant(&self) -> Vec<bool> {
        let runs_ahead = |part: &&Part<'_, B>| !part.artifact().ahead().is_empty();
        if !self.parts.iter().any(|part| runs_ahead(&part)) {
            return Vec::new();
        }
        let outputs = |part: &'_ Part<'a, B>| part.arguments.len().saturating_sub(part.outputs);
        let written = self.parts.iter().flat_map(|part| part.arguments[outputs(part)..].iter().cloned());
        let mut written: Vec<Range<u64>> = written.filter(|range| !range.is_empty()).collect();
        written.sort_unstable_by_key(|range| range.start);
        written.dedup_by(|next, range| {
            let joins = next.start <= range.end;
            range.end = if joins { range.end.max(next.end) } else { range.end };
            joins
        });
        let is_constant = |argument: &Range<u64>| {
            let behind = written.partition_point(|range| range.end <= argument.start);
            written.get(behind).is_none_or(|range| argument.end <= range.start)
        };
        self.parts.iter().filter(runs_ahead).flat_map(|part| &part.arguments).map(is_constant).collect()
    }

    /// The dispatch that they become, with its stream as an artifact of their PDI. None when their streams do not go together, which is no
    /// error.
    pub(super) fn join(&self) -> Option<Joined<KernelArtifact>> {
        let first = self.parts.first()?.artifact();
        // Inputs are in front of outputs.
        let mut spans: Vec<&Span<'_>> = self.spans.iter().collect();
        spans.sort_by_key(|span| span.written);
        let places = |part: &Part<'_, B>| part.bindings.iter().map(|binding| place(&spans, binding)).collect();
        let places: Vec<Vec<ArgumentPlace>> = self.parts.iter().map(places).collect::<Option<_>>()?;
        let constant = self.constant();
        let mut constant = &constant[..];
        let mut joining = Vec::with_capacity(self.parts.len());
        for (part, places) in self.parts.iter().zip(&places) {
            let ahead = part.artifact().ahead();
            let (own, others) = constant.split_at(if ahead.is_empty() { 0 } else { part.arguments.len() });
            constant = others;
            let stream = InstructionStream::parse(part.artifact().instructions()).ok()?;
            let (kept, is_replaceable) = (part.artifact().kept(), part.made.is_some());
            joining.push(JoinPart { stream, places, ahead, kept, constant: own, is_replaceable });
        }
        // A token can be one dispatch: all names would be a long one.
        let names: Vec<&str> = self.parts.iter().take(NAMED).map(|part| part.artifact().name()).collect();
        let more = self.parts.len().saturating_sub(NAMED);
        let name = names.join(" + ") + &if more > 0 { format!(" + {more} more") } else { String::new() };
        let refused = |why: &JoinFailure| tracing::debug!("{name} stay dispatches of their own: {why}");
        let joined = join(&joining).inspect_err(refused).ok()?;
        let artifact = first.with_instructions(joined.bytes).ok()?.renamed(name);
        let reference =
            |span: &&Span<'_>| BufferRef { of: span.of.clone(), offset: span.range.start, length: span.range.len() };
        let outputs = spans.iter().filter(|span| span.written).count();
        let bindings = spans.iter().map(reference).collect();
        let made = self.parts.iter().zip(places).enumerate().filter(|(_, (part, _))| part.made.is_some());
        let piece = |((part, (_, places)), range)| Piece { part, places, range };
        let pieces = made.zip(joined.pieces).map(piece).collect();
        Some(Joined { stream: artifact, commands: self.commands.clone(), bindings, outputs, pieces })
    }
}

fn place(spans: &[&Span<'_>], BufferRef { of, offset, length }: &BufferRef) -> Option<ArgumentPlace> {
    let holds = |span: &&Span<'_>| span.is_of(of) && span.range.start <= *offset && offset + length <= span.range.end;
    let index = spans.iter().position(holds)?;
    Some(ArgumentPlace { argument: u16::try_from(index).ok()?, offset: (offset - spans[index].range.start) as u64 })
}

/// What neighbours become, with their streams as one `S`: an artifact first, then a piece of the device heap.
#[derive(Debug)]
pub(super) struct Joined<S> {
    pub(super) stream: S,
    /// Their commands.
    pub(super) commands: Vec<usize>,
    /// Its arguments: spans of what its parts use.
    pub(super) bindings: Vec<BufferRef>,
    /// How many of them are outputs.
    pub(super) outputs: usize,
    pieces: Vec<Piece>,
}

/// A part with a stream for the data at hand.
#[derive(Debug)]
struct Piece {
    /// Which part.
    part: usize,
    places: Vec<ArgumentPlace>,
    /// Where its operations are in the stream.
    range: Range<usize>,
}

impl<S> Joined<S> {
    pub(super) fn with<T>(self, stream: T) -> Joined<T> {
        let Self { commands, bindings, outputs, pieces, .. } = self;
        Joined { stream, commands, bindings, outputs, pieces }
    }
}

impl<H> Joined<Arc<Stream<H>>> {
    /// Puts the streams that were made for the data at hand in the place of those of another run. False where they cannot take it, or
    /// a chain has the stream: it must not be run then, as one part of it may be of another run than the next.
    fn replace<B: DeviceBackend<Heap = H>>(&mut self, device: &B, neighbours: &Neighbours<'_, B>) -> bool {
        let Some(stream) = Arc::get_mut(&mut self.stream) else { return false };
        self.pieces.iter().all(|Piece { part, places, range }| {
            let made = neighbours.parts.get(*part).map(|part| part.artifact().instructions());
            let operations = made.and_then(|made| {
                let made = InstructionStream::parse(made).ok()?;
                InstructionWriter::new(made.header()).append(&made, places).ok()?.finish().ok()
            });
            operations.is_some_and(|operations| stream.replace(device, range.clone(), &operations))
        })
    }
}

/// A joined dispatch in the device heap, shared by the chains that run it.
pub(super) type SharedJoined<H> = Arc<Joined<Arc<Stream<H>>>>;

/// Which neighbours of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    commands: Vec<usize>,
    /// See [`Neighbours::constant`]: it can depend on what the list is run with.
    constant: Vec<bool>,
}

/// What the neighbours of one command list were joined to. Kept with the list, and released with it.
#[derive(Debug)]
pub(super) struct JoinedList<H>(Mutex<Known<H>>);

#[derive(Debug)]
struct Known<H> {
    /// None: they stay apart.
    dispatches: HashMap<Key, Option<SharedJoined<H>>>,
    /// Layers of a model often have the same stream, with other arguments.
    streams: HashMap<Digest, Arc<Stream<H>>>,
    /// Those with parts that were made for the data at hand, the latest last.
    made: HashMap<Key, Vec<SharedJoined<H>>>,
}

/// As many joined streams with parts that change are kept of the same neighbours: one is changed while chains run the others.
const KEPT: usize = 4;

impl<H> Default for JoinedList<H> {
    fn default() -> Self {
        Self(Mutex::new(Known { dispatches: HashMap::new(), streams: HashMap::new(), made: HashMap::new() }))
    }
}

impl<H> JoinedList<H> {
    /// The joined dispatch of `neighbours`, none of which has a stream for the data at hand. None when they stay apart, because
    /// their streams do not go together or the device heap has no room for one more.
    pub(super) fn of<B: DeviceBackend<Heap = H>>(
        &self,
        device: &B,
        neighbours: &Neighbours<'_, B>,
    ) -> Option<SharedJoined<H>> {
        let Known { dispatches, streams, .. } = &mut *self.0.lock();
        let key = neighbours.key();
        if let Some(known) = dispatches.get(&key) {
            return known.clone();
        }
        let made = neighbours.join().and_then(|joined| {
            let identity = *joined.stream.identity();
            let stream = match streams.get(&identity) {
                Some(stream) => Arc::clone(stream),
                None => {
                    let loaded = Stream::load(device, &joined.stream);
                    let loaded = loaded.inspect_err(|why| tracing::debug!("neighbours stay apart: {why}"));
                    let stream = Arc::new(loaded.ok()?);
                    streams.insert(identity, Arc::clone(&stream));
                    stream
                }
            };
            Some(Arc::new(joined.with(stream)))
        });
        dispatches.insert(key, made.clone());
        made
    }

    /// The joined dispatch of `neighbours`, some of which have a stream for the data at hand: one of another run, with these streams in the
    /// place of those before. None if chains use all that are kept, or the streams have another form.
    pub(super) fn renewed<B: DeviceBackend<Heap = H>>(
        &self,
        device: &B,
        neighbours: &Neighbours<'_, B>,
    ) -> Option<SharedJoined<H>> {
        let mut known = self.0.lock();
        let kept = known.made.get_mut(&neighbours.key())?;
        kept.iter_mut().find_map(|joined| {
            Arc::get_mut(joined).is_some_and(|joined| joined.replace(device, neighbours)).then(|| Arc::clone(joined))
        })
    }

    /// Gives up what is kept for [`JoinedList::renewed`], to make room in the device heap. Chains that run it keep it.
    pub(super) fn release(&self) {
        self.0.lock().made.clear();
    }

    /// Keeps the joined dispatch of neighbours of which some have a stream for the data at hand, for [`JoinedList::renewed`].
    pub(super) fn keep<B: DeviceBackend<Heap = H>>(&self, neighbours: &Neighbours<'_, B>, joined: &SharedJoined<H>) {
        let mut known = self.0.lock();
        let kept = known.made.entry(neighbours.key()).or_default();
        kept.push(Arc::clone(joined));
        if kept.len() > KEPT {
            kept.remove(0);
        }
    }
}

#[cfg(test)]
mod tests;
