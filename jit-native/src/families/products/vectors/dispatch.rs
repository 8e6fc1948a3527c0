//! The instruction streams of phases of vectors.

use super::program::{FREE, FUNCTIONS, MOST_STEPS, Parameters};
use crate::array::{ArrayError, Dimension, Dispatch, Part, ProductColumn, Region, Ring};
use crate::codegen::LoopReport;
use crate::families::elements::dispatch::Work;
use crate::families::elements::rows::Norm;
use crate::families::elements::step::{Slot, Step, VECTOR_BYTES};
use crate::families::elements::walk::{Loop, Walk};
use crate::families::products::dispatch::Arena;
use crate::families::products::machine::Machine;
use crate::families::products::memory::CORES;
use crate::kit::cost::{self, Planned};
use aie_hal::arch::CostModel;
use aie_hal::format::extent::Traffic;
use std::ops::Range;

/// A core's memory.
const CORE_BYTES: u32 = 0x1_0000;
/// Elements of a vector.
const LANES: u64 = 16;
/// Elements of a row that fit a core beside slices.
const LONGEST_ROW: u64 = 8192;
/// Rows that a column does in a phase, and parts in which one goes through the mem tile.
const MOST_TILES: u64 = 64;
const MOST_PARTS: u64 = 4;

/// The share of `index` among `of`, in whole vectors.
fn share(elements: u64, index: u64, of: u64) -> Range<u64> {
    let vectors = elements.div_ceil(LANES);
    let from = |index: u64| (vectors * index / of * LANES).min(elements);
    from(index)..from(index + 1)
}

/// Bytes of a buffer: whole pairs of vectors, which is what some functions compute at a time.
fn buffer(words: u64) -> usize {
    (4 * words as usize).next_multiple_of(2 * VECTOR_BYTES as usize)
}

fn vectors(words: u64) -> u32 {
    words.div_ceil(LANES) as u32
}

/// A part of each run of a tensor: `words` from `start` on, and the loops around the runs.
fn region(argument: u16, start: u64, words: u64, loops: &[Loop], step: fn(&Loop) -> u64) -> Region {
    let around = loops.iter().map(|around| Dimension::new(around.size, step(around)));
    let dimensions = std::iter::once(Dimension::new(words, 1)).chain(around).collect();
    Region { argument, offset: 4 * start, dimensions }
}

/// The places of what steps need beside operands and result.
fn own_places(arena: &mut Arena, scratch: Option<u64>) -> Vec<(Slot, u32, u32)> {
    let mut places: Vec<_> =
        scratch.map(|words| (Slot::Scratch, arena.take(buffer(words)), vectors(words))).into_iter().collect();
    places.extend([Slot::V0, Slot::V1].map(|slot| (slot, arena.take(2 * VECTOR_BYTES as usize), 1)));
    places
}

/// What is wrong with the memory or the steps of a core.
fn check(arena: &Arena, steps: &[Step]) -> Result<(), String> {
    if arena.0 > CORE_BYTES {
        return Err(format!("a core would need {} bytes; it has {CORE_BYTES}", arena.0));
    }
    if let Some(step) = steps.iter().find(|step| !FUNCTIONS.contains(&step.function())) {
        return Err(format!("the program has no {:?}", step.function()));
    }
    if steps.len() > MOST_STEPS {
        return Err(format!("{} steps; at most {MOST_STEPS}", steps.len()));
    }
    Ok(())
}

/// The cores of a column that share elements: one, one of each half, or all.
const SHARING: [&[usize]; 3] = [&[0], &[0, 2], &[0, 1, 2, 3]];

/// The stream of a function of elements, on as many columns and cores of each as make it the shortest: each costs operations.
pub(super) fn elements(machine: &Machine, work: &Work, result: u16, cost: &CostModel) -> Result<Vec<u8>, String> {
    let [walk] = &work.walks[..] else { return Err("nothing to compute".into()) };
    let columns = machine.product.columns();
    let ways = cost::powers(columns.len()).flat_map(|width| SHARING.map(|cores| (width, cores)));
    cost::cheapest(ways, cost, |(width, cores)| {
        let mut dispatch = machine.product.configured().dispatch();
        let mut cycles = 0;
        for (index, column) in columns.iter().take(width).enumerate() {
            let slices = std::array::from_fn(|core| match cores.iter().position(|sharing| *sharing == core) {
                Some(place) => share(walk.run, (cores.len() * index + place) as u64, (cores.len() * width) as u64),
                None => 0..0,
            });
            let elements = Elements { work, walk, column, slices, result };
            elements.add(&mut dispatch)?;
            cycles = elements.cycles(&machine.loops).max(cycles);
        }
        let stream = dispatch.finish().map_err(|error| error.to_string())?;
        let bytes = 4 * walk.run * walk.tiles() * elements_operands(work);
        Ok(Planned { stream, cycles, traffic: Traffic { bytes, pieces: 0 } })
    })
}

