//! How a product is cut: tiles of the result, chunks of `k`, and which column computes what.
//!
//! A *phase* is what the array computes between two waits. In it each column has one *item*: some columns of the result
//! (`columns` of a matrix) and a range of rows of weights, which its four cores share. The rows come as *tiles* of four times
//! `rows` rows, `rows` for each core; the columns of the item stay in the mem tile while all tiles pass. Each tile is summed
//! over `chunks` pieces of `k`, which are as long as the core's memory allows.

use super::arithmetic::Arithmetic;
use super::memory::{ARENA_BYTES, CORES, MEM_TILE_BYTES};
use super::problem::Problem;
use super::product::GROUP_ROWS;
use aie_hal::format::extent::Traffic;

/// Sizes of descriptors: dimensions of mem tiles and shims, and lengths of cores' descriptors.
const MOST_STEPS: usize = 1023;
const MOST_CORE_STEPS: usize = 255;
const MOST_CORE_WORDS: usize = 16383;
const MOST_MEM_WORDS: usize = (1 << 17) - 1;
/// Runs of a channel's tasks in a phase: four tasks of 256, of which one may be for something else.
const MOST_RUNS: usize = 1024;
const MOST_CHUNK_RUNS: usize = 256;
/// Locks hold six bits.
const MOST_CHUNKS: usize = 63;
/// What a core has room for: two buffers of sums or one, the columns of all chunks or one, those of the next.
const KEPT: [(usize, bool, bool); 6] =
    [(2, true, false), (1, true, false), (2, false, true), (1, false, true), (2, false, false), (1, false, false)];
/// Cycles of a phase in which nothing is computed, about: writing descriptors, filling the way to the cores, waiting.
const PHASE_CYCLES: u64 = 6000;
/// Cycles around the loops for a group of rows of a chunk, and around those that decode it, about.
const GROUP_CYCLES: u64 = 280;
const FEW_GROUP_CYCLES: u64 = 120;
const DECODE_CYCLES: u64 = 500;

/// How an item is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// What is multiplied.
    pub arithmetic: Arithmetic,
    /// Columns of the result that a core computes at once; whole units of the loop.
    pub columns: usize,
    /// Whether the loop is the one for units of 16 columns.
    pub wide: bool,
    /// Pieces of `k`.
    pub chunks: usize,
    /// Elements of a chunk in the core: whole steps of the inner loops.
    pub depth: usize,
    /// Elements of a chunk that are there; zeros follow them on their way to the core.
    pub present: usize,
    /// Words of a row of weights in a chunk, with zeros, and without.
    pub words: usize,
    pub present_words: usize,
    /// Words that these take in the core.
    pub core_words: usize,
    /// Bytes of an element of the columns.
    pub column_bytes: usize,
    /// Rows of weights of a core in a tile. The core computes whole groups of 16; what lies in the mem tile's buffer behind the
    /// last row gives results that no one reads.
    pub rows: usize,
    /// Tiles.
    pub tiles: usize,
    /// Whether the columns of all chunks stay in the core, in bf16; otherwise those of one do.
    pub resident: bool,
    /// Whether columns are prefetched: those of a chunk arrive while the core works on the one before.
    pub ahead: bool,
    /// Buffers for sums in a core, and in the mem tile for each core.
    pub sums: usize,
    /// Array columns that share the rows of one item's columns.
    pub share: usize,
}

/// A division of `k`. The fields are those of [`Tiling`].
#[derive(Clone, Copy, Debug)]
struct Cut {
    chunks: usize,
    depth: usize,
    present: usize,
    words: usize,
    present_words: usize,
    core_words: usize,
}

/// What one column of the array does in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The matrix of columns.
    pub matrix: [usize; 2],
    /// Columns of the result.
    pub first_column: usize,
    pub columns: usize,
    /// The first row of weights, and rows of each core in the only tile, if some have fewer than [`Tiling::rows`].
    pub first_row: usize,
    pub partial: Option<[usize; CORES]>,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub tiling: Tiling,
    /// Of the array's columns in their order.
    pub items: Vec<Item>,
}

/// Buffers for arriving columns in a core, of items with so many blocks of them.
fn arriving(ahead: bool, blocks: usize) -> usize {
    if ahead { blocks.max(2) } else { 2 }
}

/// Runs of a core's descriptors for a ring of so many buffers: four tasks, which go around the ring whole.
fn most_column_runs(ring: usize) -> usize {
    4 * (256 / ring * ring)
}

impl Tiling {
    /// Words of zero behind a row of weights, and behind a column.
    pub fn zeros(&self) -> [usize; 2] {
        [self.words - self.present_words, (self.depth - self.present) * self.column_bytes / 4]
    }

    /// Whether there are zeros.
    pub fn is_padded(&self) -> bool {
        self.depth > self.present
    }

