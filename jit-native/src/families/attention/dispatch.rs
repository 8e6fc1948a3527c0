//! The instruction stream of attention.

use super::emit::VALUES;
use super::machine::Machine;
use super::memory::{ARENA, CORES, lock};
use super::parameters::Parameters;
use super::plan::{Item, Sizes, Tiling};
use super::problem::{Operand, Problem};
use crate::array::{ArrayError, Dimension, Dispatch, OWN_MEMORY, Part, ProductColumn, Region, Ring};
use crate::numerics::Heads;

/// Positions of the arguments; those of mask and result are the problem's.
pub(in crate::families) const QUERIES: u16 = 0;
pub(in crate::families) const KEYS: u16 = 1;
pub(in crate::families) const CACHED: u16 = 2;

/// Words of the sinks of four heads, which cores get four times over; their room behind the queries in a mem tile.
const SINKS: usize = 16;
const SINKS_BYTES: usize = 4 * SINKS;

/// Memory of a tile, handed out from the front.
pub(in crate::families) struct Arena(pub u32);

impl Arena {
    pub fn take(&mut self, bytes: usize) -> u32 {
        let address = self.0;
        self.0 += bytes.next_multiple_of(64) as u32;
        address
    }

    /// A ring in the tile of `like` with two locks from `lock` on.
    pub fn ring(&mut self, like: Ring, lock: u8, bytes: usize, depth: usize) -> Ring {
        let stride = bytes.next_multiple_of(64);
        let capacity = (stride * depth) as u32;
        let address = self.take(stride * depth);
        Ring {
            tile: like.tile,
            address,
            stride: stride as u32,
            depth: depth as u8,
            capacity,
            empty: lock,
            full: lock + 1,
        }
    }
}

/// The rings of a core, and where the rest of its memory is.
struct CoreMemory {
    keys: Ring,
    values: Ring,
    mask: Option<Ring>,
    queries: Ring,
    part: Ring,
    arriving: Ring,
    result: Ring,
    converted: u32,
    scores: u32,
    exponentials: u32,
}

/// The rings of a mem tile.
struct MemTileMemory {
    queries: Ring,
    keys: [Ring; CORES],
    values: [Ring; CORES],
    mask: Option<[Ring; CORES]>,
    parts: [Ring; CORES],
    result: Ring,
}

/// What a column does in a phase.
struct Work<'a> {
    problem: &'a Problem,
    tiling: Tiling,
    sizes: Sizes,
    items: &'a [Item],
    column: &'a ProductColumn,
    memory: MemTileMemory,
}

/// The stream for all items.
pub(super) fn stream(machine: &Machine, problem: &Problem, tiling: Tiling) -> Result<Vec<u8>, ArrayError> {
    let mut dispatch = machine.product.configured().dispatch();
    let columns = machine.product.columns();
    let dealt = problem.items(tiling, columns.len());
    let most = dealt.iter().map(Vec::len).max().unwrap_or(0);
    for first in (0..most).step_by(tiling.items()) {
        for (items, column) in dealt.iter().zip(columns) {
            let last = items.len().min(first + tiling.items());
            if let Some(items) = items.get(first..last).filter(|items| !items.is_empty()) {
                Work::new(problem, tiling, items, column).add(&mut dispatch)?;
            }
        }
        dispatch.end_phase()?;
    }
    dispatch.finish()
}

pub(in crate::families) fn dimensions<const N: usize>(sizes: [(usize, usize); N]) -> Vec<Dimension> {
    sizes.into_iter().map(|(size, step)| Dimension::new(size as u64, step as u64)).collect()
}

impl<'a> Work<'a> {
    fn new(problem: &'a Problem, tiling: Tiling, items: &'a [Item], column: &'a ProductColumn) -> Self {
        let sizes = Sizes::new(problem, tiling.keys, tiling.units);
        let mut arena = Arena(0);
        let ring = column.operand.0;
        let (units, of_core) = (tiling.units, |core: usize| 2 * core as u8);
        let queries = arena.ring(ring, ring.empty, units * sizes.queries + SINKS_BYTES, items.len());
        let keys = std::array::from_fn(|core| {
            let ring = column.parts[core].weights.0;
            arena.ring(ring, ring.empty, sizes.keys, 2)
        });
        let values = std::array::from_fn(|core| arena.ring(ring, lock::MEM_VALUES + of_core(core), sizes.values, 2));
        let masked = problem.mask.is_some();
        let mask =
            masked.then(|| std::array::from_fn(|core| arena.ring(ring, lock::MEM_MASK + of_core(core), sizes.mask, 2)));
        let parts = std::array::from_fn(|core| {
            let ring = column.parts[core].result.0;
            arena.ring(ring, ring.empty, units * sizes.state, 2)
        });
        let result = arena.ring(ring, lock::MEM_RESULT, units * (sizes.state - VALUES as usize), 2);
        let memory = MemTileMemory { queries, keys, values, mask, parts, result };
        Self { problem, tiling, sizes, items, column, memory }
    }

