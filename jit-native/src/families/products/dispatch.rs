//! The instruction stream of a product.

use super::arithmetic::Arithmetic;
use super::machine::Machine;
use super::memory::{ARENA, CORES};
use super::parameters::{Parameter, Parameters};
use super::plan::{Item, Phase, Tiling};
use super::problem::Problem;
use super::product::{BLOCK_BYTES, GROUP_ROWS};
use super::weights::Order;
use crate::array::{ArrayError, Dimension, Dispatch, OWN_MEMORY, Part, ProductColumn, Region, Ring};

/// Positions of the arguments.
const WEIGHT_ARGUMENT: u16 = 0;
const COLUMN_ARGUMENT: u16 = 1;
const RESULT_ARGUMENT: u16 = 2;

/// Parts of a unit of weights that leaves room behind it, for a core's descriptor.
const UNIT_PARTS: usize = 8;

/// One word of each row of a group.
const ROW_WORD_BYTES: u32 = 4 * GROUP_ROWS as u32;

/// Memory of a tile, handed out from the front.
pub(super) struct Arena(pub u32);

impl Arena {
    pub fn take(&mut self, bytes: usize) -> u32 {
        let address = self.0;
        self.0 += bytes as u32;
        address
    }

    /// A ring with the tile and the locks of `ring` and buffers of its own.
    pub fn ring(&mut self, ring: Ring, bytes: usize, depth: usize) -> Ring {
        let (stride, capacity) = (bytes as u32, (bytes * depth) as u32);
        Ring { address: self.take(bytes * depth), stride, depth: depth as u8, capacity, ..ring }
    }
}

/// The rings of a core in a phase, and where the rest of its memory is.
struct CoreMemory {
    weights: Ring,
    arriving: Ring,
    sums: Ring,
    decoded: u32,
    columns: u32,
}

/// The rings of a mem tile in a phase.
struct MemTileMemory {
    columns: Ring,
    weights: [Ring; CORES],
    results: [Ring; CORES],
}

/// One item of a phase.
struct Work<'a> {
    problem: &'a Problem,
    tiling: Tiling,
    item: Item,
    column: &'a ProductColumn,
    memory: MemTileMemory,
}

/// The stream for all phases.
pub(super) fn stream(machine: &Machine, problem: &Problem, phases: &[Phase]) -> Result<Vec<u8>, ArrayError> {
    let mut dispatch = machine.product.configured().dispatch();
    for phase in phases {
        for (item, column) in phase.items.iter().zip(machine.product.columns()) {
            Work::new(problem, phase.tiling, *item, column).add(&mut dispatch)?;
        }
        dispatch.end_phase()?;
    }
    dispatch.finish()
}

pub(super) fn dimensions<const N: usize>(sizes: [(usize, usize); N]) -> Vec<Dimension> {
    sizes.into_iter().map(|(size, step)| Dimension::new(size as u64, step as u64)).collect()
}

impl<'a> Work<'a> {
    fn new(problem: &'a Problem, tiling: Tiling, item: Item, column: &'a ProductColumn) -> Self {
        let mut arena = Arena(0);
        let columns = arena.ring(column.operand.0, tiling.columns * tiling.depth * tiling.column_bytes, tiling.chunks);
        let weights = std::array::from_fn(|core| {
            arena.ring(column.parts[core].weights.0, tiling.padded_rows() * tiling.words * 4, 2)
        });
        let results = std::array::from_fn(|core| arena.ring(column.parts[core].result.0, tiling.sums_bytes(), 2));
        Self { problem, tiling, item, column, memory: MemTileMemory { columns, weights, results } }
    }

    /// Rows of a core that are there.
    fn rows(&self, core: usize) -> usize {
        self.item.partial.map_or(self.tiling.rows, |rows| rows[core])
    }

