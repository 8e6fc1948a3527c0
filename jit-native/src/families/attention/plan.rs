//! How attention is cut: tiles of keys, tokens of an item, and which column computes what.

use super::memory::{ARENA_BYTES, CORES, MEM_TILE_BYTES};
use super::problem::{LEAST_KEYS, Problem};
use aie_isa::InstructionSet;

/// Runs of a channel's tasks in a phase: four tasks of 256, of which one is for queries and one is left over.
const MOST_RUNS: usize = 512;
/// Heads of keys of a column in a phase: buffers of queries in the mem tile.
const MOST_ITEMS: usize = 16;
/// Words that the descriptor of a core moves.
const MOST_CORE_WORDS: usize = 16383;
/// Keys of a tile, tokens of an item.
pub(in crate::families) const TILES: [usize; 4] = [64, 48, 32, 16];
pub(in crate::families) const MOST_UNITS: usize = 8;
/// Cycles, about, as the emulator counts them with one token: of a tile, of four keys, of four elements of values; of the end of an
/// item, and of four elements of values then.
const TILE_CYCLES: usize = 700;
const FOUR_KEYS_CYCLES: usize = 70;
const SCALE_CYCLES: usize = 40;
const ITEM_CYCLES: usize = 3500;
const JOIN_CYCLES: usize = 130;
/// Of 128 elements that are converted.
const CONVERSION_CYCLES: usize = 16;
/// Of products of matrices: beside the loop, and of eight elements of four keys or the reverse.
const GROUP_CYCLES: usize = 60;
const STEP_CYCLES: usize = 5;
/// Of products of lanes: beside the loops, and of sixteen elements of sixteen keys, of eight keys and 32 elements.
const LANES_GROUP_CYCLES: usize = 120;
const LANES_STEP_CYCLES: usize = 35;

/// Cycles of the products of a token with a tile.
pub(in crate::families) fn product_cycles(problem: &Problem, keys: usize) -> usize {
    let (k, v) = (problem.k, problem.v);
    match problem.set {
        InstructionSet::Aie2 => {
            keys / 16 * (GROUP_CYCLES + k.elements / 8 * STEP_CYCLES)
                + v.elements / 16 * (GROUP_CYCLES + keys / 8 * STEP_CYCLES)
        }
        InstructionSet::Aie2p => {
            keys / 16 * (LANES_GROUP_CYCLES + k.elements / 16 * LANES_STEP_CYCLES)
                + v.elements / 32 * (LANES_GROUP_CYCLES + keys / 8 * LANES_STEP_CYCLES)
        }
    }
}

/// How items are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) struct Tiling {
    /// Keys of a tile.
    pub keys: usize,
    /// Tiles of each core.
    pub tiles: usize,
    /// Tokens of an item.
    pub units: usize,
}

/// What a column computes with one pass over keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) struct Item {
    pub batch: usize,
    /// First head of queries, and the first token.
    pub head: usize,
    pub token: usize,
}

/// Bytes of a core's memory, one after the other; all multiples of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) struct Sizes {
    /// A tile of keys, of values, of the mask for all tokens.
    pub keys: usize,
    pub values: usize,
    pub mask: usize,
    /// Queries as they arrive and in bf16, for one token.
    pub queries: usize,
    pub converted: usize,
    /// Maximum, sum and values of one token.
    pub state: usize,
    pub scores: usize,
    pub exponentials: usize,
}

impl Sizes {
    /// For tiles of `keys` keys and items of `units` tokens.
    pub fn new(problem: &Problem, keys: usize, units: usize) -> Self {
        let mask = if problem.mask.is_some() { (2 * keys * units).next_multiple_of(64) } else { 0 };
        Self {
            keys: keys * problem.k.words() * 4,
            values: keys * problem.v.words() * 4,
            mask,
            queries: 16 * problem.k.elements,
            converted: 8 * problem.k.elements,
            state: 128 + 16 * problem.v.elements,
            scores: 16 * keys,
            exponentials: 8 * keys,
        }
    }

    fn core_bytes(&self, units: usize) -> usize {
        2 * (self.keys + self.values + self.mask)
            + units * (self.queries + self.converted + 3 * self.state)
            + self.scores
            + self.exponentials
    }

    fn mem_tile_bytes(&self, units: usize) -> usize {
        CORES * 2 * (self.keys + self.values + self.mask + units * self.state)
            + MOST_ITEMS * (units * self.queries + 64)
            + 2 * units * (self.state - 128)
    }
}

