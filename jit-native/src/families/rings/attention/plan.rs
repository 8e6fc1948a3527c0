//! How attention is cut: tiles of keys, pieces of them that are a phase, heads of a phase, tokens that share a pass over the keys.

use crate::families::attention::memory::{ARENA, ARENA_BYTES};
use crate::families::attention::plan::{MOST_UNITS, Sizes, TILES, product_cycles};
use crate::families::attention::problem::{Cache, Operand, Problem};
use aie_hal::arch::CostModel;
use aie_hal::format::extent::Traffic;
use aie_isa::InstructionSet;
use std::ops::Range;

/// Tokens, of all batches. More are for a family that multiplies with all cores.
const MOST_TOKENS: usize = 8;
/// Heads of keys that a column has in a phase at most.
const MOST_ITEMS: usize = 8;
/// Results that a lock counts.
const MOST_STATES: usize = 63;
/// Tiles of a phase: runs of three of a channel's four tasks; the other one is for queries and mask.
const MOST_RUNS: usize = 3 * 256;

/// Cycles, about, as the emulator counts them, of what takes different times on different units.
struct Rates {
    /// Of a token's tile, and of four keys of it.
    tile: usize,
    four_keys: usize,
    /// Of 128 elements that are converted.
    f16: usize,
    f32: usize,
}

const fn rates(set: InstructionSet) -> Rates {
    match set {
        InstructionSet::Aie2 => Rates { tile: 440, four_keys: 39, f16: 17, f32: 88 },
        InstructionSet::Aie2p => Rates { tile: 175, four_keys: 77, f16: 9, f32: 64 },
    }
}

/// Of a conversion beside the loop.
const CONVERSION_CYCLES: usize = 40;
/// Of a phase; of a token of an item, and of four elements of its values.
const PHASE_CYCLES: usize = 1850;
const ITEM_CYCLES: usize = 500;
const FOUR_VALUES_CYCLES: usize = 30;
/// Operations of a column in a phase, about, and of a task of the shim.
const PHASE_OPERATIONS: usize = 36;
const TASK_OPERATIONS: usize = 3;
/// Times that differ by less than this part are about equal.
const NEAR: u64 = 16;

/// What the family takes of what a machine could compute.
///
/// # Errors
/// Why it does not.
pub(super) fn taken(problem: Problem) -> Result<Problem, String> {
    if problem.sinks.is_some() {
        return Err("sinks; possible: none".into());
    }
    let tokens = problem.tokens * problem.batch;
    if tokens > MOST_TOKENS {
        return Err(format!("{tokens} tokens; possible: up to {MOST_TOKENS}"));
    }
    Ok(problem)
}

/// How attention is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Keys of a tile.
    pub keys: usize,
    /// Tokens of an item.
    pub units: usize,
    /// Items of a column in a phase, at most.
    pub items: usize,
    /// Phases that the keys are cut into.
    pub pieces: usize,
}

/// A piece of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its tiles among those of all keys.
    pub tiles: Range<usize>,
    /// Its first key, and how many it has.
    pub first: usize,
    pub keys: usize,
}

impl Cut {
    /// The one that takes the least time on so many columns, of the array and of the operations of its phases. Of those that take about as
    /// long it is the one with the fewest operations: what these cost is known to a factor of two.
    ///
    /// # Errors
    /// That there is none.
    pub fn cheapest(problem: &Problem, columns: usize, cost: &CostModel) -> Result<Self, String> {
        let most = heads(problem).len().div_ceil(columns).min(MOST_ITEMS);
        let possible = TILES.into_iter().filter(|keys| *keys <= problem.keys).flat_map(|keys| {
            (1..=problem.tokens.min(MOST_UNITS))
                .flat_map(move |units| (1..=most).map(move |items| (keys, units, items)))
        });
        let possible = possible.filter_map(|(keys, units, items)| Self::new(problem, keys, units, items));
        let timed: Vec<(u64, usize, Self)> = possible
            .map(|cut| {
                let operations = cut.operations(problem, columns);
                (cost.stream_ns(operations as u64, cut.cycles(problem, columns), Traffic::default()), operations, cut)
            })
            .collect();
        let least = timed.iter().map(|(time, ..)| *time).min().unwrap_or_default();
        let near = timed.iter().filter(|(time, ..)| *time <= least + least / NEAR);
        let best = near.min_by_key(|(time, operations, _)| (*operations, *time));
        best.map(|(.., cut)| *cut).ok_or_else(|| {
            format!(
                "keys of {} and values of {} elements: no tile fits a core's {ARENA_BYTES} bytes",
                problem.k.elements, problem.v.elements
            )
        })
    }

    /// With tiles of so many keys, if that fits.
    pub fn new(problem: &Problem, keys: usize, units: usize, items: usize) -> Option<Self> {
        let all = problem.keys.div_ceil(keys);
        let cut = Self { keys, units, items, pieces: 1 };
        if cut.states() > MOST_STATES {
            return None;
        }
        let free = ARENA_BYTES.checked_sub(cut.bytes(problem))?;
        let room = if problem.mask.is_some() { free / cut.mask_bytes(keys) } else { all };
        let most = room.min(MOST_RUNS / items);
        (most > 0).then(|| Self { pieces: all.div_ceil(most), ..cut })
    }

