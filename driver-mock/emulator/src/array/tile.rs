//! One tile: memory, locks, DMA channels, stream switch, and a core if it has one.

use super::clock::Releases;
use super::dma::{self, Channel, Descriptor};
use super::fifo::Fifo;
use super::place::Place;
use super::stream::{Sink, Switch};
use super::timeline::Record;
use crate::core::{Core, Wait};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use std::collections::{BTreeMap, VecDeque};

/// Bits of [`Tile::busy`] for each direction.
pub const SIDE: usize = 8;

/// A tile.
#[derive(Debug)]
pub struct Tile {
    /// Its number in the array.
    pub index: usize,
    pub kind: TileKind,
    pub column: u8,
    pub row: u8,
    pub memory: Vec<u8>,
    pub locks: Vec<i32>,
    /// When the units of each lock were released.
    pub releases: Vec<Releases>,
    /// Stream to memory, then memory to stream.
    pub channels: [Vec<Channel>; 2],
    /// A bit for each channel that has something to do.
    pub busy: u16,
    pub switch: Switch,
    /// Where its masters lead.
    pub sinks: Vec<Sink>,
    /// The same with the tiles.
    pub places: Vec<Place>,
    /// For each slave port, where all its words go, if that is one place.
    pub direct: Vec<Option<Place>>,
    /// For each direction, a bit for each channel of a shim that its multiplexers connect with the switch.
    pub shim_channels: [u8; 2],
    pub core: Option<Core>,
    pub core_input: Fifo,
    pub core_enabled: bool,
    /// Whether the core has come to `done` since it was reset last.
    pub core_done: bool,
    /// Whether the tile's clock runs.
    pub clocked: bool,
    /// 512-bit values on their way from the core's cascade neighbour, and when they are there.
    pub cascade: VecDeque<([u8; 64], u64)>,
    /// Cycles of the array's clock in which the core has not executed anything.
    pub core_delay: u64,
    /// Registers as they were written, by offset; those with an effect of their own too.
    pub registers: BTreeMap<u32, u32>,
    /// Words of a control packet that has not come to its end.
    pub control: Vec<u32>,
    /// Words that answer a control packet, and have not left.
    pub responses: VecDeque<u32>,
    /// What the core waits for, when it does.
    pub wait: Option<Wait>,
    /// What happened when.
    pub record: Record,
    /// What does not go on in this round.
    pub held: Held,
}

/// What of a tile does not go on in a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// A bit for each channel, as in [`Tile::busy`].
    pub channels: u16,
    pub switch: bool,
    pub core: bool,
}

/// Bytes of data memory.
pub const fn memory_bytes(kind: TileKind) -> usize {
    match kind {
        TileKind::Core => 64 << 10,
        TileKind::Mem => 512 << 10,
        TileKind::Shim => 0,
    }
}

impl Tile {
    /// Which kind of tile stands in a row.
    pub fn kind_of(row: u8) -> TileKind {
        match row {
            0 => TileKind::Shim,
            1 => TileKind::Mem,
            _ => TileKind::Core,
        }
    }

    /// Channels in each direction, and locks.
    pub fn counts(kind: TileKind) -> (usize, usize) {
        match kind {
            TileKind::Core | TileKind::Shim => (2, 16),
            TileKind::Mem => (6, 64),
        }
    }

    /// Back to the state after power-on; memory stays as it is.
    pub fn reset(&mut self) {
        if let Some(core) = &mut self.core {
            core.reset();
        }
        self.locks.fill(0);
        self.releases.fill(Releases::default());
        for channel in self.channels.iter_mut().flatten() {
            *channel = Channel::default();
        }
        self.busy = 0;
        self.switch.reset(self.kind);
        self.direct.fill(None);
        self.shim_channels = [0; 2];
        self.core_input = Fifo::default();
        (self.core_enabled, self.core_done) = (false, false);
        self.cascade.clear();
        self.registers.clear();
        self.control.clear();
        self.responses.clear();
        self.wait = None;
    }

    /// The descriptors of a task that begins at one, each once.
    pub fn chain(&self, first: u8) -> impl Iterator<Item = u8> {
        let mut seen = 0_u64;
        std::iter::successors(Some(first), move |number| {
            seen |= 1_u64.checked_shl((*number).into())?;
            let at = dma::descriptor_register(self.kind, *number);
            let words = std::array::from_fn(|word| self.register(at + 4 * word as u32));
            let next = Descriptor::load(self.kind, &words, Direction::StreamToMemory, self.column, self.row).next;
            next.filter(|next| seen >> (next & 0x3f) & 1 == 0)
        })
    }

    /// A register as it was written.
    pub fn register(&self, offset: u32) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    /// The cycle of the array's clock that the core is at; 0 without a core.
    pub fn core_now(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.cycles() + self.core_delay)
    }
}
