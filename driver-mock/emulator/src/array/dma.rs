//! DMA channels: task queues, buffer descriptors, n-dimensional addresses, padding, locks, packets.
//!
//! This file holds what a channel is and which word comes next; how words get from memory to streams and back is in
//! [`dma_words`](super::dma_words). Sources: AM025 and aie-rt's register tables for the fields, AM020 for their meaning.

use super::fifo::Fifo;
use aie_hal::format::bd::{self, CoreBd, MemTileBd, ShimBd};
use aie_hal::format::dma_channel::{ChannelControl, Direction, DmaTask, FinishOnTlast};
use aie_hal::format::register::TileKind;
use std::collections::VecDeque;

/// Tasks that a channel has at most, the one that runs included: more have not been seen to work on silicon.
pub const QUEUE: usize = 4;
/// Words counts of finished transfers that wait to be read at most.
const COUNTS: usize = 4;

/// Numbers of a kind of tile's descriptors.
pub fn descriptors(kind: TileKind) -> u8 {
    if kind == TileKind::Mem { 48 } else { 16 }
}

/// Offset of a descriptor's first word.
pub fn descriptor_register(kind: TileKind, number: u8) -> u32 {
    match kind {
        TileKind::Core => CoreBd::register(number),
        TileKind::Mem => MemTileBd::register(number),
        TileKind::Shim => ShimBd::register(number),
    }
}

/// The descriptor that a register is of.
pub fn descriptor_at(kind: TileKind, offset: u32) -> Option<u8> {
    let number = offset.checked_sub(descriptor_register(kind, 0))? / 0x20;
    (number < u32::from(descriptors(kind))).then_some(number as u8)
}

/// Where a descriptor keeps the iteration it is at: word and lowest bit, six bits wide.
pub fn iteration_field(kind: TileKind) -> (usize, u32) {
    match kind {
        TileKind::Core => (4, 19),
        TileKind::Mem => (6, 23),
        TileKind::Shim => (6, 26),
    }
}

/// One dimension of an access: its step, its size (0: it never wraps), and the zeros around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dimension {
    pub step: u32,
    pub wrap: u32,
    pub before: u32,
    pub after: u32,
}

/// A lock and the value of its request.
pub type LockRequest = (u32, i32);

/// A buffer descriptor of any kind of tile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Words that are moved, zeros included.
    pub length: u64,
    /// First byte.
    pub base: u64,
    pub dimensions: [Dimension; 4],
    pub iteration: u32,
    pub iteration_wrap: u32,
    pub iteration_step: u32,
    pub acquire: Option<LockRequest>,
    pub release: Option<LockRequest>,
    pub next: Option<u8>,
    /// The header word that goes first.
    pub header: Option<u32>,
    pub suppress_tlast: bool,
    pub compress: bool,
    /// Of a shim's accesses of memory.
    pub qos: u32,
    pub valid: bool,
}

fn dimension(step: u32, wrap: u32) -> Dimension {
    Dimension { step, wrap, before: 0, after: 0 }
}

/// A stream header; bit 31 makes the number of ones odd.
pub fn header(id: u32, packet_type: u32, out_of_order: u32, column: u8, row: u8) -> u32 {
    let word = id | out_of_order << 5 | packet_type << 12 | u32::from(row) << 16 | u32::from(column) << 21;
    word | u32::from(word.count_ones().is_multiple_of(2)) << 31
}

impl Descriptor {
    /// Decodes the words of a descriptor for a channel of a direction. `column` and `row` go into packet headers.
    pub fn load(kind: TileKind, words: &[u32; 8], direction: Direction, column: u8, row: u8) -> Self {
        let mut descriptor = Self::decode(kind, words, column, row);
        if direction == Direction::StreamToMemory {
            // Only what is sent is padded, and has headers.
            descriptor.header = None;
            for dimension in &mut descriptor.dimensions {
                (dimension.before, dimension.after) = (0, 0);
            }
        }
        if descriptor.iteration_wrap == 1 {
            descriptor.iteration = 0;
        }
        descriptor
    }

    /// The iteration that the next load of the descriptor is at.
    pub fn next_iteration(&self) -> u32 {
        if self.iteration + 1 >= self.iteration_wrap { 0 } else { self.iteration + 1 }
    }

    /// The pieces without a gap that so many of its words are, from the first on.
    pub fn pieces(&self, words: u64) -> u64 {
        bd::pieces(words, self.dimensions.iter().map(|dimension| (dimension.step, dimension.wrap)))
    }