    /// Groups of rows of a core in a tile.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP_ROWS)
    }

    /// Rows of whole groups.
    pub fn padded_rows(&self) -> usize {
        self.groups() * GROUP_ROWS
    }

    /// Bytes of a core's memory.
    pub fn core_bytes(&self, direct: bool) -> usize {
        let arriving = self.arriving() * self.arriving_bytes();
        let weights = 2 * self.weight_bytes();
        let decoded = if direct { 0 } else { GROUP_ROWS * self.depth * 2 };
        arriving + weights + decoded + self.converted_bytes() + self.sums * self.sums_bytes()
    }

    /// Bytes of the mem tile's memory.
    pub fn mem_tile_bytes(&self) -> usize {
        let columns = self.columns * self.depth * self.chunks * self.column_bytes;
        columns + CORES * 2 * (self.padded_rows() * self.words * 4 + self.sums_bytes())
    }

    /// Bytes of a block of columns as they arrive in a core.
    pub fn arriving_bytes(&self) -> usize {
        self.arithmetic.lanes() * self.depth * self.column_bytes
    }

    /// Buffers for arriving columns in a core.
    pub fn arriving(&self) -> usize {
        arriving(self.ahead, self.columns / self.arithmetic.lanes())
    }

    /// Bytes of a group of rows of weights as they lie in a core.
    pub fn weight_bytes(&self) -> usize {
        GROUP_ROWS * self.core_words * 4
    }

    /// Bytes of a core's tile of the result.
    pub fn sums_bytes(&self) -> usize {
        self.padded_rows() * self.columns * 4
    }

    /// Bytes of converted columns in a core.
    pub fn converted_bytes(&self) -> usize {
        self.chunk_bytes() * if self.resident { self.chunks } else { 1 }
    }

    /// Bytes of the converted columns of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.columns * self.depth * self.arithmetic.bytes()
    }

    /// Whether columns have to arrive in the cores for every tile.
    pub fn columns_every_time(&self) -> bool {
        !self.resident
    }

    /// Whether columns come with the weights of the first tile, chunk by chunk, instead of before them. That takes a transfer or
    /// two for each chunk, for which the first tile has to be a large part of all.
    pub fn columns_with_weights(&self) -> bool {
        self.columns_every_time() && self.wide && self.tiles <= 4 && self.chunks <= 16
    }

    fn fits(&self, direct: bool) -> bool {
        let runs = self.tiles * self.chunks;
        let column_runs = if self.columns_every_time() { runs } else { self.chunks };
        self.chunks <= MOST_CHUNKS
            && self.words <= MOST_STEPS
            && self.padded_rows() <= MOST_CORE_STEPS
            && self.padded_rows() * self.columns <= MOST_CORE_WORDS
            && GROUP_ROWS * self.core_words <= MOST_CORE_WORDS
            && self.arriving_bytes() / 4 <= MOST_CORE_WORDS
            && (!self.is_padded() || self.present * self.column_bytes / 4 <= MOST_STEPS)
            && (!self.is_padded() || self.depth / 8 <= MOST_CORE_STEPS)
            && (self.arithmetic == Arithmetic::Floats || self.depth / 8 <= MOST_CORE_STEPS)
            && self.padded_rows() * self.words <= MOST_MEM_WORDS
            && self.columns * self.depth <= MOST_MEM_WORDS
            && runs <= MOST_CHUNK_RUNS
            && runs * self.groups() <= MOST_RUNS
            && column_runs * (self.columns / self.arithmetic.lanes()) <= most_column_runs(self.arriving())
            && self.core_bytes(direct) <= ARENA_BYTES
            && self.mem_tile_bytes() <= MEM_TILE_BYTES
    }

    /// Cycles of a phase, about, with `columns` real columns: the slowest of what overlaps.
    fn cycles(&self, problem: &Problem, columns: usize) -> u64 {
        let steps = (self.depth / 8) as u64;
        let (lanes, blocks) = (self.arithmetic.lanes(), self.arithmetic.blocks(self.wide));
        let units = (self.columns / lanes / blocks) as u64;
        let step = self.arithmetic.step_cycles(self.wide);
        let groups = self.groups() as u64;
        // With few columns the weights' arrival hides most of what is around the loops.
        let few = problem.has_few_columns();
        let around = if few { FEW_GROUP_CYCLES } else { GROUP_CYCLES };
        let decode = match problem.weights.decode_cycles() {
            0 => 0,
            cycles => cycles * steps / 4 + if few { 0 } else { DECODE_CYCLES },
        };
        let compute =
            self.chunks as u64 * groups * (units * (steps * step + if self.wide { 110 } else { 50 }) + decode + around);
        // A core converts columns as they come, and computes afterwards.
        let convert = problem.right.convert_cycles() as u64;
        let converting = (self.columns / lanes) as u64 * (steps / 4 * convert + 60);
        let arriving = (self.columns * self.depth * self.column_bytes / 4) as u64;
        let arriving = self.chunks as u64 * converting.max(arriving);
        let converting = self.chunks as u64 * converting;
        // How long a core has no columns in a tile.
        let again = match (self.resident, self.ahead) {
            (true, _) => 0,
            (false, false) => arriving,
            (false, true) => arriving.saturating_sub(compute).max(converting),
        };
        // Words of the busiest streams: weights of two cores, results of four.
        let weights = (2 * self.rows * self.present_words * self.chunks) as u64;
        let results = (CORES * self.rows * columns) as u64;
        let emptying = if self.sums == 1 { (self.padded_rows() * self.columns) as u64 } else { 0 };
        let tile = (compute + again + emptying).max(weights).max(results);
        // And before the first: they come in front of the weights, or in turn with them.
        let chunk = arriving / self.chunks as u64;
        let first = match (self.resident, self.columns_with_weights()) {
            _ if few => 2 * arriving,
            (_, false) => arriving + chunk,
            (_, true) => chunk + (weights + arriving).saturating_sub(tile),
        };
        self.tiles as u64 * tile + first + results + PHASE_CYCLES
    }
}