/// Operands that a function reads from memory.
fn elements_operands(work: &Work) -> u64 {
    1 + u64::from(work.b.is_some())
}

/// What a column does with elements: each core takes a slice of all runs.
struct Elements<'a> {
    work: &'a Work,
    walk: &'a Walk,
    column: &'a ProductColumn,
    slices: [Range<u64>; CORES],
    result: u16,
}

impl Elements<'_> {
    /// Elements of a core's slice of a run, and of all runs.
    fn slice(&self, core: usize) -> (u64, u64) {
        let Range { start, end } = self.slices[core];
        (end - start, (end - start) * self.walk.tiles())
    }

    /// Cycles from the first word to the last: operands come a word a cycle on each of two channels, then all is computed, then the result
    /// leaves.
    fn cycles(&self, loops: &[LoopReport]) -> u64 {
        let words = |cores: Range<usize>| cores.map(|core| self.slice(core).1).sum::<u64>();
        let arriving = elements_operands(self.work) * words(0..2).max(words(2..CORES));
        let most = (0..CORES).map(|core| self.slice(core).1).max().unwrap_or(0);
        let computing = self.work.steps.iter().map(|step| step.cycles(vectors(most), loops)).sum::<u64>();
        arriving + computing + words(0..CORES)
    }

    fn add(&self, dispatch: &mut Dispatch<'_>) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        let (mut arena, mut results) = (Arena(0), Vec::new());
        let operands = elements_operands(self.work) as u32;
        for half in 0..2 {
            let busy: Vec<usize> = (2 * half..2 * half + 2).filter(|core| self.slice(*core).1 > 0).collect();
            let mut parts = Vec::new();
            for core in &busy {
                let (column, words) = (&self.column.parts[*core], self.slice(*core).1);
                let ring = arena.ring(column.weights.0, 4 * words as usize, operands as usize);
                dispatch.run(column.weights.1, &[Part::linear(ring, words)], operands).map_err(text)?;
                parts.push(Part::linear(ring, words));
                let ring = arena.ring(column.result.0, 4 * words as usize, 1);
                dispatch.run(column.result.1, &[Part::linear(ring, words)], 1).map_err(text)?;
                results.push(Part::linear(ring, words));
                self.core(dispatch, *core, words, operands)?;
            }
            dispatch.run(self.column.arrival[half], &parts, operands).map_err(text)?;
            let [a, b, _] = self.walk.start;
            type Operand = (u16, u64, fn(&Loop) -> u64);
            let first: Operand = (self.work.a, a, |around| around.a);
            let second = self.work.b.map(|argument| -> Operand { (argument, b, |around| around.b) });
            for (argument, start, step) in std::iter::once(first).chain(second) {
                for core in &busy {
                    let from = start + self.slices[*core].start;
                    let region = region(argument, from, self.slice(*core).0, &self.walk.loops, step);
                    dispatch.transfer(self.column.sources[half], &region).map_err(text)?;
                }
            }
        }
        dispatch.run(self.column.departure, &results, 1).map_err(text)?;
        for core in (0..CORES).filter(|core| self.slice(*core).1 > 0) {
            let from = self.walk.start[2] + self.slices[core].start;
            let region = region(self.result, from, self.slice(core).0, &self.walk.loops, |around| around.result);
            dispatch.transfer(self.column.result, &region).map_err(text)?;
        }
        Ok(())
    }

    fn core(&self, dispatch: &mut Dispatch<'_>, core: usize, words: u64, operands: u32) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        let (channels, mut arena) = (self.column.cores[core], Arena(FREE));
        let slices = arena.ring(channels.weights.0, buffer(words), operands as usize);
        let result = arena.ring(channels.result.0, buffer(words), 1);
        let uses_scratch = self.work.steps.iter().any(|step| step.slots().contains(&Slot::Scratch));
        let mut places = own_places(&mut arena, uses_scratch.then_some(words));
        check(&arena, &self.work.steps)?;
        let second = slices.address + (operands - 1) * slices.stride;
        for (slot, address) in [(Slot::A, slices.address), (Slot::B, second), (Slot::Result, result.address)] {
            places.push((slot, address, vectors(words)));
        }
        let steps = self.work.steps.clone();
        let parameters = Parameters { tiles: 1, operands: 0, slices: operands, results: 1, places, steps };
        dispatch.run(channels.weights.1, &[Part::linear(slices, words)], operands).map_err(text)?;
        dispatch.run(channels.result.1, &[Part::linear(result, words)], 1).map_err(text)?;
        parameters.start(dispatch, channels.tile).map_err(text)
    }
}

/// The stream of a norm.
pub(super) fn norm(machine: &Machine, norm: &Norm<'_>, result: u16) -> Result<Vec<u8>, String> {
    let count = u64::from(norm.count());
    if count > LONGEST_ROW {
        return Err(format!("rows of {count} elements; a core holds {LONGEST_ROW} beside slices"));
    }
    let columns = machine.product.columns();
    let boxes = norm.walk().boxes(columns.len() as u64);
    let mut dispatch = machine.product.configured().dispatch();
    for boxes in boxes.chunks(columns.len()) {
        for (walk, column) in boxes.iter().zip(columns) {
            Rows { norm, walk, column, result }.add(&mut dispatch)?;
        }
        dispatch.end_phase().map_err(|error| error.to_string())?;
    }
    dispatch.finish().map_err(|error| error.to_string())
}