    fn decode(kind: TileKind, words: &[u32; 8], column: u8, row: u8) -> Self {
        let lock = |enabled: bool, lock: u32, value: i8| enabled.then_some((lock, i32::from(value)));
        // The descriptors of all kinds of tiles have these fields, in types of their own.
        macro_rules! descriptor {
            ($bd:expr, $base:expr, $dimensions:expr, $compress:expr) => {
                Self {
                    length: $bd.length.into(),
                    base: $base,
                    dimensions: $dimensions,
                    iteration: $bd.iteration,
                    iteration_wrap: $bd.iteration_wrap,
                    iteration_step: $bd.iteration_step,
                    acquire: lock($bd.acquire, $bd.acquire_lock, $bd.acquire_value),
                    release: lock($bd.release_value != 0, $bd.release_lock, $bd.release_value),
                    next: $bd.use_next.then_some($bd.next as u8),
                    header: $bd
                        .enable_packet
                        .then(|| header($bd.packet_id, $bd.packet_type, $bd.out_of_order_id, column, row)),
                    suppress_tlast: $bd.suppress_tlast,
                    compress: $compress,
                    qos: 0,
                    valid: $bd.valid,
                }
            };
        }
        let three = |first, second, step| [first, second, dimension(step, 0), Dimension::default()];
        match kind {
            TileKind::Core => {
                let mut six = [0; 6];
                six.copy_from_slice(&words[..6]);
                let bd = CoreBd::decode(&six);
                let (first, second) = (dimension(bd.d0_step, bd.d0_wrap), dimension(bd.d1_step, bd.d1_wrap));
                descriptor!(bd, u64::from(bd.address) * 4, three(first, second, bd.d2_step), bd.compress)
            }
            TileKind::Mem => {
                let bd = MemTileBd::decode(words);
                let padded = |step, wrap, before, after| Dimension { step, wrap, before, after };
                let dimensions = [
                    padded(bd.d0_step, bd.d0_wrap, bd.d0_zero_before, bd.d0_zero_after),
                    padded(bd.d1_step, bd.d1_wrap, bd.d1_zero_before, bd.d1_zero_after),
                    padded(bd.d2_step, bd.d2_wrap, bd.d2_zero_before, bd.d2_zero_after),
                    dimension(bd.d3_step, 0),
                ];
                descriptor!(bd, u64::from(bd.address) * 4, dimensions, bd.compress)
            }
            TileKind::Shim => {
                let bd = ShimBd::decode(words);
                let (first, second) = (dimension(bd.d0_step, bd.d0_wrap), dimension(bd.d1_step, bd.d1_wrap));
                let qos = bd.qos;
                Self { qos, ..descriptor!(bd, bd.address(), three(first, second, bd.d2_step), false) }
            }
        }
    }
}

/// Where a descriptor's run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    counters: [u32; 4],
    /// Words moved.
    pub moved: u64,
    pub header_sent: bool,
    /// The channel's cycle when the run began.
    pub begin: u64,
}

impl Position {
    /// At the first word, in a run that begins at a cycle.
    pub fn starting(begin: u64) -> Self {
        Self { begin, ..Self::default() }
    }

    /// The byte of the next word relative to the descriptor's base, None for a zero of the padding; and how many words follow one
    /// another with the step of the first dimension, this one included, or 1 in a padding.
    #[inline]
    pub fn run(&self, descriptor: &Descriptor) -> (Option<u64>, u64) {
        let mut words = u64::from(descriptor.iteration) * u64::from(descriptor.iteration_step);
        for (counter, dimension) in self.counters.iter().zip(&descriptor.dimensions) {
            let Some(index) = counter.checked_sub(dimension.before) else { return (None, 1) };
            if dimension.wrap != 0 && index >= dimension.wrap {
                return (None, 1);
            }
            words += u64::from(index) * u64::from(dimension.step);
        }
        let (counter, dimension) = (self.counters[0], descriptor.dimensions[0]);
        let left = descriptor.length - self.moved;
        let run = match dimension.wrap {
            0 => left,
            wrap => left.min(u64::from(dimension.before + wrap - counter)),
        };
        (Some(words * 4), run)
    }

    /// Goes on by so many words of a run.
    pub fn advance_by(&mut self, words: u64, descriptor: &Descriptor) {
        if let Some(before) = words.checked_sub(1) {
            self.moved += before;
            self.counters[0] += before as u32;
            self.advance(descriptor);
        }
    }

    /// Goes on to the next word.
    pub fn advance(&mut self, descriptor: &Descriptor) {
        self.moved += 1;
        for (counter, dimension) in self.counters.iter_mut().zip(&descriptor.dimensions) {
            *counter += 1;
            let size = dimension.before + dimension.wrap + dimension.after;
            if dimension.wrap == 0 || *counter < size {
                return;
            }
            *counter = 0;
        }
    }
}

