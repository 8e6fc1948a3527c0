//! The array: tiles in columns and rows, driven register by register.
//!
//! [`Array`] owns all tiles. What is written to it, and what moves in it, is in a file each: registers, control packets,
//! transfers of DMA channels, switching of stream words, what cores see, and the schedule that lets all of them run.

mod causes;
mod clock;
mod control_packet;
mod cores;
mod dma;
mod dma_words;
mod error;
mod fifo;
mod host;
mod interleaving;
mod loader;
mod registers;
mod report;
mod rules;
mod schedule;
mod stream;
mod switching;
mod tile;
mod timeline;
mod transfer;
mod view;

pub use clock::{Resource, Timing, Use};
pub use error::{ArrayError, DmaProblem};
pub use host::{HostMemory, NoHost};
pub use loader::{LoadError, Outcome};
pub use report::{Report, Waiter, What, Who};
pub use rules::{LeftTokens, LockValues, Rules, Undefined};
pub use timeline::{Interval, Occupation};

use crate::core::{Core, EarlyRead, Layout};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_isa::Isa;
use clock::Releases;
use cores::Groups;
use dma::Channel;
use error::Result;
use fastrand::Rng;
use fifo::Fifo;
use interleaving::{Held, Interleaving};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stream::Switch;
use switching::Place;
use tile::Tile;
use timeline::Record;

/// Program memory of a core.
const PROGRAM: usize = 16 << 10;

/// An array of one generation.
#[derive(Debug)]
pub struct Array {
    isa: &'static Isa,
    columns: u8,
    rows: u8,
    tiles: Vec<Tile>,
    rules: Rules,
    /// Cycles after which a run ends with an error.
    cycle_limit: u64,
    /// Bundles of the core that has executed most in this round.
    longest_run: u64,
    /// The cycle of what writes registers.
    now: u64,
    /// A list that is used again and again.
    places: Vec<Place>,
    groups: Groups,
    timing: Timing,
    /// Where the PDI was that an instruction stream loaded last.
    loaded_from: Option<u64>,
    interleaving: Option<Interleaving>,
    /// Words that a channel moves in a round at most.
    burst: usize,
}

/// Cycles of a run unless [`Array::set_cycle_limit`] says otherwise: four seconds at 1 GHz.
const CYCLE_LIMIT: u64 = 4_000_000_000;

impl Array {
    /// An array of columns with a shim, a mem tile and `rows - 2` cores each, as after reset: locks zero, and noise in memory.
    pub fn new(isa: &'static Isa, columns: u8, rows: u8) -> Self {
        Self::with_rules(isa, columns, rows, Rules::default())
    }

    /// [`Array::new`] under other rules than the strict ones.
    pub fn with_rules(isa: &'static Isa, columns: u8, rows: u8, rules: Rules) -> Self {
        let layout = Arc::new(Layout::new(isa));
        let mut tiles = Vec::new();
        for column in 0..columns {
            for row in 0..rows {
                let kind = Tile::kind_of(row);
                let (channels, locks) = Tile::counts(kind);
                let id = u32::from(column) << 16 | u32::from(row);
                let sinks = stream::sinks(kind, column, row, columns, rows);
                let index = |column, row| usize::from(column) * usize::from(rows) + usize::from(row);
                let places = sinks.iter().map(|sink| Place::new(tiles.len(), *sink, index)).collect();
                let switch = Switch::new(kind);
                let mut memory = vec![0; tile::memory_bytes(kind)];
                if let Undefined::Noise(seed) = rules.undefined {
                    Rng::with_seed(seed ^ u64::from(id)).fill(&mut memory);
                }
                tiles.push(Tile {
                    index: tiles.len(),
                    kind,
                    column,
                    row,
                    memory,
                    locks: vec![0; locks],
                    releases: vec![Releases::default(); locks],
                    channels: [(); 2].map(|()| std::iter::repeat_with(Channel::default).take(channels).collect()),
                    direct: vec![None; switch.ports()],
                    switch,
                    sinks,
                    places,
                    core: (kind == TileKind::Core).then(|| {
                        let mut core = Core::new(isa, Arc::clone(&layout), PROGRAM, id);
                        core.set_jumps(rules.jumps);
                        core.set_loops(rules.loops);
                        core.set_undefined(rules.undefined);
                        core.reset();
                        core
                    }),
                    busy: 0,
                    shim_channels: [0; 2],
                    core_input: Fifo::default(),
                    core_enabled: false,
                    core_done: false,
                    clocked: true,
                    cascade: VecDeque::new(),
                    core_delay: 0,
                    registers: BTreeMap::new(),
                    control: Vec::new(),
                    responses: VecDeque::new(),
                    wait: None,
                    record: Record::default(),
                    held: Held::default(),
                });
            }
        }
        let groups = Groups::new(tiles.len());
        let mut interleaving = rules.interleaving.map(|seed| Interleaving::new(seed, tiles.len()));
        if let Some(drawn) = &mut interleaving {
            tiles.iter_mut().for_each(|tile| tile.switch.draw_grants(drawn.fork()));
        }
        Self {
            timing: Timing::default(),
            loaded_from: None,
            interleaving,
            burst: transfer::BURST,
            groups,
            isa,
            columns,
            rows,
            tiles,
            rules,
            cycle_limit: CYCLE_LIMIT,
            longest_run: 0,
            now: 0,
            places: Vec::new(),
        }
    }

