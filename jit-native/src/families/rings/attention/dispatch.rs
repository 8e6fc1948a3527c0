//! The instruction stream of attention on one core in each column.

use super::plan::{Cut, Piece, dealt};
use crate::array::{
    ArrayError, Attention, AttentionColumn, AttentionCore, Dimension, Moves, OWN_MEMORY, Part, Region, Ring,
};
use crate::families::attention::dispatch::{Arena, CACHED, KEYS, QUERIES, dimensions};
use crate::families::attention::emit::VALUES;
use crate::families::attention::memory::ARENA;
use crate::families::attention::parameters::Parameters;
use crate::families::attention::plan::Sizes;
use crate::families::attention::problem::{Operand, Problem};
use crate::numerics::Heads;

/// The stream for all heads, tokens and batches.
pub(super) fn stream(
    attention: &Attention,
    problem: &Problem,
    cut: Cut,
    columns: usize,
) -> Result<Vec<u8>, ArrayError> {
    let mut dispatch = attention.configured().dispatch();
    let dealt = dealt(problem, columns);
    let most = dealt.iter().map(Vec::len).max().unwrap_or(0);
    for batch in 0..problem.batch {
        for token in (0..problem.tokens).step_by(cut.units) {
            // What would be fewer tokens computes some again: both give the same.
            let token = token.min(problem.tokens - cut.units);
            for first in (0..most).step_by(cut.items) {
                for piece in cut.pieces(problem) {
                    for (heads, core) in dealt.iter().zip(attention.cores()) {
                        let last = heads.len().min(first + cut.items);
                        let Some(heads) = heads.get(first..last).filter(|heads| !heads.is_empty()) else { continue };
                        let phase =
                            Phase { problem, cut, sizes: cut.sizes(problem), heads, token, batch, piece: &piece };
                        core.add(&mut dispatch, &phase.column(core))?;
                    }
                    dispatch.end_phase()?;
                }
            }
        }
    }
    dispatch.finish()
}

/// What a column does in a phase.
struct Phase<'a> {
    problem: &'a Problem,
    cut: Cut,
    sizes: Sizes,
    /// The first heads of its items.
    heads: &'a [usize],
    token: usize,
    batch: usize,
    piece: &'a Piece,
}

/// Where a core's memory has what.
struct Memory {
    converted: u32,
    scores: u32,
    exponentials: u32,
    queries: Ring,
    mask: Ring,
    /// Its maximum, sum and values are the state of each token of each item, and in the end the result.
    states: Ring,
    keys: Ring,
    values: Ring,
}

/// Offsets that are equally far apart are one dimension: each with the first of them.
fn progressions(offsets: &[usize]) -> Vec<(u64, Dimension)> {
    let (mut found, mut left) = (Vec::new(), offsets);
    while let [first, rest @ ..] = left {
        let step = rest.first().and_then(|next| next.checked_sub(*first));
        let follows = |step: usize| left.windows(2).take_while(|pair| pair[0] + step == pair[1]).count();
        let (step, more) = step.map_or((0, 0), |step| (step, follows(step)));
        found.push((*first as u64, Dimension::new(1 + more as u64, step as u64 / 4)));
        left = &left[1 + more..];
    }
    found
}