    /// Cores with rows.
    fn busy(&self, cores: std::ops::Range<usize>) -> impl Iterator<Item = usize> + '_ {
        cores.filter(|core| self.rows(*core) > 0)
    }

    /// Deliveries of a chunk of weights.
    fn runs(&self) -> usize {
        self.tiling.tiles * self.tiling.chunks
    }

    fn add(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        self.columns(dispatch)?;
        for half in 0..2 {
            self.weights(dispatch, half)?;
        }
        for core in 0..CORES {
            self.core(dispatch, core)?;
        }
        self.results(dispatch)
    }

    /// Columns: from the host to the mem tile once, chunk by chunk, and from there to the cores as often as they need them.
    fn columns(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        let Self { problem, tiling, item, .. } = self;
        // Words of a column in a chunk.
        let per_word = problem.right.per_word();
        let (words, chunks) = (tiling.present / per_word, tiling.chunks);
        let [element, column, inner, outer] = problem.column_strides;
        let offset = item.first_column * column + item.matrix[0] * inner + item.matrix[1] * outer;
        let region = |chunk: usize, chunks: usize| Region {
            argument: COLUMN_ARGUMENT,
            offset: (offset + chunk * tiling.present * element) as u64,
            dimensions: dimensions([
                (words, element * per_word / 4),
                (item.columns, column / 4),
                (chunks, tiling.present * element / 4),
            ]),
        };
        let ring = self.memory.columns;
        let arriving = Part::linear(ring, (item.columns * words) as u64);
        if tiling.columns_with_weights() {
            self.first_tile(dispatch, arriving, |chunk| region(chunk, 1))?;
        } else {
            dispatch.transfer_at(self.column.sources[0], &region(0, chunks), Some(0.0))?;
            dispatch.run(self.column.arrival[0], &[arriving], chunks as u32)?;
        }
        let from = self.column.operand.1;
        let part = if tiling.is_padded() {
            let [_, zeros] = tiling.zeros();
            Part::strided(ring, 0, &dimensions([(words, 1), (tiling.columns, words)])).padded(zeros as u32)
        } else {
            Part::linear(ring, (tiling.columns * words) as u64)
        };
        let part = Part { release: false, ..part };
        dispatch.run(from, std::slice::from_ref(&part), chunks as u32)?;
        if tiling.columns_every_time() && tiling.tiles > 1 {
            let again = Part { acquire: false, ..part };
            dispatch.run(from, &[again], ((tiling.tiles - 1) * chunks) as u32)?;
        }
        Ok(())
    }

    /// The first tile, with columns that cores do not keep: each chunk of them is followed by that of the weights that share its
    /// channel, so that the cores need not wait for the columns of all chunks.
    fn first_tile(
        &self,
        dispatch: &mut Dispatch<'_>,
        columns: Part,
        region: impl Fn(usize) -> Region,
    ) -> Result<(), ArrayError> {
        let (from, to, tiling) = (self.column.sources[0], self.column.arrival[0], self.tiling);
        for chunk in 0..tiling.chunks {
            // Beside what the other channel brings meanwhile.
            let position = Some(chunk as f64 / self.runs() as f64);
            dispatch.transfer_at(from, &region(chunk), position)?;
            for region in self.weights_of_chunk(0, chunk) {
                dispatch.transfer_at(from, &region, position)?;
            }
        }
        let parts: Vec<Part> = std::iter::once(columns).chain(self.weight_parts(0)).collect();
        dispatch.run(to, &parts, tiling.chunks as u32).map(|_| ())
    }

    /// Rows of weights from a core's first one on: of some chunks and tiles.
    fn weight_region(&self, core: usize, rows: usize, [chunks, tiles]: [std::ops::Range<usize>; 2]) -> Region {
        let Self { problem, tiling, item, .. } = self;
        let [row, inner, outer] = problem.weight_strides;
        let [by_inner, by_outer] = problem.repeats;
        let matrix = item.matrix[0] / by_inner * inner + item.matrix[1] / by_outer * outer;
        let words = tiling.present_words;
        let first_row = item.first_row + (tiles.start * CORES + core) * tiling.rows;
        Region {
            argument: WEIGHT_ARGUMENT,
            offset: (matrix + first_row * row + 4 * chunks.start * words) as u64,
            dimensions: dimensions([
                (words, 1),
                (rows, row / 4),
                (chunks.len(), words),
                (tiles.len(), CORES * tiling.rows * row / 4),
            ]),
        }
    }

    /// The cores with rows that share a channel of the shim: 0 and 1, or 2 and 3.
    fn busy_half(&self, half: usize) -> impl Iterator<Item = usize> + '_ {
        self.busy(2 * half..2 * half + 2)
    }

    /// One chunk of the first tile, for two cores: in one piece if all their rows are there.
    fn weights_of_chunk(&self, half: usize, chunk: usize) -> Vec<Region> {
        let of = |core, rows| self.weight_region(core, rows, [chunk..chunk + 1, 0..1]);
        match self.item.partial {
            None => vec![of(2 * half, 2 * self.tiling.rows)],
            Some(rows) => self.busy_half(half).map(|core| of(core, rows[core])).collect(),
        }
    }

    /// What of a chunk goes to each of two cores.
    fn weight_parts(&self, half: usize) -> impl Iterator<Item = Part> + '_ {
        let words = self.tiling.present_words;
        self.busy_half(half).map(move |core| Part::linear(self.memory.weights[core], (self.rows(core) * words) as u64))
    }

    /// Weights of cores 0 and 1, or 2 and 3: through one channel of the shim to the mem tile, which splits them.
    fn weights(&self, dispatch: &mut Dispatch<'_>, half: usize) -> Result<(), ArrayError> {
        let Self { problem, tiling, item, .. } = self;
        let (from, to) = (self.column.sources[half], self.column.arrival[half]);
        let words = tiling.present_words;
        // The first tile may have come with the columns.
        let tiles = usize::from(half == 0 && tiling.columns_with_weights())..tiling.tiles;
        if item.partial.is_none() {
            if !tiles.is_empty() {
                dispatch.transfer(
                    from,
                    &self.weight_region(2 * half, 2 * tiling.rows, [0..tiling.chunks, tiles.clone()]),
                )?;
            }
        } else if !tiles.is_empty() {
            // There is one tile; its chunks alternate between the cores.
            for region in (0..tiling.chunks).flat_map(|chunk| self.weights_of_chunk(half, chunk)) {
                dispatch.transfer(from, &region)?;
            }
        }
        let parts: Vec<Part> = self.weight_parts(half).collect();
        dispatch.run(to, &parts, (tiles.len() * tiling.chunks) as u32)?;
        let together = problem.weights.words_together();
        for core in self.busy_half(half) {
            let from = self.column.parts[core].weights.1;
            let ring = self.memory.weights[core];
            let part = if tiling.is_padded() {
                // Rows as they are; the core's channel puts the words of all rows next to each other.
                let [zeros, _] = tiling.zeros();
                let order = dimensions([(words, 1), (self.groups(core) * GROUP_ROWS, words)]);
                Part::strided(ring, 0, &order).padded(zeros as u32)
            } else {
                let order = dimensions([
                    (together, 1),
                    (GROUP_ROWS, words),
                    (words / together, together),
                    (self.groups(core), GROUP_ROWS * words),
                ]);
                Part::strided(ring, 0, &order)
            };
            dispatch.run(from, &[part], self.runs() as u32)?;
        }
        Ok(())
    }

    /// Groups of rows of a core in a tile.
    fn groups(&self, core: usize) -> usize {
        self.rows(core).div_ceil(GROUP_ROWS)
    }

    /// A core's channels and parameters.
    fn core(&self, dispatch: &mut Dispatch<'_>, core: usize) -> Result<(), ArrayError> {
        let Self { tiling, .. } = self;
        let (memory, groups) = (self.core_memory(core), self.groups(core));
        let lanes = tiling.arithmetic.lanes();
        let deliveries = if tiling.columns_every_time() { self.runs() } else { tiling.chunks };
        let channels = self.column.cores[core];
        let piece = Part::strided(memory.arriving, 0, &self.order_of_columns());
        dispatch.run(channels.operand.1, &[piece], (deliveries * tiling.columns / lanes) as u32)?;
        if groups > 0 {
            let group = Part::strided(memory.weights, 0, &self.order_of_weights());
            dispatch.run(channels.weights.1, &[group], (self.runs() * groups) as u32)?;
            let rows = groups * GROUP_ROWS;
            let order = dimensions([(rows, lanes), (lanes, 1), (tiling.columns / lanes, lanes * rows)]);
            dispatch.run(channels.result.1, &[Part::strided(memory.sums, 0, &order)], tiling.tiles as u32)?;
        }
        // What follows is for prompts.
        let words = self.parameters(&memory, groups).words();
        dispatch.start(channels.tile, &words[..Parameter::ChunkHalves as usize])?;
        Ok(())
    }

    /// How a core's channel lays out a block of columns: as they come; those of i8 as rows of eight `k`, those of all eight
    /// columns together.
    fn order_of_columns(&self) -> Vec<Dimension> {
        let words = self.tiling.arriving_bytes() / 4;
        match self.tiling.arithmetic {
            Arithmetic::Floats => dimensions([(words, 1)]),
            Arithmetic::Integers => dimensions([(2, 1), (words / 16, 16), (8, 2)]),
        }
    }

    /// How a core's channel lays out a group of weights.
    fn order_of_weights(&self) -> Vec<Dimension> {
        let Self { problem, tiling, .. } = self;
        let (weights, together) = (problem.weights, problem.weights.words_together());
        if tiling.is_padded() {
            return dimensions([
                (together, 1),
                (tiling.words / together, GROUP_ROWS * together),
                (GROUP_ROWS, together),
            ]);
        }
        let [unit, in_core] = [weights.unit_words(), weights.core_words()].map(|words| GROUP_ROWS * words);
        if unit == in_core {
            return dimensions([(GROUP_ROWS * tiling.words, 1)]);
        }
        // A unit is more than a dimension holds.
        let part = unit / UNIT_PARTS;
        dimensions([(part, 1), (UNIT_PARTS, part), (tiling.words / weights.unit_words(), in_core)])
    }

    fn core_memory(&self, core: usize) -> CoreMemory {
        let Self { tiling, .. } = self;
        let (mut arena, rings) = (Arena(ARENA), self.column.cores[core]);
        let weights = arena.ring(rings.weights.0, tiling.weight_bytes(), 2);
        let arriving = arena.ring(rings.operand.0, tiling.arriving_bytes(), tiling.arriving());
        let decoded = if self.problem.weights.is_direct() { 0 } else { GROUP_ROWS * tiling.depth * 2 };
        let decoded = arena.take(decoded);
        let sums = arena.ring(rings.result.0, tiling.sums_bytes(), tiling.sums);
        let columns = arena.take(tiling.converted_bytes());
        CoreMemory { weights, arriving, sums, decoded, columns }
    }

    fn parameters(&self, memory: &CoreMemory, groups: usize) -> Parameters {
        let Self { problem, tiling, .. } = self;
        let (lanes, blocks) = (tiling.arithmetic.lanes(), tiling.arithmetic.blocks(tiling.wide));
        let steps = tiling.depth / 8;
        let first = |ring: &Ring| OWN_MEMORY + ring.address;
        let both = |ring: &Ring| 2 * first(ring) + u32::from(ring.depth - 1) * ring.stride;
        let step_bytes = blocks as u32 * BLOCK_BYTES;
        let layout = problem.weights.layout();
        let apart = match problem.weights.order() {
            Order::Plain => 16,
            Order::Interleaved(apart) => apart,
        };
        let to_upper = apart * tiling.column_bytes;
        Parameters {
            tiles: tiling.tiles as u32,
            chunks: tiling.chunks as u32,
            groups: groups as u32,
            units: (tiling.columns / lanes / blocks) as u32,
            wide: tiling.wide.into(),
            steps: steps as u32,
            weights: problem.weights.number(),
            blocks: (steps / 4) as u32,
            pairs: if problem.weights.comes_in_pairs() { (tiling.depth / problem.weights.unit()) as u32 } else { 0 },
            runs: (steps / 8) as u32,
            scale_words: layout.map_or(0, |layout| tiling.depth / usize::from(layout.elements)) as u32,
            scales_at: layout.map_or(0, |layout| layout.scales.into()) * ROW_WORD_BYTES,
            scales_period: layout.map_or(0, |layout| layout.period.into()) * ROW_WORD_BYTES,
            form: problem.form().number(),
            halves: (tiling.depth / (2 * apart)) as u32,
            sixteens: (apart / 16) as u32,
            to_upper: to_upper as u32,
            to_next: (16 * tiling.column_bytes).wrapping_sub(to_upper) as u32,
            columns_every_time: tiling.columns_every_time().into(),
            sums_stride: (groups * GROUP_ROWS * 4 * lanes) as u32,
            column_bytes: (tiling.column_bytes * tiling.depth) as u32,
            blocks_per_unit: blocks as u32,
            step_bytes,
            unit_bytes: steps as u32 * step_bytes,
            columns: OWN_MEMORY + memory.columns,
            chunk_bytes: if tiling.resident { tiling.chunk_bytes() as u32 } else { 0 },
            decoded: OWN_MEMORY + memory.decoded,
            weights_first: first(&memory.weights),
            weights_both: both(&memory.weights),
            arriving_first: first(&memory.arriving),
            arriving_stride: memory.arriving.stride,
            arriving_end: first(&memory.arriving) + u32::from(memory.arriving.depth) * memory.arriving.stride,
            sums_first: first(&memory.sums),
            sums_both: both(&memory.sums),
            ..Parameters::default()
        }
    }

    /// Results: the mem tile joins those of the cores.
    fn results(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        let Self { problem, tiling, item, .. } = self;
        let [column, inner, outer] = problem.result_strides;
        let matrix = item.matrix[0] * inner + item.matrix[1] * outer + item.first_column * column;
        let (from, to) = (self.column.departure, self.column.result);
        let region = |core: usize, rows: usize, parts: usize| Region {
            argument: RESULT_ARGUMENT,
            offset: (matrix + 4 * (item.first_row + core * tiling.rows)) as u64,
            dimensions: dimensions([(rows, 1), (item.columns, column / 4), (parts, tiling.rows)]),
        };
        let mut parts = Vec::new();
        for core in self.busy(0..CORES) {
            let to = self.column.parts[core].result.1;
            let (ring, rows) = (self.memory.results[core], self.groups(core) * GROUP_ROWS);
            dispatch.run(to, &[Part::linear(ring, (rows * tiling.columns) as u64)], tiling.tiles as u32)?;
            parts.push(Part::strided(ring, 0, &dimensions([(self.rows(core), 1), (item.columns, rows)])));
        }
        dispatch.run(from, &parts, tiling.tiles as u32)?;
        if item.partial.is_none() {
            return dispatch.transfer(to, &region(0, tiling.rows, CORES * tiling.tiles)).map(|_| ());
        }
        for core in self.busy(0..CORES) {
            dispatch.transfer(to, &region(core, self.rows(core), 1))?;
        }
        Ok(())
    }
}
