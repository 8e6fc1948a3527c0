//! The instruction stream of a product.

use super::memory::{BLOCK, RESULT_BLOCK};
use super::parameters::Parameters;
use super::plan::Column;
use super::problem::{BATCH_ROWS, Problem};
use crate::array::{ArrayError, Dimension, Region, Rings, RingsColumn};

/// Positions of the arguments.
const WEIGHT_ARGUMENT: u16 = 0;
const COLUMN_ARGUMENT: u16 = 1;
const RESULT_ARGUMENT: u16 = 2;

/// The stream in which the columns of the array do what is planned for them.
pub(super) fn stream(rings: &Rings, problem: &Problem, columns: &[Column]) -> Result<Vec<u8>, ArrayError> {
    rings.dispatch(&columns.iter().map(|column| work(problem, column)).collect::<Result<Vec<_>, _>>()?)
}

fn work(problem: &Problem, column: &Column) -> Result<RingsColumn, ArrayError> {
    let bytes = (4 * problem.depth * problem.columns) as u64;
    let operand = |turn| Region::linear(COLUMN_ARGUMENT, bytes * turn as u64, bytes);
    let jobs = || (0..problem.turns).flat_map(|turn| column.jobs.iter().map(move |job| (turn, *job)));
    Ok(RingsColumn {
        parameters: parameters(problem, column).words()?,
        weights: jobs().map(|(_, job)| weights(problem, column, job)).collect(),
        operand: jobs().map(|(turn, _)| operand(turn)).collect(),
        result: jobs().map(|(turn, job)| result(problem, column, turn, job)).collect(),
    })
}

fn parameters(problem: &Problem, column: &Column) -> Parameters {
    Parameters {
        batches: column.batches as u32,
        weights: problem.weights as u32,
        units: problem.units() as u32,
        groups: problem.groups() as u32,
        portions: (problem.units() / problem.groups()) as u32,
        phases: problem.phases() as u32,
        skip: column.skip as u32,
        blocks: column.blocks as u32,
        columns: problem.columns as u32,
        depth: (problem.depth / 32) as u32,
        portion_bytes: (problem.groups() * problem.weights.group_bytes() as usize) as u32,
        repeated: problem.repeated() as u32,
        step: (BATCH_ROWS % problem.units() * problem.weights.unit_bytes() as usize) as u32,
        portion_phases: (problem.groups() % problem.phases()) as u32,
    }
}

/// Blocks of both cores in turn.
fn weights(problem: &Problem, column: &Column, [first, second]: [usize; 2]) -> Region {
    let (row_bytes, block) = (problem.row_bytes(), BLOCK as usize / 4);
    Region {
        argument: WEIGHT_ARGUMENT,
        offset: (first * row_bytes - column.skip) as u64,
        dimensions: dimensions([(block, 1), (2, (second - first) * row_bytes / 4), (column.blocks, block)]),
    }
}

/// Results of both cores in turn: of a batch in all columns, then of the next.
fn result(problem: &Problem, column: &Column, turn: usize, [first, second]: [usize; 2]) -> Region {
    Region {
        argument: RESULT_ARGUMENT,
        offset: 4 * (first + turn * problem.columns * problem.rows) as u64,
        dimensions: dimensions([
            (RESULT_BLOCK as usize / 4, 1),
            (2, second - first),
            (problem.columns, problem.rows),
            (column.batches, BATCH_ROWS),
        ]),
    }
}

fn dimensions<const N: usize>(sizes: [(usize, usize); N]) -> Vec<Dimension> {
    sizes.into_iter().map(|(size, step)| Dimension::new(size as u64, step as u64)).collect()
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