impl Phase<'_> {
    fn column(&self, core: &AttentionCore) -> AttentionColumn {
        let memory = self.memory(core);
        let slopes: Vec<_> = self.heads.iter().map(|head| self.problem.slopes(*head)).collect();
        AttentionColumn {
            parameters: self.parameters(&memory).words(&slopes),
            keys: self.keys(&memory),
            values: self.values(&memory),
            result: self.result(&memory),
        }
    }

    /// Whether this is the first phase of its items, and whether it is the last one.
    fn is_first(&self) -> bool {
        self.piece.tiles.start == 0
    }

    fn is_last(&self) -> bool {
        self.piece.first + self.piece.keys == self.problem.keys
    }

    fn states(&self) -> usize {
        self.heads.len() * self.cut.units
    }

    fn memory(&self, core: &AttentionCore) -> Memory {
        let (Self { problem, cut, sizes, .. }, rings) = (self, core.rings());
        let (states, mut front, mut back) = (self.states(), Arena(ARENA), Arena(cut.back(problem)));
        // Only the mask is not as large in all phases of an item.
        let ring = |arena: &mut Arena, like: Ring, bytes, depth| arena.ring(like, like.empty, bytes, depth);
        Memory {
            converted: front.take(states * sizes.converted),
            scores: front.take(sizes.scores),
            exponentials: front.take(sizes.exponentials),
            states: ring(&mut front, rings.result, sizes.state, states),
            queries: ring(&mut front, rings.queries, states * sizes.queries, 1),
            mask: ring(&mut front, rings.mask, cut.mask_bytes(self.piece.keys), 1),
            keys: ring(&mut back, rings.keys, sizes.keys, 2),
            values: ring(&mut back, rings.values, sizes.values, 2),
        }
    }

    /// A tile of rows in a ring, as blocks of so many elements: the first block of all rows, then the next.
    fn tiles(&self, ring: Ring, operand: &Operand, block: usize) -> (Vec<Part>, u32) {
        let (words, keys) = (block * operand.cache.bytes() / 4, self.cut.keys);
        let order = dimensions([(words, 1), (operand.words() / words, keys * words), (keys, words)]);
        (vec![Part::strided(ring, 0, &order)], (self.heads.len() * self.piece.tiles.len()) as u32)
    }

    /// Rows of keys or values of this piece, item by item.
    fn rows(&self, argument: u16, operand: &Operand) -> Vec<Region> {
        let Self { cut, piece, .. } = self;
        let [row, head, batch] = operand.strides;
        let [by_head, by_batch] = operand.repeats;
        let start = |first: usize| self.batch / by_batch * batch + piece.first * row + first / by_head * head;
        let starts: Vec<usize> = self.heads.iter().map(|head| start(*head)).collect();
        let rows = |offset: u64, count: usize, items: Option<Dimension>| {
            let mut dimensions = dimensions([(operand.words(), 1), (count, row / 4)]);
            dimensions.extend(items);
            Region { argument, offset, dimensions }
        };
        // Keys of tiles that begin where the one in front of them ends.
        let regular = piece.keys / cut.keys * cut.keys;
        if regular == piece.keys {
            return progressions(&starts).into_iter().map(|(first, items)| rows(first, regular, Some(items))).collect();
        }
        let last = (piece.keys - cut.keys) * row;
        let both = |start: &usize| [rows(*start as u64, regular, None), rows((start + last) as u64, cut.keys, None)];
        starts.iter().flat_map(both).collect()
    }

    fn keys(&self, memory: &Memory) -> Moves {
        let operand = &self.problem.k;
        Moves {
            runs: vec![self.tiles(memory.keys, operand, Heads::key_block(self.problem.set))],
            regions: self.rows(KEYS, operand),
        }
    }

    /// Queries, mask, values.
    fn values(&self, memory: &Memory) -> Moves {
        let Self { problem, cut, piece, .. } = self;
        let (heads, units, depth) = (problem.together(), cut.units, problem.k.elements);
        let (mut parts, mut regions) = (Vec::new(), Vec::new());
        if self.is_first() {
            let order = dimensions([(16, 1), (heads * depth / 16, 16), (self.states(), 4 * depth)]);
            parts.push(Part::strided(memory.queries, 0, &order));
            let [token, head, batch] = problem.query_strides;
            let start = |first: &usize| first * head + self.token * token + self.batch * batch;
            for (offset, items) in progressions(&self.heads.iter().map(start).collect::<Vec<_>>()) {
                let mut dimensions = dimensions([(depth, 1), (heads, head / 4), (units, token / 4)]);
                dimensions.push(items);
                regions.push(Region { argument: QUERIES, offset, dimensions });
            }
        }
        if let Some(mask) = problem.mask {
            parts.push(Part::linear(memory.mask, (units * piece.keys / 2) as u64));
            let start = self.token * mask.token + self.batch % mask.batches * mask.batch;
            regions.push(Region {
                argument: mask.argument,
                offset: (start + 2 * piece.first) as u64,
                dimensions: dimensions([(piece.keys / 2, 1), (units, mask.token / 4)]),
            });
        }
        regions.extend(self.rows(CACHED, &problem.v));
        let first = (!parts.is_empty()).then_some((parts, 1));
        let tiles = self.tiles(memory.values, &problem.v, Heads::value_block(problem.set));
        Moves { runs: first.into_iter().chain([tiles]).collect(), regions }
    }

    /// In all phases of an item, so that the end of each is known; that of the last phase is what stays.
    fn result(&self, memory: &Memory) -> Moves {
        let (problem, units) = (self.problem, self.cut.units);
        let (heads, elements) = (problem.together(), problem.v.elements);
        // Blocks of 4 heads x 4 elements become heads.
        let order = dimensions([(4, 1), (elements / 4, 16), (heads, 4)]);
        let part = Part::strided(memory.states, VALUES, &order);
        let [head, token, batch] = problem.result_strides;
        let start = |first: &usize| first * head + self.token * token + self.batch * batch;
        let regions =
            progressions(&self.heads.iter().map(start).collect::<Vec<_>>()).into_iter().map(|(offset, items)| {
                let mut dimensions = dimensions([(elements, 1), (heads, head / 4), (units, token / 4)]);
                dimensions.push(items);
                Region { argument: problem.result, offset, dimensions }
            });
        Moves { runs: vec![(vec![part], self.states() as u32)], regions: regions.collect() }
    }

    fn parameters(&self, memory: &Memory) -> Parameters {
        let Self { problem, cut, sizes, piece, .. } = self;
        let first = |ring: &Ring| OWN_MEMORY + ring.address;
        let both = |ring: &Ring| 2 * first(ring) + ring.stride;
        // Where the first tile begins, less where the last one of all may: what is beyond are keys that others have.
        let skip = (piece.tiles.start * cut.keys) as i64 - (problem.keys - cut.keys) as i64;
        let units = cut.units as u32;
        Parameters {
            items: self.heads.len() as u32,
            tiles: piece.tiles.len() as u32,
            mask_conversions: (cut.mask_bytes(piece.keys) / 64) as u32,
            mask_bytes: (2 * piece.keys) as u32,
            mask_last: first(&memory.mask) + 2 * (piece.keys - cut.keys) as u32,
            skip: skip as u32,
            skip_step: cut.keys as u32,
            begins: self.is_first().into(),
            ends: self.is_last().into(),
            converted: OWN_MEMORY + memory.converted,
            scores: OWN_MEMORY + memory.scores,
            exponentials: OWN_MEMORY + memory.exponentials,
            keys_first: first(&memory.keys),
            keys_both: both(&memory.keys),
            values_first: first(&memory.values),
            values_both: both(&memory.values),
            mask_first: first(&memory.mask),
            queries: first(&memory.queries),
            part: first(&memory.states),
            states: self.states() as u32,
            item_converted: units * sizes.converted as u32,
            item_state: units * sizes.state as u32,
            ..Parameters::of(problem, sizes, cut.keys, cut.units)
        }
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