impl Problem {
    /// All phases.
    ///
    /// # Errors
    /// Why there is no way to cut the product.
    pub fn phases(&self, array_columns: usize) -> Result<Vec<Phase>, String> {
        let (mut phases, mut first) = (Vec::new(), 0);
        while first < self.rows {
            let best = self.tiling(self.rows - first, array_columns).ok_or_else(|| self.too_long())?;
            let covered = best.rows * CORES * best.tiles * best.share;
            let last = (first + covered).min(self.rows);
            phases.extend(self.items(best, first..last, array_columns));
            first = last;
        }
        Ok(phases)
    }

    /// Cycles that phases take, about.
    pub fn cycles(&self, phases: &[Phase]) -> u64 {
        phases.iter().map(|phase| phase.tiling.cycles(self, self.columns.min(phase.tiling.columns))).sum()
    }

    /// What phases read of the weights: rows lie in a piece for each chunk.
    pub fn weight_traffic(phases: &[Phase]) -> Traffic {
        let of = |Phase { tiling, items }: &Phase| {
            let pieces = (items.len() * CORES * tiling.rows * tiling.tiles * tiling.chunks) as u64;
            Traffic { bytes: pieces * 4 * tiling.present_words as u64, pieces }
        };
        phases.iter().map(of).fold(Traffic::default(), Traffic::and)
    }

    /// Whether one block holds all columns.
    pub fn has_few_columns(&self) -> bool {
        self.columns <= self.weights.arithmetic().lanes()
    }

    fn too_long(&self) -> String {
        let lanes = self.weights.arithmetic().lanes();
        let bytes = lanes * self.right.bytes() * self.depth;
        let pieces = if self.depth.is_multiple_of(self.weights.unit()) {
            String::new()
        } else {
            format!(", and {} has no divisor for pieces that are small enough", self.depth)
        };
        format!(
            "rows of {} elements: {lanes} columns take {bytes} bytes of the mem tile's {MEM_TILE_BYTES}, beside which there have to be \
             weights and results{pieces}",
            self.depth
        )
    }

