//! All tiles of an array, and its clock, rules and limits.

use super::clock::{Releases, Timing};
use super::dma::Channel;
use super::error::{ArrayError, Result};
use super::fifo::Fifo;
use super::groups::Groups;
use super::interleaving::Interleaving;
use super::place::Place;
use super::rules::Rules;
use super::stream::{Switch, sinks as sinks_of};
use super::tile::{Held, Tile, memory_bytes};
use super::timeline::{Interval, Record};
use super::view::Size;
use crate::core::{Core, EarlyRead, Layout, Undefined};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_isa::Isa;
use fastrand::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Program memory of a core.
pub(super) const PROGRAM: usize = 16 << 10;

/// An array of one generation.
#[derive(Debug)]
pub struct Array {
    pub(super) isa: &'static Isa,
    pub(super) columns: u8,
    pub(super) rows: u8,
    pub(super) tiles: Vec<Tile>,
    pub(super) rules: Rules,
    /// Cycles after which a run ends with an error.
    pub(super) cycle_limit: u64,
    /// Bundles of the core that has executed most in this round.
    pub(super) longest_run: u64,
    /// The cycle of what writes registers.
    pub(super) now: u64,
    /// A list that is used again and again.
    pub(super) places: Vec<Place>,
    pub(super) groups: Groups,
    pub(super) timing: Timing,
    /// Where the PDI was that an instruction stream loaded last.
    pub(super) loaded_from: Option<u64>,
    pub(super) interleaving: Option<Interleaving>,
    /// Words that a channel moves in a round at most.
    pub(super) burst: usize,
}

/// Words that a channel moves in one round at most; every change of its state counts as one.
pub(super) const BURST: usize = 256;
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
                let sinks = sinks_of(kind, column, row, columns, rows);
                let index = |column, row| usize::from(column) * usize::from(rows) + usize::from(row);
                let places = sinks.iter().map(|sink| Place::new(tiles.len(), *sink, index)).collect();
                let switch = Switch::new(kind);
                let mut memory = vec![0; memory_bytes(kind)];
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
            burst: BURST,
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

    /// Starts or ends recording a timeline; what has been recorded stays until it is taken.
    pub fn record_timeline(&mut self, is_on: bool) {
        for tile in &mut self.tiles {
            tile.record.switch(is_on, tile.core_now());
        }
    }

    /// Takes what has been recorded, tile by tile, each core's and channel's intervals in the order of their times.
    pub fn take_timeline(&mut self) -> Vec<Interval> {
        let taken = self.tiles.iter_mut().flat_map(|tile| {
            let (column, row, now) = (tile.column, tile.row, tile.core_now());
            let interval =
                move |(resource, occupation, begin, end)| Interval { column, row, resource, occupation, begin, end };
            tile.record.take(now).into_iter().map(interval)
        });
        taken.collect()
    }

    /// Program memory of the cores, with column and row, up to the last byte that is not zero.
    pub fn programs(&self) -> impl Iterator<Item = (u8, u8, &[u8])> {
        self.tiles.iter().filter_map(|tile| {
            let program = tile.core.as_ref()?.program();
            let end = program.iter().rposition(|byte| *byte != 0)? + 1;
            Some((tile.column, tile.row, &program[..end]))
        })
    }

    /// The number of a tile.
    ///
    /// # Errors
    /// [`ArrayError::Tile`] when there is none.
    pub(super) fn index(&self, column: u8, row: u8) -> Result<usize> {
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

    /// The core tile in a direction, as core addresses and lock ids number them: south, west, north, own.
    pub(super) fn core_neighbour(&self, index: usize, side: u32) -> Option<usize> {
        let tile = &self.tiles[index];
        let (column, row) = self.size().neighbour((tile.column, tile.row), side)?;
        self.index(column, row).ok()
    }

    pub(super) fn size(&self) -> Size {
        Size { columns: self.columns, rows: self.rows }
    }
}