/// What a column does with rows: all cores get them, and each makes its slice of the result.
struct Rows<'a> {
    norm: &'a Norm<'a>,
    walk: &'a Walk,
    column: &'a ProductColumn,
    result: u16,
}

impl Rows<'_> {
    fn add(&self, dispatch: &mut Dispatch<'_>) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        let Self { walk, column, .. } = self;
        let (row, tiles) = (walk.run, walk.tiles());
        if tiles > MOST_TILES {
            return Err(format!("{tiles} rows for a column; at most {MOST_TILES}"));
        }
        let tiles = tiles as u32;
        let slices: [Range<u64>; CORES] = std::array::from_fn(|core| share(row, core as u64, CORES as u64));
        let words = |core: usize| slices[core].end - slices[core].start;
        let busy: Vec<usize> = (0..CORES).filter(|core| words(*core) > 0).collect();
        let mut arena = Arena(0);

        // Parts of rows go on while others still come.
        let parts = (1..=MOST_PARTS).rev().find(|parts| row.is_multiple_of(*parts)).unwrap_or(1);
        let ring = arena.ring(column.operand.0, (4 * row / parts) as usize, MOST_PARTS as usize);
        for channel in [column.arrival[0], column.operand.1] {
            dispatch.run(channel, &[Part::linear(ring, row / parts)], parts as u32 * tiles).map_err(text)?;
        }
        let [a, b, to] = walk.start;
        let rows = region(0, a, row, &walk.loops, |around| around.a);
        dispatch.transfer(column.sources[0], &rows).map_err(text)?;

        let mut rings = |ring: fn(&ProductColumn, usize) -> Ring| -> Vec<Part> {
            let mut ring = |core: &usize| arena.ring(ring(column, *core), 4 * words(*core) as usize, 2);
            busy.iter().map(|core| Part::linear(ring(core), words(*core))).collect()
        };
        if self.norm.weights.is_some() {
            let parts = rings(|column, core| column.parts[core].weights.0);
            dispatch.run(column.arrival[1], &parts, tiles).map_err(text)?;
            for (part, core) in parts.into_iter().zip(&busy) {
                dispatch.run(column.parts[*core].weights.1, &[part], tiles).map_err(text)?;
            }
            let weights = region(1, b, row, &walk.loops, |around| around.b);
            dispatch.transfer(column.sources[1], &weights).map_err(text)?;
        }
        let parts = rings(|column, core| column.parts[core].result.0);
        dispatch.run(column.departure, &parts, tiles).map_err(text)?;
        for (part, core) in parts.into_iter().zip(&busy) {
            dispatch.run(column.parts[*core].result.1, &[part], tiles).map_err(text)?;
        }
        let results = region(self.result, to, row, &walk.loops, |around| around.result);
        dispatch.transfer(column.result, &results).map_err(text)?;
        (0..CORES).try_for_each(|core| self.core(dispatch, core, &slices[core], tiles))
    }

    fn core(&self, dispatch: &mut Dispatch<'_>, core: usize, slice: &Range<u64>, tiles: u32) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        let (row, words) = (self.walk.run, slice.end - slice.start);
        let (channels, mut arena) = (self.column.cores[core], Arena(FREE));
        // Behind the row there is room for a vector of zeros.
        let all = arena.ring(channels.operand.0, buffer(row + LANES), 1);
        dispatch.run(channels.operand.1, &[Part::linear(all, row)], tiles).map_err(text)?;
        let mut parameters = Parameters { tiles, operands: 1, ..Parameters::default() };
        if words > 0 {
            let result = arena.ring(channels.result.0, buffer(words), 1);
            dispatch.run(channels.result.1, &[Part::linear(result, words)], tiles).map_err(text)?;
            parameters.results = 1;
            parameters.places = own_places(&mut arena, None);
            parameters.places.extend([
                (Slot::Scratch, all.address, vectors(row)),
                (Slot::A, all.address + 4 * slice.start as u32, vectors(words)),
                (Slot::Result, result.address, vectors(words)),
            ]);
            parameters.steps = self.norm.steps(Slot::Scratch, Slot::Scratch, Slot::A);
        }
        if words > 0 && self.norm.weights.is_some() {
            let weights = arena.ring(channels.weights.0, buffer(words), 1);
            dispatch.run(channels.weights.1, &[Part::linear(weights, words)], tiles).map_err(text)?;
            parameters.slices = 1;
            parameters.places.push((Slot::B, weights.address, vectors(words)));
        }
        check(&arena, &parameters.steps)?;
        parameters.start(dispatch, channels.tile).map_err(text)
    }
}
