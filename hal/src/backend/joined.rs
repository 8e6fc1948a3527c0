//! Merges adjacent dispatches of one PDI into one, by concatenating their instruction streams.
//!
//! A chain has room for few dispatches, and each has a cost of its own. The stream of a dispatch ends when everything has arrived,
//! so that the next one can follow in the same stream: barriers between them hold.
//!
//! An argument of a joined dispatch is the span of what its parts use of one buffer. It may be wide, and only says where the streams'
//! addresses start; what is read and written are the parts' own ranges.

use super::DeviceBackend;
use super::LoadedKernel;
use super::stream::Stream;
use super::touched::Touched;
use crate::artifact::{Digest, KernelArtifact};
use crate::command_list::{BufferRef, RangeOf};
use crate::format::instructions::{ArgumentPlace, InstructionStream, InstructionWriter};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of a joined stream.
const STREAM_BYTES: usize = 256 << 10;
/// Longest expected time of a joined dispatch in nanoseconds. The kernel's driver gives up on a job after two seconds, and expected times
/// may be several times too short.
const EXPECTED_NS: u64 = 20_000_000;

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
    pub(super) fn add(&mut self, submission: usize, part: Part<'a, B>, most_arguments: usize) -> Option<Part<'a, B>> {
        let stream_bytes = self.stream_bytes + part.artifact().instructions().len();
        let expected_ns = self.expected_ns.saturating_add(part.expected_ns);
        self.candidate.clone_from(&self.spans);
        add_arguments(&mut self.candidate, part.bindings, part.outputs, B::ARGUMENT_BYTES);
        if let Some(first) = self.parts.first() {
            let fits = first.joinable
                && part.joinable
                && self.submission == submission
                && first.kernel.pdi.number == part.kernel.pdi.number
                && self.candidate.len() <= most_arguments
                && stream_bytes <= STREAM_BYTES
                && expected_ns <= EXPECTED_NS;
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

    /// Whether the stream of one of them was made for the data at hand.
    pub(super) fn has_made(&self) -> bool {
        self.parts.iter().any(|part| part.made.is_some())
    }

    /// Expected time.
    pub(super) fn expected_ns(&self) -> u64 {
        self.expected_ns
    }

    /// The dispatch that they become, with its stream as an artifact of their PDI. None when their streams do not go together, which is no
    /// error.
    pub(super) fn join(&self) -> Option<Joined<KernelArtifact>> {
        let first = self.parts.first()?.artifact();
        // Inputs are in front of outputs.
        let mut spans: Vec<&Span<'_>> = self.spans.iter().collect();
        spans.sort_by_key(|span| span.written);
        let mut writer: Option<InstructionWriter> = None;
        for part in &self.parts {
            let stream = InstructionStream::parse(part.artifact().instructions()).ok()?;
            let places: Option<Vec<ArgumentPlace>> =
                part.bindings.iter().map(|binding| place(&spans, binding)).collect();
            let writer = writer.get_or_insert_with(|| InstructionWriter::new(stream.header()));
            if let Err(why) = writer.append(&stream, &places?) {
                tracing::debug!("`{}` stays a dispatch of its own: {why}", part.artifact().name());
                return None;
            }
        }
        let names: Vec<&str> = self.parts.iter().map(|part| part.artifact().name()).collect();
        let artifact = first.with_instructions(writer?.finish().ok()?).ok()?.renamed(names.join(" + "));
        let reference =
            |span: &&Span<'_>| BufferRef { of: span.of.clone(), offset: span.range.start, length: span.range.len() };
        let outputs = spans.iter().filter(|span| span.written).count();
        let bindings = spans.iter().map(reference).collect();
        Some(Joined { stream: artifact, commands: self.commands.clone(), bindings, outputs })
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
}

impl<S> Joined<S> {
    pub(super) fn with<T>(self, stream: T) -> Joined<T> {
        Joined { stream, commands: self.commands, bindings: self.bindings, outputs: self.outputs }
    }
}

/// A joined dispatch in the device heap, shared by the chains that run it.
pub(super) type SharedJoined<H> = Arc<Joined<Arc<Stream<H>>>>;

/// What the neighbours of one command list were joined to. Kept with the list, and released with it.
#[derive(Debug)]
pub(super) struct JoinedList<H>(Mutex<Known<H>>);

#[derive(Debug)]
struct Known<H> {
    /// By their commands. None: they stay apart.
    dispatches: HashMap<Vec<usize>, Option<SharedJoined<H>>>,
    /// Layers of a model often have the same stream, with other arguments.
    streams: HashMap<Digest, Arc<Stream<H>>>,
}

impl<H> Default for JoinedList<H> {
    fn default() -> Self {
        Self(Mutex::new(Known { dispatches: HashMap::new(), streams: HashMap::new() }))
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
        let Known { dispatches, streams } = &mut *self.0.lock();
        if let Some(known) = dispatches.get(neighbours.commands.as_slice()) {
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
        dispatches.insert(neighbours.commands.clone(), made.clone());
        made
    }
}

#[cfg(test)]
mod tests;