    /// Deliveries of a tile to a core.
    fn runs(&self) -> u32 {
        (self.items.len() * self.tiling.tiles) as u32
    }

    fn add(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        self.queries(dispatch)?;
        self.cache(dispatch)?;
        for core in 0..CORES {
            self.core(dispatch, core)?;
        }
        self.results(dispatch)
    }

    /// Queries to the mem tile, all at first; from there to all cores, each in front of the parts that end the item before it.
    fn queries(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        let Self { problem, tiling, memory, .. } = self;
        let (depth, heads, units) = (problem.k.elements, problem.together(), tiling.units);
        let [token, head, batch] = problem.query_strides;
        let (from, to) = (self.column.sources[0], self.column.arrival[0]);
        for item in self.items {
            let region = Region {
                argument: QUERIES,
                offset: (item.token * token + item.head * head + item.batch * batch) as u64,
                dimensions: dimensions([(depth, 1), (heads, head / 4), (units, token / 4)]),
            };
            dispatch.transfer_at(from, &region, Some(0.0))?;
            if let Some(argument) = problem.sinks {
                let sinks = dimensions([(heads, 1), (4, 0)]);
                let region = Region { argument, offset: 4 * item.head as u64, dimensions: sinks };
                dispatch.transfer_at(from, &region, Some(0.0))?;
            }
        }
        let (ring, behind) = (memory.queries, units * self.sizes.queries);
        let rows = dimensions([(depth, 1), (heads, depth), (units, 4 * depth)]);
        let sinks = Part::strided(ring, behind as u32, &dimensions([(heads, 1), (4, 4)]));
        dispatch.run(to, &self.with_sinks(Part::strided(ring, 0, &rows), sinks), self.items.len() as u32)?;
        let sinks = Part::strided(ring, behind as u32, &dimensions([(SINKS, 1)]));
        let mut parts = self.with_sinks(Part::linear(ring, (units * 4 * depth) as u64), sinks);
        parts.extend(memory.parts.iter().map(|ring| Part::linear(*ring, self.state_words())));
        dispatch.run(self.column.operand.1, &parts, self.items.len() as u32)?;
        Ok(())
    }

    /// Queries, and behind them in the same buffer the sinks, if there are any.
    fn with_sinks(&self, queries: Part, sinks: Part) -> Vec<Part> {
        if self.problem.sinks.is_none() {
            return vec![queries];
        }
        vec![Part { release: false, ..queries }, Part { acquire: false, ..sinks }]
    }

    /// Words of the state of all tokens of an item.
    fn state_words(&self) -> u64 {
        (self.tiling.units * self.sizes.state / 4) as u64
    }

    /// Keys through the first channel of the shim, values and mask through the second; the mem tile deals them over the cores.
    fn cache(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        let Self { problem, tiling, memory, .. } = self;
        let keys_from = self.column.sources[0];
        let [keys_to, values_to] = self.column.arrival;
        for item in self.items {
            for region in self.rows(KEYS, &problem.k, item, 0..tiling.tiles * CORES) {
                dispatch.transfer(keys_from, &region)?;
            }
            self.transfer_values(dispatch, item)?;
        }
        let linear = |rings: &[Ring], bytes: usize| -> Vec<Part> {
            rings.iter().map(|ring| Part::linear(*ring, bytes as u64 / 4)).collect()
        };
        dispatch.run(keys_to, &linear(&memory.keys, self.sizes.keys), self.runs())?;
        let mut parts = linear(&memory.values, self.sizes.values);
        parts.extend(memory.mask.iter().flat_map(|rings| linear(rings, self.mask_bytes())));
        dispatch.run(values_to, &parts, self.runs())?;
        for core in 0..CORES {
            let (k, v) = (problem.k, problem.v);
            let row = k.words();
            let block = Heads::key_block(problem.set) * k.cache.bytes() / 4;
            let order = dimensions([(block, 1), (tiling.keys, row), (row / block, block)]);
            let mut parts = vec![Part::strided(memory.keys[core], 0, &order)];
            let row = v.words();
            let block = Heads::value_block(problem.set) * v.cache.bytes() / 4;
            let order = dimensions([(block, 1), (tiling.keys, row), (row / block, block)]);
            parts.push(Part::strided(memory.values[core], 0, &order));
            parts.extend(memory.mask.map(|rings| Part::linear(rings[core], self.mask_bytes() as u64 / 4)));
            dispatch.run(self.column.parts[core].weights.1, &parts, self.runs())?;
        }
        Ok(())
    }

