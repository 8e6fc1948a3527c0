//! The instruction stream of a product.

use super::super::dispatch::{Arena, dimensions};
use super::super::memory::ARENA;
use super::super::parameters::Parameters;
use super::super::problem::{Problem, Right};
use super::super::product::GROUP_ROWS;
use super::machine::Machine;
use super::matrix::Matrix;
use super::multiply::STEPS;
use super::plan::{HALF, Phase, Tiling, UNIT};
use crate::array::{ArrayError, BroadcastColumn, Dispatch, OWN_MEMORY, Part, ProductCore, Region, Ring};
use aie_isa::BANK_BYTES;
use std::ops::Range;

/// Positions of the arguments.
const WEIGHT_ARGUMENT: u16 = 0;
const COLUMN_ARGUMENT: u16 = 1;
const RESULT_ARGUMENT: u16 = 2;

/// One word of each row of a group.
const ROW_WORD_BYTES: usize = 4 * GROUP_ROWS;
const STEP_BYTES: usize = 256;
/// A core's memory, and where the last of its four banks begins.
const MEMORY: u32 = 0x1_0000;
const LAST_BANK: u32 = 0xC000;

/// The stream for all phases.
pub(super) fn stream(machine: &Machine, problem: &Problem, phases: &[Phase]) -> Result<Vec<u8>, ArrayError> {
    let mut dispatch = machine.broadcast.configured().dispatch();
    for phase in phases {
        let work = Work { problem, phase: *phase, tiling: phase.tiling };
        for (number, column) in machine.broadcast.columns().iter().enumerate() {
            work.column(&mut dispatch, number, column)?;
        }
        dispatch.end_phase()?;
    }
    dispatch.finish()
}

/// A phase of a problem.
struct Work<'a> {
    problem: &'a Problem,
    phase: Phase,
    tiling: Tiling,
}

/// The rings of a core, and where the rest of its memory is.
struct CoreMemory {
    weights: Ring,
    arriving: Ring,
    sums: Ring,
    columns: u32,
    /// As the core sees it; 0 if there are none.
    decoded: u32,
    /// The same of columns and of decoded weights.
    exponents: [u32; 2],
}

