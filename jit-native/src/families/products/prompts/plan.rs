//! How a product is cut: tiles of the result, chunks of `k`, and what is computed between two waits.
//!
//! A core computes `rows` x `columns` of the result at a time, all cores of the array a *pass*. `k` is cut into chunks of 128 or 64. A phase has
//! passes of one size; rows and columns that are left over are a phase of their own, with smaller tiles. Cores whose tile would go beyond the last
//! row or column compute some that others have, too: both give the same.

use super::super::memory::{ARENA_BYTES, MEM_TILE_BYTES};
use super::super::problem::Problem;
use super::super::product::GROUP_ROWS;
use super::super::weights::Weights;
use super::matrix::Matrix;
use super::multiply::STEPS;
use aie_hal::format::extent::Traffic;
use std::cmp::Reverse;

/// Elements of half a chunk, which is what is converted at once; chunks can also have one half only.
pub(super) const HALF: usize = 8 * STEPS;
/// Columns of a unit of the loop.
pub(super) const UNIT: usize = 16;
/// The most rows and columns of a core.
const MOST_ROWS: usize = 160;
const MOST_COLUMNS: usize = 128;
/// Tasks of a channel in a phase, and runs of a task.
const MOST_TASKS: usize = 4;
const TASK_RUNS: usize = 256;
/// Bytes of a core in front of the sums, so that what follows is aligned.
const ALIGNED: usize = 256;
/// Bytes of a piece of memory that are worth their cost.
const PIECE_BYTES: usize = 128;
/// Starting and ending a phase.
const PHASE_CYCLES: usize = 4000;

/// How a phase is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    pub matrix: Matrix,
    /// Of a core.
    pub rows: usize,
    pub columns: usize,
    /// Columns that arrive in a core at once.
    pub piece: usize,
    /// Elements of a chunk.
    pub chunk: usize,
    /// Chunks of a row.
    pub chunks: usize,
    /// Chunks that arrive in a mem tile at once.
    pub span: usize,
    /// Buffers for the result of each core in the mem tile.
    pub results: usize,
}

/// Which rows, or columns, the cores of a phase have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub first: usize,
    /// Of a core.
    pub tile: usize,
    pub passes: usize,
    /// Of the product.
    pub all: usize,
    /// Cores along this side.
    pub cores: usize,
}

impl Side {
    /// The first one of a core in the first pass.
    pub fn start(&self, core: usize) -> usize {
        (self.first + core * self.tile).min(self.all - self.tile)
    }

    /// From one pass to the next.
    pub fn step(&self) -> usize {
        self.cores * self.tile
    }

    /// Whether no core computes what another has.
    pub fn is_whole(&self) -> bool {
        self.first + self.passes * self.step() <= self.all
    }

    /// The sides of all phases, with tiles of this size and passes that are left over.
    fn of(all: usize, cores: usize, tile: usize) -> Vec<Self> {
        let passes = all / (cores * tile);
        let first = passes * cores * tile;
        let mut sides = Vec::new();
        if passes > 0 {
            sides.push(Self { first: 0, tile, passes, all, cores });
        }
        if first < all {
            let tile = (all - first).div_ceil(cores).next_multiple_of(UNIT);
            sides.push(Self { first, tile, passes: 1, all, cores });
        }
        sides
    }
}

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub tiling: Tiling,
    pub rows: Side,
    pub columns: Side,
}

impl Tiling {
    /// Runs of a channel in a phase: those of the sums' buffers, of which there is one for each group, end with the last one.
    fn most_runs(&self) -> usize {
        let groups = self.groups();
        MOST_TASKS * (TASK_RUNS / groups * groups)
    }

    fn new(problem: &Problem, matrix: Matrix, [chunk, rows, columns]: [usize; 3]) -> Option<Self> {
        let chunks = problem.depth.is_multiple_of(chunk).then_some(problem.depth / chunk)?;
        let of_span = |span: usize, results| {
            // Small ones leave room for larger tiles.
            let with = |piece| Self { matrix, rows, columns, piece, chunk, chunks, span, results };
            matrix.pieces(columns).into_iter().map(with).find(|tiling| tiling.fits(problem))
        };
        let spans = (1..=chunks).filter(|span| chunks.is_multiple_of(*span));
        let bytes = |span: usize| span * chunk * problem.weights.unit_words() * 4 / problem.weights.unit();
        // Two buffers for results before longer spans, unless these would be short.
        let ways = spans.flat_map(|span| [1, 2].map(|results| (span, results)));
        let best = ways.filter_map(|(span, results)| of_span(span, results));
        best.max_by_key(|tiling| (bytes(tiling.span).min(PIECE_BYTES), tiling.results, Reverse(tiling.span)))
    }