    /// Bytes of the mask of a tile that arrive.
    fn mask_bytes(&self) -> usize {
        2 * self.tiling.keys * self.tiling.units
    }

    /// Values; with a mask, behind each four tiles of values those of their keys.
    fn transfer_values(&self, dispatch: &mut Dispatch<'_>, item: &Item) -> Result<(), ArrayError> {
        let Self { problem, tiling, .. } = self;
        let from = self.column.sources[1];
        let Some(mask) = problem.mask else {
            for region in self.rows(CACHED, &problem.v, item, 0..tiling.tiles * CORES) {
                dispatch.transfer(from, &region)?;
            }
            return Ok(());
        };
        let start = item.token * mask.token + item.batch % mask.batches * mask.batch;
        for round in 0..tiling.tiles {
            let tiles = round * CORES..(round + 1) * CORES;
            for region in self.rows(CACHED, &problem.v, item, tiles.clone()) {
                dispatch.transfer(from, &region)?;
            }
            for tile in tiles {
                let region = Region {
                    argument: mask.argument,
                    offset: (start + 2 * tiling.first_key(problem, tile)) as u64,
                    dimensions: dimensions([(tiling.keys / 2, 1), (tiling.units, mask.token / 4)]),
                };
                dispatch.transfer(from, &region)?;
            }
        }
        Ok(())
    }

    /// The rows of keys or values of some tiles: those that follow each other in one piece.
    fn rows(&self, argument: u16, operand: &Operand, item: &Item, tiles: std::ops::Range<usize>) -> Vec<Region> {
        let Self { problem, tiling, .. } = self;
        let [row, head, batch] = operand.strides;
        let [by_head, by_batch] = operand.repeats;
        let start = item.head / by_head * head + item.batch / by_batch * batch;
        let region = |first_tile: usize, count: usize| Region {
            argument,
            offset: (start + tiling.first_key(problem, first_tile) * row) as u64,
            dimensions: dimensions([(operand.words(), 1), (count * tiling.keys, row / 4)]),
        };
        let regular = tiling.regular_tiles(problem).clamp(tiles.start, tiles.end);
        let whole = (regular > tiles.start).then(|| region(tiles.start, regular - tiles.start));
        whole.into_iter().chain((regular..tiles.end).map(|tile| region(tile, 1))).collect()
    }

    /// A core's channels and parameters.
    fn core(&self, dispatch: &mut Dispatch<'_>, core: usize) -> Result<(), ArrayError> {
        let Self { problem, tiling, sizes, .. } = self;
        let (channels, memory, items) = (self.column.cores[core], self.core_memory(core), self.items.len() as u32);
        let mut parts = vec![
            Part::linear(memory.keys, sizes.keys as u64 / 4),
            Part::linear(memory.values, sizes.values as u64 / 4),
        ];
        parts.extend(memory.mask.map(|ring| Part::linear(ring, self.mask_bytes() as u64 / 4)));
        dispatch.run(channels.weights.1, &parts, self.runs())?;
        let mut parts = vec![Part::linear(memory.queries, (tiling.units * 4 * problem.k.elements) as u64)];
        parts.extend(problem.sinks.map(|_| Part::linear(memory.arriving, SINKS as u64)));
        parts.extend((0..CORES).map(|_| Part::linear(memory.arriving, self.state_words())));
        dispatch.run(channels.operand.1, &parts, items)?;
        let mut parts = vec![Part::linear(memory.part, self.state_words())];
        if core == 0 {
            let values = dimensions([(16, 1), (problem.v.elements / 4, 16), (tiling.units, sizes.state / 4)]);
            parts.push(Part::strided(memory.result, VALUES, &values));
        }
        dispatch.run(channels.result.1, &parts, items)?;
        let slopes: Vec<_> = self.items.iter().map(|item| problem.slopes(item.head)).collect();
        dispatch.start(channels.tile, &self.parameters(&memory, core).words(&slopes))?;
        Ok(())
    }