/// What a channel does.
#[derive(Clone, Copy, Debug)]
pub enum Activity {
    /// Waits for the header of a packet, which names the descriptor.
    Header,
    /// Waits for its lock.
    Acquire,
    /// Moves words.
    Move(Position),
}

/// A task that runs.
#[derive(Clone, Debug)]
pub struct Running {
    pub task: DmaTask,
    /// Runs of the chain that are left, this one included.
    pub runs: u32,
    pub descriptor_id: u8,
    pub descriptor: Descriptor,
    pub activity: Activity,
}

/// The control register of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control(pub u32);

impl Control {
    /// Whether the channel may move anything: core and mem tiles have a reset there, shims two bits that pause.
    pub fn holds(self, kind: TileKind) -> bool {
        self.0 & if kind == TileKind::Shim { 0b110 } else { 0b010 } != 0
    }

    /// Whether headers of packets choose descriptors.
    pub fn out_of_order(self) -> bool {
        self.0 & ChannelControl::OUT_OF_ORDER != 0
    }

    /// Whether data is compressed when the descriptor asks for it.
    pub fn compresses(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// Whether TLAST ends a descriptor.
    pub fn finishes_on_tlast(self) -> bool {
        self.0 & ChannelControl::FINISH_ON_TLAST != 0
    }

    /// Whether a register gives the words that came.
    pub fn counts_in_register(self) -> bool {
        self.0 & ChannelControl::FINISH_ON_TLAST == FinishOnTlast::CountsInRegister as u32 * (1 << 16)
    }
}

/// One channel.
#[derive(Debug, Default)]
pub struct Channel {
    /// Tasks that wait, each with the cycle in which it was pushed.
    pub queue: VecDeque<(DmaTask, u64)>,
    pub running: Option<Box<Running>>,
    /// Words on their way from the stream into memory.
    pub input: Fifo,
    /// Completion tokens that have not been waited for yet.
    pub tokens: u32,
    /// Words moved since reset.
    pub words: u64,
    /// Of a shim: pieces of host memory without a gap that these words were, as far as descriptors have come to their end.
    pub pieces: u64,
    /// Of a shim: when its last task of this dispatch began.
    pub started: Option<u64>,
    /// The cycle of the array's clock that it is at.
    pub clock: u64,
    /// Parts of 1,024 of a cycle that it is behind its clock.
    pub clock_parts: u64,
    /// When the tokens that have not been waited for were sent.
    pub token_times: VecDeque<u64>,
    pub control: Control,
    /// Words of transfers that TLAST has ended, as the register gives them.
    pub counts: VecDeque<u32>,
    /// Whether a task was lost, which the status shows.
    pub overflow: bool,
}

impl Channel {
    /// Stops the channel and empties its queue.
    pub fn reset(&mut self) {
        let token_times = std::mem::take(&mut self.token_times);
        let Self { tokens, words, pieces, clock, control, .. } = *self;
        *self = Self { tokens, words, pieces, clock, token_times, control, ..Self::default() };
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// The tasks that have not ended.
    pub fn tasks(&self) -> impl Iterator<Item = &DmaTask> {
        self.running.iter().map(|running| &running.task).chain(self.queue.iter().map(|(task, _)| task))
    }

    /// Puts a task into the queue in cycle `now`. False if there is no room: then the task is lost.
    pub fn push(&mut self, task: DmaTask, now: u64) -> bool {
        let room = self.queue.len() + usize::from(self.running.is_some()) < QUEUE;
        if room {
            self.queue.push_back((task, now));
        } else {
            self.overflow = true;
        }
        room
    }

    /// Whether a further count would be lost.
    pub fn counts_are_full(&self) -> bool {
        self.counts.len() >= COUNTS
    }

    /// The status register.
    pub fn status(&self, direction: Direction) -> u32 {
        let (state, stall, descriptor) = match &self.running {
            None => (0, 0, 0),
            Some(running) => {
                let (state, stall) = match running.activity {
                    Activity::Acquire if running.descriptor.acquire.is_some() => (2, 1 << 2),
                    Activity::Acquire => (1, 0),
                    Activity::Header => (2, 1 << 4),
                    Activity::Move(_) if direction == Direction::MemoryToStream => (2, 0),
                    Activity::Move(_) => (2, u32::from(self.input.is_empty()) << 4),
                };
                (state, stall, u32::from(running.descriptor_id))
            }
        };
        let running = u32::from(!self.is_idle()) << 19;
        let overflow = u32::from(self.overflow) << 18;
        state | stall | overflow | running | (self.queue.len() as u32) << 20 | descriptor << 24
    }
}