    /// Words of a row of weights in a chunk.
    pub fn row_words(&self, weights: Weights) -> usize {
        self.chunk / weights.unit() * weights.unit_words()
    }

    pub fn groups(&self) -> usize {
        self.rows / GROUP_ROWS
    }

    /// Pieces in which the columns of a chunk arrive.
    pub fn pieces(&self) -> usize {
        self.columns / self.piece * self.chunk / self.matrix.piece_elements()
    }

    pub fn spans(&self) -> usize {
        self.chunks / self.span
    }

    /// Bytes of a group of weights in a core.
    pub fn weight_bytes(&self, problem: &Problem) -> usize {
        GROUP_ROWS * 4 * self.row_words(problem.weights)
    }

    /// Bytes of a decoded group, and of its exponents.
    pub fn decoded_bytes(&self, problem: &Problem) -> [usize; 2] {
        self.matrix.bytes(if self.matrix.is_direct(problem.weights) { 0 } else { GROUP_ROWS * self.chunk })
    }

    /// Bytes of a piece of columns as they arrive in a core.
    pub fn arriving_bytes(&self, problem: &Problem) -> usize {
        self.piece * self.matrix.piece_elements() * problem.right.bytes()
    }

    /// Bytes of the converted columns of a chunk, and of their exponents.
    pub fn converted_bytes(&self) -> [usize; 2] {
        self.matrix.bytes(self.columns * self.chunk)
    }

    /// Bytes of the sums of a group, and of the result of a core.
    pub fn group_bytes(&self) -> usize {
        GROUP_ROWS * self.columns * 4
    }

    pub fn sums_bytes(&self) -> usize {
        self.rows * self.columns * 4
    }

    /// Bytes of the operands of a span in a mem tile.
    pub fn mem_weights(&self, problem: &Problem) -> usize {
        self.rows * self.span * 4 * self.row_words(problem.weights)
    }

    pub fn mem_columns(&self, problem: &Problem) -> usize {
        self.columns * self.span * self.chunk * problem.right.bytes()
    }

    /// Bytes of a core's memory behind sums and converted columns.
    pub fn core_rest(&self, problem: &Problem) -> usize {
        let decoded: usize = self.decoded_bytes(problem).into_iter().sum();
        decoded + 2 * (self.weight_bytes(problem) + self.arriving_bytes(problem))
    }

    fn fits(&self, problem: &Problem) -> bool {
        let converted: usize = self.converted_bytes().into_iter().sum();
        let core = self.sums_bytes() + ALIGNED + 2 * converted + self.core_rest(problem);
        let mem = 2 * (self.mem_weights(problem) + self.mem_columns(problem)) + self.results * 4 * self.sums_bytes();
        core <= ARENA_BYTES
            && mem <= MEM_TILE_BYTES
            && self.chunks * self.groups().max(self.pieces()) <= self.most_runs()
    }

    /// Cycles of a pass, about: what the cores take, or what their channels bring.
    fn cycles(&self, problem: &Problem) -> usize {
        let halves = self.chunk / HALF;
        let around = self.matrix.cycles();
        let decode = match self.matrix.decode_cycles(problem.weights) {
            0 => 0,
            cycles => halves * (cycles * HALF / 32 + around.decode),
        };
        let group = self.columns / UNIT * (halves * around.unit + around.sums) + around.group + decode;
        let blocks = self.columns / 4 * halves;
        let columns = self.matrix.convert_cycles(problem.right) * blocks * HALF / 32 + self.pieces() * around.convert;
        let arriving = self.columns * self.chunk * problem.right.bytes() / 4;
        let words = [arriving, self.groups() * self.weight_bytes(problem) / 4];
        let chunk = words.into_iter().fold(self.groups() * group + columns, usize::max);
        (self.chunks * chunk).max(2 * self.rows * self.columns)
    }
}

impl Phase {
    fn passes(&self) -> usize {
        self.rows.passes * self.columns.passes
    }

    /// Cycles, about.
    pub fn cycles(&self, problem: &Problem) -> u64 {
        let Tiling { rows, columns, .. } = self.tiling;
        // Until the first words are in the cores, and from the last ones to memory.
        let first = self.tiling.mem_weights(problem).max(self.tiling.mem_columns(problem)) / 4;
        let around = first + 2 * rows * columns + PHASE_CYCLES;
        (self.passes() * self.tiling.cycles(problem) + around) as u64
    }