    /// The instruction set of its cores.
    pub fn isa(&self) -> &'static Isa {
        self.isa
    }

    /// Sets after how many cycles [`Array::settle`] or an operation of [`Array::execute`] gives up with
    /// [`ArrayError::Timeout`]. A round of the schedule counts as the bundles of the core that executed most, and at
    /// least as the words that a DMA channel moves in one.
    pub fn set_cycle_limit(&mut self, cycles: u64) {
        self.cycle_limit = cycles;
    }

    /// Bundles that all cores have executed.
    pub fn bundles(&self) -> u64 {
        self.tiles.iter().filter_map(|tile| tile.core.as_ref()).map(Core::bundles).sum()
    }

    /// The rows of the instruction table that its cores have executed, core by core.
    pub fn executed(&self) -> impl Iterator<Item = &'static aie_isa::Instruction> {
        self.tiles.iter().filter_map(|tile| tile.core.as_ref()).flat_map(Core::executed)
    }

    /// Starts or ends recording where cores read registers that a result is on its way to: legal, and the old value is read.
    pub fn record_early_reads(&mut self, is_on: bool) {
        self.tiles.iter_mut().filter_map(|tile| tile.core.as_mut()).for_each(|core| core.record_early_reads(is_on));
    }

    /// What has been recorded, with column and row of the core.
    pub fn early_reads(&self) -> impl Iterator<Item = (u8, u8, EarlyRead)> {
        let cores = self.tiles.iter().filter_map(|tile| Some((tile.column, tile.row, tile.core.as_ref()?)));
        cores.flat_map(|(column, row, core)| core.early_reads().into_iter().map(move |read| (column, row, read)))
    }

    /// Program memory of the cores, with column and row, up to the last byte that is not zero.
    pub fn programs(&self) -> impl Iterator<Item = (u8, u8, &[u8])> {
        self.tiles.iter().filter_map(|tile| {
            let program = tile.core.as_ref()?.program();
            let end = program.iter().rposition(|byte| *byte != 0)? + 1;
            Some((tile.column, tile.row, &program[..end]))
        })
    }

    fn index(&self, column: u8, row: u8) -> Result<usize> {
        let inside = column < self.columns && row < self.rows;
        let index = usize::from(column) * usize::from(self.rows) + usize::from(row);
        if inside { Ok(index) } else { Err(ArrayError::Tile { column, row }) }
    }

    /// Back to the state after power-on: nothing is configured, nothing runs; data memory stays.
    pub fn reset(&mut self) {
        for tile in &mut self.tiles {
            tile.reset();
            tile.clocked = true;
        }
    }

    /// Takes a completion token of a channel; false if there is none.
    ///
    /// # Errors
    /// When there is no such tile.
    pub fn take_token(&mut self, column: u8, row: u8, direction: Direction, channel: u8) -> Result<bool> {
        let index = self.index(column, row)?;
        let channel = self.tiles[index].channels[direction as usize].get_mut(usize::from(channel));
        let Some(channel) = channel.filter(|channel| channel.tokens > 0) else {
            return Ok(false);
        };
        channel.tokens -= 1;
        self.now = self.now.max(channel.token_times.pop_front().unwrap_or(0));
        Ok(true)
    }
}
