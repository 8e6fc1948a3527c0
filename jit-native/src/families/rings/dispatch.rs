//! The instruction stream of a product.

use super::memory::{BLOCK, RESULT_BLOCK};
use super::parameters::Parameters;
use super::plan::{Column, Plan};
use super::problem::{BATCH_ROWS, Problem};
use crate::array::{ArrayError, Dimension, Region, Rings, RingsColumn, RingsWork};

/// Positions of the arguments.
const WEIGHT_ARGUMENT: u16 = 0;
const COLUMN_ARGUMENT: u16 = 1;
const RESULT_ARGUMENT: u16 = 2;

/// The stream in which the columns of the array do what is planned for them.
pub(super) fn stream(rings: &Rings, problem: &Problem, plan: &Plan) -> Result<Vec<u8>, ArrayError> {
    let bytes = (4 * problem.depth * problem.columns) as u64;
    let operand = |turn| Region::linear(COLUMN_ARGUMENT, bytes * turn as u64, bytes);
    let jobs = || (0..problem.turns).flat_map(|turn| plan.jobs.iter().map(move |first| (turn, *first)));
    let column = |(number, column): (usize, &Column)| {
        Ok(RingsColumn {
            parameters: parameters(problem, plan, column).words()?,
            weights: jobs().map(|(_, first)| weights(problem, plan, column, first + number * plan.steps[1])).collect(),
        })
    };
    rings.dispatch(&RingsWork {
        columns: plan.columns.iter().enumerate().map(column).collect::<Result<_, ArrayError>>()?,
        operand: jobs().map(|(turn, _)| operand(turn)).collect(),
        result: jobs().map(|(turn, first)| result(problem, plan, turn, first)).collect(),
    })
}

fn parameters(problem: &Problem, plan: &Plan, column: &Column) -> Parameters {
    Parameters {
        batches: plan.batches as u32,
        weights: problem.weights as u32,
        groups: problem.groups() as u32,
        halvings: problem.halvings(),
        kept: (problem.groups() >> problem.halvings()) as u32,
        portions: (problem.units() / problem.groups()) as u32,
        phases: problem.phases() as u32,
        skip: column.skip as u32,
        blocks: column.blocks as u32,
        columns: problem.columns as u32,
        pieces: problem.pieces() as u32,
        depth: (problem.depth / problem.pieces() / 32) as u32,
        piece_phases: (problem.phases() / problem.pieces()) as u32,
        repeated: problem.repeated() as u32,
        step: (problem.weights.phase_units() % problem.units() * problem.weights.unit_bytes() as usize) as u32,
        portion_phases: (problem.groups() * BATCH_ROWS / problem.weights.phase_units() % problem.phases()) as u32,
    }
}

/// Blocks of both cores of a column in turn, of which the first one begins with row `first`.
fn weights(problem: &Problem, plan: &Plan, column: &Column, first: usize) -> Region {
    let (row_bytes, block) = (problem.row_bytes(), BLOCK as usize / 4);
    Region {
        argument: WEIGHT_ARGUMENT,
        offset: (first * row_bytes - column.skip) as u64,
        dimensions: dimensions([(block, 1), (2, plan.steps[0] * row_bytes / 4), (column.blocks, block)]),
    }
}

/// Results of all cores in turn: of a batch times all columns of the operand, then of the next.
fn result(problem: &Problem, plan: &Plan, turn: usize, first: usize) -> Region {
    Region {
        argument: RESULT_ARGUMENT,
        offset: 4 * (first + turn * problem.columns * problem.rows) as u64,
        dimensions: dimensions([
            (RESULT_BLOCK as usize / 4, 1),
            (2, plan.steps[0]),
            (plan.columns.len(), plan.steps[1]),
            (problem.columns, problem.rows),
            (plan.batches, BATCH_ROWS),
        ]),
    }
}

fn dimensions<const N: usize>(sizes: [(usize, usize); N]) -> Vec<Dimension> {
    sizes.into_iter().map(|(size, step)| Dimension::new(size as u64, step as u64)).collect()
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