impl Work<'_> {
    fn passes(&self) -> usize {
        self.phase.rows.passes * self.phase.columns.passes
    }

    /// A column of the array, and the weights of the row of cores with its number.
    fn column(&self, dispatch: &mut Dispatch<'_>, number: usize, column: &BroadcastColumn) -> Result<(), ArrayError> {
        let Self { problem, tiling, .. } = self;
        let mut arena = Arena(0);
        let operand = arena.ring(column.operand.0, tiling.mem_columns(problem), 2);
        let weights = arena.ring(column.weights.0, tiling.mem_weights(problem), 2);
        if number < self.phase.rows.cores {
            self.weights(dispatch, number, column, weights)?;
        }
        self.columns(dispatch, number, column, operand)?;
        let mut parts = Vec::new();
        for (core, (ring, arrival)) in column.cores.iter().zip(&column.results) {
            self.core(dispatch, core)?;
            // Groups of rows, each column by column, become columns of all rows.
            let ring = arena.ring(*ring, tiling.sums_bytes(), tiling.results);
            let order = dimensions([(GROUP_ROWS, 1), (tiling.columns, tiling.rows), (tiling.groups(), GROUP_ROWS)]);
            dispatch.run(*arrival, &[Part::strided(ring, 0, &order)], self.passes() as u32)?;
            parts.push(Part::linear(ring, (tiling.rows * tiling.columns) as u64));
        }
        for (departure, [from, _]) in column.departures.iter().enumerate() {
            dispatch.run(*from, &parts[column.departing(departure)], self.passes() as u32)?;
        }
        self.results(dispatch, number, column)
    }

    fn weights(
        &self,
        dispatch: &mut Dispatch<'_>,
        row: usize,
        column: &BroadcastColumn,
        ring: Ring,
    ) -> Result<(), ArrayError> {
        let Self { problem, tiling, phase } = self;
        let (rows, stride) = (phase.rows, problem.weight_strides[0]);
        let words = tiling.row_words(problem.weights);
        let of_span = tiling.span * words;
        let [from, to] = column.weights_from;
        let region = Region {
            argument: WEIGHT_ARGUMENT,
            offset: (rows.start(row) * stride) as u64,
            dimensions: dimensions([
                (of_span, 1),
                (tiling.rows, stride / 4),
                (tiling.spans(), of_span),
                (rows.passes, rows.step() * stride / 4),
                (phase.columns.passes, 0),
            ]),
        };
        dispatch.transfer(from, &region)?;
        let runs = (self.passes() * tiling.spans()) as u32;
        dispatch.run(to, &[Part::linear(ring, (tiling.rows * of_span) as u64)], runs)?;
        let order = dimensions([(words, 1), (tiling.rows, of_span), (tiling.span, words)]);
        dispatch.run(column.weights.1, &[Part::strided(ring, 0, &order)], runs)?;
        Ok(())
    }

    fn columns(
        &self,
        dispatch: &mut Dispatch<'_>,
        number: usize,
        column: &BroadcastColumn,
        ring: Ring,
    ) -> Result<(), ArrayError> {
        let Self { problem, tiling, phase } = self;
        let (columns, stride) = (phase.columns, problem.column_strides[1]);
        // Pieces of chunks follow each other.
        let words = tiling.matrix.piece_elements() * problem.right.bytes() / 4;
        let pieces = tiling.span * tiling.chunk / tiling.matrix.piece_elements();
        let of_span = pieces * words;
        let [from, to] = column.operand_from;
        let region = Region {
            argument: COLUMN_ARGUMENT,
            offset: (columns.start(number) * stride) as u64,
            dimensions: dimensions([
                (of_span, 1),
                (tiling.columns, stride / 4),
                (tiling.spans(), of_span),
                (phase.rows.passes, 0),
                (columns.passes, columns.step() * stride / 4),
            ]),
        };
        dispatch.transfer(from, &region)?;
        let runs = (self.passes() * tiling.spans()) as u32;
        let all = tiling.columns * pieces;
        let (arrives, sends) = match (tiling.matrix, problem.form().interleaved, problem.right) {
            (Matrix::Floats, ..) => {
                let sends = dimensions([(words, 1), (tiling.columns, of_span), (pieces, words)]);
                (Part::linear(ring, (all * words) as u64), Part::strided(ring, 0, &sends))
            }
            (Matrix::Blocks, interleaved, right) => {
                let arrives = dimensions([(words, 1), (pieces, tiling.columns * words), (tiling.columns, words)]);
                let sends = match (interleaved, right) {
                    (false, _) => dimensions([(all * words, 1)]),
                    // Elements that are 16 apart in turn, or two and two of them.
                    (true, Right::F32) => dimensions([(2, 16), (16, 1), (all, words)]),
                    (true, _) => dimensions([(2, 1), (2, 8), (4, 2), (all, words)]),
                };
                (Part::strided(ring, 0, &arrives), Part::strided(ring, 0, &sends))
            }
        };
        dispatch.run(to, &[arrives], runs)?;
        dispatch.run(column.operand.1, &[sends], runs)?;
        Ok(())
    }

    /// A core's channels and parameters.
    fn core(&self, dispatch: &mut Dispatch<'_>, core: &ProductCore) -> Result<(), ArrayError> {
        let Self { problem, tiling, .. } = self;
        let memory = match tiling.matrix {
            Matrix::Floats => self.memory(core),
            Matrix::Blocks => self.memory_of_blocks(core),
        };
        let chunks = self.passes() * tiling.chunks;
        let (words, together) = (tiling.row_words(problem.weights), problem.weights.words_together());
        // Rows as they come; the words of all rows next to each other.
        let order = dimensions([(together, 1), (words / together, GROUP_ROWS * together), (GROUP_ROWS, together)]);
        let weights = Part::strided(memory.weights, 0, &order);
        dispatch.run(core.weights.1, &[weights], (chunks * tiling.groups()) as u32)?;
        let piece = match tiling.matrix {
            Matrix::Floats => Part::linear(memory.arriving, (tiling.arriving_bytes(problem) / 4) as u64),
            Matrix::Blocks => {
                // 8 `k` of all columns, or twice four.
                let form = problem.form();
                let words =
                    if form.interleaved && problem.right == Right::Bf16 { 2 } else { 2 * problem.right.bytes() };
                let steps = tiling.matrix.piece_elements() * problem.right.bytes() / 4 / words;
                let order = [(words, 1), (steps, tiling.columns * words), (tiling.columns, words)];
                Part::strided(memory.arriving, 0, &dimensions(order))
            }
        };
        dispatch.run(core.operand.1, &[piece], (chunks * tiling.pieces()) as u32)?;
        let block = tiling.matrix.block();
        let order = dimensions([(GROUP_ROWS, block), (block, 1), (tiling.columns / block, block * GROUP_ROWS)]);
        let sums = Part::strided(memory.sums, 0, &order);
        dispatch.run(core.result.1, &[sums], (self.passes() * tiling.groups()) as u32)?;
        dispatch.start(core.tile, &self.parameters(&memory).words())?;
        Ok(())
    }

    fn memory(&self, core: &ProductCore) -> CoreMemory {
        let Self { problem, tiling, .. } = self;
        // A core finds the end of a unit of converted columns by its address.
        let mut arena = Arena(ARENA.next_multiple_of(STEP_BYTES as u32));
        // In front, since what is behind them is loaded for nothing.
        let sums = arena.ring(core.result.0, tiling.group_bytes(), tiling.groups());
        let columns = arena.take(2 * tiling.converted_bytes()[0]);
        // In a bank of their own, if there is room: a core loads weights and columns in the same cycle.
        let rest = tiling.core_rest(problem);
        if arena.0 <= LAST_BANK && rest as u32 <= MEMORY - LAST_BANK {
            arena.0 = LAST_BANK;
        }
        let [decoded, _] = tiling.decoded_bytes(problem);
        CoreMemory {
            sums,
            columns,
            decoded: if decoded > 0 { OWN_MEMORY + arena.take(decoded) } else { 0 },
            weights: arena.ring(core.weights.0, tiling.weight_bytes(problem), 2),
            arriving: arena.ring(core.operand.0, tiling.arriving_bytes(problem), 2),
            exponents: [0; 2],
        }
    }

    /// Mantissas at the end, exponents in another bank, and in none of the sums' if there is room: in a cycle a core loads one of each, or stores
    /// sums.
    fn memory_of_blocks(&self, core: &ProductCore) -> CoreMemory {
        let Self { problem, tiling, .. } = self;
        let [[columns, of_columns], [decoded, of_decoded]] =
            [tiling.converted_bytes().map(|bytes| 2 * bytes), tiling.decoded_bytes(problem)];
        let columns_at = MEMORY - (columns + decoded) as u32;
        let mut arena = Arena(ARENA.next_multiple_of(STEP_BYTES as u32));
        let sums = arena.ring(core.result.0, tiling.group_bytes(), tiling.groups());
        let exponents = |arena: &mut Arena| [of_columns, of_decoded].map(|bytes| OWN_MEMORY + arena.take(bytes));
        let last = arena.0 as usize + tiling.core_rest(problem) - decoded + of_columns;
        let is_last = last as u32 / BANK_BYTES < columns_at / BANK_BYTES;
        let first = if is_last { [0; 2] } else { exponents(&mut arena) };
        let weights = arena.ring(core.weights.0, tiling.weight_bytes(problem), 2);
        let arriving = arena.ring(core.operand.0, tiling.arriving_bytes(problem), 2);
        CoreMemory {
            sums,
            columns: columns_at,
            decoded: OWN_MEMORY + MEMORY - decoded as u32,
            weights,
            arriving,
            exponents: if is_last { exponents(&mut arena) } else { first },
        }
    }

    fn parameters(&self, memory: &CoreMemory) -> Parameters {
        let Self { problem, tiling, .. } = self;
        let weights = problem.weights;
        let first = |ring: &Ring| OWN_MEMORY + ring.address;
        let layout = weights.layout();
        let pieces = tiling.pieces();
        Parameters {
            tiles: self.passes() as u32,
            chunks: tiling.chunks as u32,
            groups: tiling.groups() as u32,
            units: (tiling.columns / UNIT) as u32,
            steps: (tiling.chunk / 8) as u32,
            weights: weights.number(),
            pairs: if weights.comes_in_pairs() { (tiling.chunk / weights.unit()) as u32 } else { 0 },
            scale_words: layout.map_or(0, |layout| tiling.chunk / usize::from(layout.elements)) as u32,
            scales_at: layout.map_or(0, |layout| usize::from(layout.scales) * ROW_WORD_BYTES) as u32,
            scales_period: layout.map_or(0, |layout| usize::from(layout.period) * ROW_WORD_BYTES) as u32,
            form: problem.form().number(),
            blocks_per_unit: (tiling.piece / tiling.matrix.block()) as u32,
            unit_bytes: (STEPS * STEP_BYTES) as u32,
            columns: OWN_MEMORY + memory.columns,
            chunk_bytes: tiling.converted_bytes()[0] as u32,
            decoded: memory.decoded,
            chunk_halves: (tiling.chunk / HALF) as u32,
            half_bytes: (tiling.columns * HALF * 2) as u32,
            half_weights: (tiling.weight_bytes(problem) * HALF / tiling.chunk) as u32,
            weights_first: first(&memory.weights),
            weights_both: 2 * first(&memory.weights) + memory.weights.stride,
            arriving_first: first(&memory.arriving),
            arriving_stride: memory.arriving.stride,
            arriving_end: first(&memory.arriving) + 2 * memory.arriving.stride,
            sums_first: first(&memory.sums),
            all_chunks: (self.passes() * tiling.chunks) as u32,
            pieces: pieces as u32,
            share: pieces.div_ceil(tiling.groups()) as u32,
            group_bytes: tiling.group_bytes() as u32,
            exponents: memory.exponents[0],
            decoded_exponents: memory.exponents[1],
            ..Parameters::default()
        }
    }

    fn results(&self, dispatch: &mut Dispatch<'_>, number: usize, column: &BroadcastColumn) -> Result<(), ArrayError> {
        let Self { problem, tiling, phase } = self;
        let (rows, columns, stride) = (phase.rows, phase.columns, problem.result_strides[0]);
        let region = |cores: Range<usize>, pass: usize, passes: usize| Region {
            argument: RESULT_ARGUMENT,
            offset: ((columns.start(number) + pass * columns.step()) * stride + 4 * rows.start(cores.start)) as u64,
            dimensions: dimensions([
                (tiling.rows, 1),
                (tiling.columns, stride / 4),
                (cores.len(), tiling.rows),
                (rows.passes, rows.step()),
                (passes, columns.step() * stride / 4),
            ]),
        };
        for (departure, [_, to]) in column.departures.iter().enumerate() {
            let cores = column.departing(departure);
            if rows.is_whole() {
                dispatch.transfer(*to, &region(cores, 0, columns.passes))?;
                continue;
            }
            // There is one pass of rows, in which those of some cores overlap.
            for pass in 0..columns.passes {
                for row in cores.clone() {
                    dispatch.transfer(*to, &region(row..row + 1, pass, 1))?;
                }
            }
        }
        Ok(())
    }
}