impl Tiling {
    fn fits(self, problem: &Problem) -> bool {
        let Self { keys, units, .. } = self;
        let sizes = Sizes::new(problem, keys, units);
        let most = sizes.keys.max(sizes.values).max(units * sizes.state).max(units * sizes.queries);
        self.tiles <= MOST_RUNS
            && most <= 4 * MOST_CORE_WORDS
            && sizes.core_bytes(units) <= ARENA_BYTES
            && sizes.mem_tile_bytes(units) <= MEM_TILE_BYTES
    }

    /// Cycles of all items of one of the columns, about.
    fn cycles(self, problem: &Problem, columns: usize) -> usize {
        let Self { keys, tiles, units } = self;
        let (k, v) = (problem.k, problem.v);
        let streamed = CORES * keys * k.words().max(v.words());
        let delivered = keys * (k.words() + v.words());
        let converted = keys * (k.elements + v.elements) / 128 * CONVERSION_CYCLES;
        let products = product_cycles(problem, keys);
        let each = TILE_CYCLES + keys / 4 * FOUR_KEYS_CYCLES + v.elements / 4 * SCALE_CYCLES + products;
        let core = converted + units * each;
        let items = problem.item_count(self).div_ceil(columns);
        // The first tile has to arrive; the following ones arrive while others are computed.
        let first = streamed + delivered + core;
        first + (items * tiles - 1) * streamed.max(core) + items * (ITEM_CYCLES + v.elements / 4 * JOIN_CYCLES * units)
    }

    /// The first key of a tile.
    pub fn first_key(self, problem: &Problem, tile: usize) -> usize {
        (tile * self.keys).min(problem.keys - self.keys)
    }

    /// Tiles that begin where the one before ends.
    pub fn regular_tiles(self, problem: &Problem) -> usize {
        (problem.keys / self.keys).min(self.tiles * CORES)
    }

    /// Items of a column in a phase.
    pub fn items(self) -> usize {
        (MOST_RUNS / self.tiles).clamp(1, MOST_ITEMS)
    }
}

impl Problem {
    /// The cheapest way with so many columns.
    ///
    /// # Errors
    /// Why there is none.
    pub fn tiling(&self, columns: usize) -> Result<Tiling, String> {
        let possible = TILES.into_iter().filter(|keys| *keys <= self.keys).flat_map(|keys| {
            let tiles = self.keys.div_ceil(keys * CORES);
            (1..=self.tokens.min(MOST_UNITS)).map(move |units| Tiling { keys, tiles, units })
        });
        let best = possible.filter(|tiling| tiling.fits(self)).min_by_key(|tiling| tiling.cycles(self, columns));
        best.ok_or_else(|| {
            let most = MOST_RUNS * CORES * TILES[0];
            format!(
                "{} keys of {} and values of {} elements: tiles of {LEAST_KEYS} do not fit a core's {ARENA_BYTES} bytes, or there \
                 are more than {MOST_RUNS} tiles for a core (at most {most} keys)",
                self.keys, self.k.elements, self.v.elements
            )
        })
    }

    /// How many items there are.
    fn item_count(&self, tiling: Tiling) -> usize {
        let (group, together) = (self.group(), self.together());
        self.batch * (self.heads / group) * group.div_ceil(together) * self.tokens.div_ceil(tiling.units)
    }

    /// The items, dealt over the columns.
    pub fn items(&self, tiling: Tiling, columns: usize) -> Vec<Vec<Item>> {
        let (group, together) = (self.group(), self.together());
        let mut dealt = vec![Vec::new(); columns];
        // What would be fewer heads or tokens computes some again. Heads have others beside them then, so that last digits may differ: all of
        // their group is of one column, whose channel writes in order.
        let is_whole = group.is_multiple_of(together);
        let mut column = 0;
        for batch in 0..self.batch {
            for first in (0..self.heads).step_by(group) {
                for quad in (0..group).step_by(together) {
                    for token in (0..self.tokens).step_by(tiling.units) {
                        let head = first + quad.min(group - together);
                        let token = token.min(self.tokens - tiling.units);
                        dealt[column].push(Item { batch, head, token });
                        column = (column + usize::from(is_whole)) % columns;
                    }
                }
                column = (column + usize::from(!is_whole)) % columns;
            }
        }
        dealt
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