    fn core_memory(&self, core: usize) -> CoreMemory {
        let Self { problem, tiling, sizes, .. } = self;
        let (mut arena, ring) = (Arena(ARENA), self.column.cores[core].weights.0);
        let units = tiling.units;
        CoreMemory {
            keys: arena.ring(ring, lock::KEYS, sizes.keys, 2),
            values: arena.ring(ring, lock::VALUES, sizes.values, 2),
            mask: problem.mask.map(|_| arena.ring(ring, lock::MASK, sizes.mask, 2)),
            queries: arena.ring(ring, lock::QUERIES, units * sizes.queries, 1),
            part: arena.ring(ring, lock::PART, units * sizes.state, 1),
            arriving: arena.ring(ring, lock::ARRIVING, units * sizes.state, 1),
            result: arena.ring(ring, lock::RESULT, units * sizes.state, 1),
            converted: arena.take(units * sizes.converted),
            scores: arena.take(sizes.scores),
            exponentials: arena.take(sizes.exponentials),
        }
    }

    fn parameters(&self, memory: &CoreMemory, core: usize) -> Parameters {
        let Self { problem, tiling, sizes, .. } = self;
        let keys = tiling.keys;
        let first = |ring: &Ring| OWN_MEMORY + ring.address;
        let both = |ring: &Ring| 2 * first(ring) + u32::from(ring.depth - 1) * ring.stride;
        // Where this core's first tile begins, less where the last one may: what is beyond are keys that others have.
        let skip = (core * keys) as i64 - (problem.keys - keys) as i64;
        let mask = memory.mask.unwrap_or(memory.keys);
        Parameters {
            items: self.items.len() as u32,
            tiles: tiling.tiles as u32,
            mask_conversions: (sizes.mask / 64) as u32,
            mask_bytes: (2 * keys) as u32,
            skip: skip as u32,
            skip_step: (CORES * keys) as u32,
            joins: (core == 0).into(),
            begins: (core == 0 && problem.sinks.is_none()).into(),
            converted: OWN_MEMORY + memory.converted,
            scores: OWN_MEMORY + memory.scores,
            exponentials: OWN_MEMORY + memory.exponentials,
            keys_first: first(&memory.keys),
            keys_both: both(&memory.keys),
            values_first: first(&memory.values),
            values_both: both(&memory.values),
            mask_first: first(&mask),
            mask_both: both(&mask),
            queries: first(&memory.queries),
            part: first(&memory.part),
            arriving: first(&memory.arriving),
            result: first(&memory.result),
            ..Parameters::of(problem, sizes, keys, tiling.units)
        }
    }

    /// Results: parts of all cores to the mem tile, which sends them to all cores; and what core 0 has joined to the host.
    fn results(&self, dispatch: &mut Dispatch<'_>) -> Result<(), ArrayError> {
        let Self { problem, tiling, memory, .. } = self;
        let (elements, heads, units) = (problem.v.elements, problem.together(), tiling.units);
        let items = self.items.len() as u32;
        for core in 0..CORES {
            let mut parts = vec![Part::linear(memory.parts[core], self.state_words())];
            if core == 0 {
                parts.push(Part::linear(memory.result, (units * 4 * elements) as u64));
            }
            dispatch.run(self.column.parts[core].result.1, &parts, items)?;
        }
        // Blocks of 4 heads x 4 elements become heads.
        let order = dimensions([(4, 1), (elements / 4, 16), (heads, 4), (units, 4 * elements)]);
        dispatch.run(self.column.departure, &[Part::strided(memory.result, 0, &order)], items)?;
        let [head, token, batch] = problem.result_strides;
        for item in self.items {
            let region = Region {
                argument: problem.result,
                offset: (item.head * head + item.token * token + item.batch * batch) as u64,
                dimensions: dimensions([(elements, 1), (heads, head / 4), (units, token / 4)]),
            };
            dispatch.transfer(self.column.result, &region)?;
        }
        Ok(())
    }
}