    /// What the shims read.
    pub fn traffic(&self, problem: &Problem) -> Traffic {
        let Tiling { rows, columns, span, .. } = self.tiling;
        let spans = (self.passes() * self.tiling.spans()) as u64;
        let (rows, columns) = (spans * (self.rows.cores * rows) as u64, spans * (self.columns.cores * columns) as u64);
        let words = (span * self.tiling.row_words(problem.weights)) as u64;
        let of_column = (span * self.tiling.chunk * problem.right.bytes()) as u64;
        Traffic { bytes: rows * 4 * words + columns * of_column, pieces: rows + columns }
    }
}

/// What keeps a product from this family, if anything does.
pub(super) fn refusal(problem: &Problem) -> Option<String> {
    let Problem { weights, right, depth, rows, columns, .. } = *problem;
    let bytes = right.bytes();
    if !weights.is_prompt() {
        let types = Weights::ALL.into_iter().filter(|weights| weights.is_prompt());
        let types: Vec<&str> = types.map(|weights| weights.dtype().name()).collect();
        return Some(format!("weights of {}; possible: {}", weights.dtype(), types.join(", ")));
    }
    if !depth.is_multiple_of(HALF) {
        return Some(format!("rows of {depth} elements; possible: multiples of {HALF}"));
    }
    if rows < UNIT || columns < UNIT {
        return Some(format!("{rows} rows and {columns} columns; possible: {UNIT} of each, and more"));
    }
    if problem.matrices != [1, 1] {
        return Some(format!("{:?} matrices of columns; possible: one", problem.matrices));
    }
    (problem.column_strides[0] != bytes).then(|| "gaps between the elements of a column; possible: none".into())
}

/// All phases, on an array of so many columns and rows of cores.
///
/// # Errors
/// Why there is no way to cut the product.
pub(super) fn phases(
    problem: &Problem,
    matrix: Matrix,
    [cores_along_columns, cores_along_rows]: [usize; 2],
) -> Result<Vec<Phase>, String> {
    if let Some(reason) = refusal(problem) {
        return Err(reason);
    }
    let sizes = |most: usize| (UNIT..=most).step_by(UNIT);
    let tiles = sizes(MOST_COLUMNS).flat_map(|columns| sizes(MOST_ROWS).map(move |rows| (rows, columns)));
    let tiles = tiles.flat_map(|(rows, columns)| [2 * HALF, HALF].map(|chunk| (chunk, rows, columns)));
    let ways = tiles.filter_map(|(chunk, rows, columns)| {
        let rows = Side::of(problem.rows, cores_along_rows, rows);
        let columns = Side::of(problem.columns, cores_along_columns, columns);
        // A core has nothing to compute twice where there is less than a tile.
        if rows.iter().chain(&columns).any(|side| side.tile > side.all) {
            return None;
        }
        let mut phases = Vec::new();
        for rows in &rows {
            for columns in &columns {
                let tiling = Tiling::new(problem, matrix, [chunk, rows.tile, columns.tile])?;
                phases.push(Phase { tiling, rows: *rows, columns: *columns });
            }
        }
        let cycles: u64 = phases.iter().map(|phase| phase.cycles(problem)).sum();
        Some((cycles, phases))
    });
    let best = ways.min_by_key(|(cycles, _)| *cycles);
    let (_, whole) = best.ok_or_else(|| format!("rows of {} elements are too long", problem.depth))?;
    Ok(whole.into_iter().flat_map(split).collect())
}

/// Cuts a phase into some whose channels have as few runs as their queues take.
fn split(phase: Phase) -> Vec<Phase> {
    let Phase { tiling, rows, columns } = phase;
    let runs = tiling.chunks * tiling.groups().max(tiling.pieces());
    let most = (tiling.most_runs() / runs).max(1);
    let of_rows = rows.passes.min(most);
    let of_columns = columns.passes.min((most / of_rows).max(1));
    let cut = |side: Side, most: usize| {
        let starts = (0..side.passes).step_by(most);
        starts.map(move |done| Side {
            first: side.first + done * side.step(),
            passes: most.min(side.passes - done),
            ..side
        })
    };
    let of_rows: Vec<Side> = cut(rows, of_rows).collect();
    cut(columns, of_columns)
        .flat_map(|columns| of_rows.iter().map(move |rows| Phase { tiling, rows: *rows, columns }))
        .collect()
}