    /// The cheapest way for that many rows.
    fn tiling(&self, rows: usize, array_columns: usize) -> Option<Tiling> {
        let (direct, arithmetic) = (self.weights.is_direct(), self.weights.arithmetic());
        let lanes = arithmetic.lanes();
        let batches = self.matrices[0] * self.matrices[1];
        let cuts: Vec<Cut> = (1..=MOST_CHUNKS)
            .filter_map(|chunks| self.cut(chunks))
            .filter(|cut| cut.depth >= self.least_depth)
            .collect();
        let mut best: Option<(u64, Tiling)> = None;
        // Few columns are one block; of many, at least one of the last 16 is there.
        let suits = |columns: usize| {
            if self.has_few_columns() { columns == lanes } else { columns - 16.min(columns - 1) <= self.columns }
        };
        let widths: [(usize, bool); 7] =
            [(64, true), (48, true), (32, true), (16, true), (12, false), (8, false), (4, false)];
        let widths = widths.into_iter().filter(|(columns, _)| columns.is_multiple_of(lanes) && suits(*columns));
        let shares = (0..).map(|power| 1usize << power).take_while(|share| *share <= array_columns);
        for share in shares.filter(|share| array_columns.is_multiple_of(*share)) {
            for (columns, wide) in widths.clone() {
                let items = self.columns.div_ceil(columns) * batches * share;
                let phases = items.div_ceil(array_columns) as u64;
                for &Cut { chunks, depth, present, words, present_words, core_words } in &cuts {
                    for groups in 1..=MOST_CORE_STEPS / GROUP_ROWS {
                        for (sums, resident, ahead) in KEPT {
                            let of_core = rows.div_ceil(CORES * share);
                            let most = groups * GROUP_ROWS;
                            let blocks = columns / lanes;
                            let column_runs =
                                if resident { usize::MAX } else { most_column_runs(arriving(ahead, blocks)) / blocks };
                            let limits = [MOST_CHUNK_RUNS, MOST_RUNS / groups, column_runs];
                            let limit = limits.map(|runs| (runs / chunks).max(1)).into_iter().min().unwrap_or(1);
                            let tiles = of_core.div_ceil(most).min(limit);
                            let of_tiles = of_core.min(most * tiles);
                            // Several tiles are all whole: rows that are left over are another phase's.
                            let rows_of_core = if tiles == 1 || CORES * tiles * of_tiles.div_ceil(tiles) <= self.rows {
                                of_tiles.div_ceil(tiles)
                            } else {
                                of_tiles.min(self.rows / CORES) / tiles
                            };
                            if rows_of_core == 0 {
                                continue;
                            }
                            let tiling = Tiling {
                                arithmetic,
                                columns,
                                wide,
                                chunks,
                                depth,
                                present,
                                words,
                                present_words,
                                core_words,
                                column_bytes: self.right.bytes(),
                                rows: rows_of_core,
                                tiles,
                                resident,
                                ahead,
                                sums,
                                share,
                            };
                            if !tiling.fits(direct) || (ahead && self.has_few_columns()) {
                                continue;
                            }
                            // Rows that are left over need as much again, in proportion.
                            let covered = (tiling.rows * CORES * tiles * share).min(rows) as u64;
                            let cycles = tiling.cycles(self, self.columns.min(columns)) * phases;
                            let cycles = cycles.saturating_mul(rows as u64) / covered.max(1);
                            if best.is_none_or(|(least, _)| cycles < least) {
                                best = Some((cycles, tiling));
                            }
                        }
                    }
                }
            }
        }
        best.map(|(_, tiling)| tiling)
    }

    /// Pieces of `k`: whole units; or, if these do not make up the rows, pieces of whole words that zeros follow.
    fn cut(&self, chunks: usize) -> Option<Cut> {
        let unit = self.weights.unit();
        let units = self.depth / unit;
        if self.depth.is_multiple_of(unit) {
            let units = units.is_multiple_of(chunks).then_some(units / chunks).filter(|units| *units > 0)?;
            let words = units * self.weights.unit_words();
            let core_words = units * self.weights.core_words();
            let depth = units * unit;
            return Some(Cut { chunks, depth, present: depth, words, present_words: words, core_words });
        }
        let granule = self.granule()?;
        let present = self.depth.is_multiple_of(chunks).then_some(self.depth / chunks)?;
        let depth = present.is_multiple_of(granule).then_some(present.next_multiple_of(unit))?;
        let words = depth / unit * self.weights.unit_words();
        let present_words = present * self.weights.unit_words() / unit;
        Some(Cut { chunks, depth, present, words, present_words, core_words: words })
    }

    /// The phases for a range of rows that one tiling covers.
    fn items(&self, tiling: Tiling, rows: std::ops::Range<usize>, array_columns: usize) -> Vec<Phase> {
        let column_rows = tiling.rows * CORES * tiling.tiles;
        let mut phases: Vec<Phase> = Vec::new();
        let mut slots = Vec::new();
        for outer in 0..self.matrices[1] {
            for inner in 0..self.matrices[0] {
                for first_column in (0..self.columns).step_by(tiling.columns) {
                    for part in 0..tiling.share {
                        let first_row = rows.start + part * column_rows;
                        if first_row < rows.end || part == 0 {
                            slots.push(([inner, outer], first_column, first_row));
                        }
                    }
                }
            }
        }
        for (index, (matrix, first_column, first_row)) in slots.into_iter().enumerate() {
            if index.is_multiple_of(array_columns) {
                phases.push(Phase { tiling, items: Vec::new() });
            }
            let columns = tiling.columns.min(self.columns - first_column);
            // A column that would have fewer rows than the others computes some of its neighbour's again: both give the same.
            let (first_row, partial) = if self.rows >= column_rows {
                (first_row.min(self.rows - column_rows), None)
            } else {
                let left = self.rows - first_row;
                let partial = std::array::from_fn(|core| left.saturating_sub(core * tiling.rows).min(tiling.rows));
                (first_row, Some(partial))
            };
            if let Some(phase) = phases.last_mut() {
                phase.items.push(Item { matrix, first_column, columns, first_row, partial });
            }
        }
        phases
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