    pub fn sizes(self, problem: &Problem) -> Sizes {
        Sizes::new(problem, self.keys, self.units)
    }

    /// Tokens of a phase's items.
    pub fn states(self) -> usize {
        self.items * self.units
    }

    /// What a core's memory holds beside the mask.
    fn bytes(self, problem: &Problem) -> usize {
        let sizes = self.sizes(problem);
        2 * (sizes.keys + sizes.values)
            + self.states() * (sizes.queries + sizes.converted + sizes.state)
            + sizes.scores
            + sizes.exponentials
    }

    /// Where the rings of keys and values begin: at the end of the memory, whose banks the other things are not in where these are small.
    pub fn back(self, problem: &Problem) -> u32 {
        let sizes = self.sizes(problem);
        ARENA + (ARENA_BYTES - 2 * (sizes.keys + sizes.values)) as u32
    }

    /// Bytes of the mask of so many keys.
    pub fn mask_bytes(self, keys: usize) -> usize {
        (2 * keys * self.units).next_multiple_of(64)
    }

    /// The pieces, which have about as many tiles each.
    pub fn pieces(self, problem: &Problem) -> impl Iterator<Item = Piece> {
        let (all, total) = (problem.keys.div_ceil(self.keys), problem.keys);
        (0..self.pieces).map(move |piece| {
            let tiles = all * piece / self.pieces..all * (piece + 1) / self.pieces;
            let first = self.first_key(total, tiles.start);
            Piece { first, keys: (tiles.end * self.keys).min(total) - first, tiles }
        })
    }

    /// The first key of a tile among `total` keys: the last tile ends with them.
    pub fn first_key(self, total: usize, tile: usize) -> usize {
        (tile * self.keys).min(total - self.keys)
    }

    /// How often all heads pass over the keys.
    fn passes(self, problem: &Problem) -> usize {
        problem.batch * problem.tokens.div_ceil(self.units)
    }

    fn phases(self, problem: &Problem, columns: usize) -> usize {
        let of_column = heads(problem).len().div_ceil(columns);
        self.passes(problem) * of_column.div_ceil(self.items) * self.pieces
    }

    /// Operations of all phases on so many columns, about: a last tile that overlaps is a task of its own.
    fn operations(self, problem: &Problem, columns: usize) -> usize {
        let of_column = heads(problem).len().div_ceil(columns);
        let overlapping = if problem.keys.is_multiple_of(self.keys) { 0 } else { 4 * of_column * self.passes(problem) };
        columns * (self.phases(problem, columns) * PHASE_OPERATIONS + overlapping * TASK_OPERATIONS)
    }

    /// Cycles of all items on so many columns, about.
    pub fn cycles(self, problem: &Problem, columns: usize) -> u64 {
        let Self { keys, units, .. } = self;
        let arriving = keys * problem.k.words().max(problem.v.words());
        let rates = rates(problem.set);
        let converted = [problem.k, problem.v].map(|operand| match operand.cache {
            Cache::F16 => CONVERSION_CYCLES + keys * operand.elements / 128 * rates.f16,
            Cache::F32 => CONVERSION_CYCLES + keys * operand.elements / 128 * rates.f32,
            Cache::Bf16 => 0,
        });
        let each = rates.tile + keys / 4 * rates.four_keys + product_cycles(problem, keys);
        let tile = (converted.iter().sum::<usize>() + units * each).max(arriving);
        let item = units * (ITEM_CYCLES + problem.v.elements / 4 * FOUR_VALUES_CYCLES);
        let items = self.passes(problem) * heads(problem).len().div_ceil(columns);
        let all = items * (problem.keys.div_ceil(keys) * tile + item);
        (self.phases(problem, columns) * (PHASE_CYCLES + arriving) + all) as u64
    }

    /// Keys and values that are read.
    pub fn traffic(self, problem: &Problem) -> Traffic {
        let each = |operand: Operand| {
            let row = 4 * operand.words();
            let pieces = if operand.strides[0] == row { 1 } else { problem.keys };
            Traffic { bytes: (problem.keys * row) as u64, pieces: pieces as u64 }
        };
        each(problem.k).and(each(problem.v)).times((self.passes(problem) * heads(problem).len()) as u64)
    }
}

/// The first heads of queries that share a head of keys, at most four.
fn heads(problem: &Problem) -> Vec<usize> {
    let (group, together) = (problem.group(), problem.together());
    let firsts = (0..problem.heads).step_by(group);
    // What would be fewer heads computes some again, with others beside them: last digits may differ.
    firsts.flat_map(|first| (0..group).step_by(together).map(move |quad| first + quad.min(group - together))).collect()
}

/// The items of each column: their first heads, one after the other.
pub(super) fn dealt(problem: &Problem, columns: usize) -> Vec<Vec<usize>> {
    let (heads, together) = (heads(problem), problem.together());
    // What is computed twice is of one column, whose channel writes in order.
    let unit = if problem.group().is_multiple_of(together) { 1 } else { problem.group().div_ceil(together) };
    let first = |column: usize| heads.len() / unit * column / columns * unit;
    (0..columns).map(|column| heads[first(column)..first(column + 1)].to_vec()).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
