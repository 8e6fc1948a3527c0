//! How long a product takes, about: what decides in how many jobs it is cut.
//!
//! A core computes while weights arrive, two bytes a cycle for each of a column's two cores. So a column takes as long as its cores, or
//! as its weights and what is left to do with the last ones. Beside the emulator it is within a tenth for the shapes of the tests.

use super::memory::BLOCK;
use super::plan::{Column, Plan};
use super::problem::Problem;
use super::weights::Weights;
use aie_isa::InstructionSet;

/// Cycles before the first word arrives, and from the last result to its token.
const ARRIVAL: usize = 790;
const RETURN: usize = 550;
/// Cycles around the loops over a portion, for each column of the operand, and over the rows of a batch.
const AROUND_PORTION: usize = 400;
const AROUND_COLUMN: usize = 380;
const AROUND_ROWS: usize = 250;
/// Cycles for adding neighbours among sums.
const AROUND_HALVING: usize = 80;
/// Bytes of weights that each of a column's two cores gets in a cycle.
const BYTES_PER_CYCLE: usize = 2;
/// Cycles for the sums of a unit of sixteen rows.
const ROW_UNIT: usize = 13;

/// Cycles of a group: to put its words in order and decode its scales, and to multiply it with a column.
fn group(set: InstructionSet, weights: Weights) -> (usize, usize) {
    match (set, weights) {
        (InstructionSet::Aie2, Weights::Q4_1) => (60, 42),
        (InstructionSet::Aie2, Weights::Q4_0) => (84, 77),
        (InstructionSet::Aie2, Weights::Q8_0) => (140, 270),
        (InstructionSet::Aie2, Weights::Q4K) => (390, 400),
        (InstructionSet::Aie2, Weights::Q5_0) => (140, 163),
        (InstructionSet::Aie2, Weights::Q5_1) => (64, 76),
        (InstructionSet::Aie2, Weights::Q5K) => (640, 700),
        (InstructionSet::Aie2, Weights::Q6K) => (700, 685),
        (InstructionSet::Aie2p, Weights::Q4_1) => (95, 81),
        (InstructionSet::Aie2p, Weights::Q4_0) => (118, 168),
        (InstructionSet::Aie2p, Weights::Q8_0) => (185, 345),
        (InstructionSet::Aie2p, Weights::Q4K) => (425, 690),
        (InstructionSet::Aie2p, Weights::Q5_0) => (185, 240),
        (InstructionSet::Aie2p, Weights::Q5_1) => (100, 120),
        (InstructionSet::Aie2p, Weights::Q5K) => (680, 985),
        (InstructionSet::Aie2p, Weights::Q6K) => (740, 1380),
    }
}

/// Cycles of a dispatch whose columns do what is planned for them.
pub(super) fn cycles(set: InstructionSet, problem: &Problem, plan: &Plan) -> u64 {
    plan.columns.iter().map(|of| column(set, problem, plan, of)).max().unwrap_or(0) as u64
}

fn column(set: InstructionSet, problem: &Problem, planned: &Plan, of: &Column) -> usize {
    let Problem { weights, depth, columns, .. } = *problem;
    let (groups, units) = (problem.groups(), problem.units());
    let (decoded, multiplied) = group(set, weights);
    let halved = problem.halvings() as usize * AROUND_HALVING;
    let portion = AROUND_PORTION + columns * (AROUND_COLUMN + halved) + groups * (decoded + columns * multiplied);
    let rows = columns * (AROUND_ROWS + ROW_UNIT * problem.sums());
    let work = planned.batches * (units / groups * portion + rows);
    // A column of the operand arrives in blocks of 32, and is arranged for each phase and part.
    let parts = problem.phases() * weights.parts() * weights.part_offsets();
    let arranged = columns * (40 * depth / 32 + 8 * problem.repeated() + 500 + 130 * parts);
    let after = |bytes: usize| ARRIVAL + bytes / BYTES_PER_CYCLE;
    let portion_bytes = groups * weights.group_bytes() as usize;
    let all_bytes = planned.batches * units / groups * portion_bytes;
    let begun = (ARRIVAL + arranged).max(after(of.skip + portion_bytes));
    let needed = after(of.skip + all_bytes) + portion + rows;
    let read = after(of.blocks * BLOCK as usize) + rows;
    // The weights of other jobs have arrived when the first one has ended.
    let jobs = problem.turns * planned.jobs.len();
    jobs * ((begun + work).max(needed).max(read) - ARRIVAL) + ARRIVAL + RETURN
}

#[cfg(test)]
mod tests {
    use super::super::plan::plan;
    use super::*;
    use rstest::rstest;

    /// More columns of the array take less time, more columns of the operand more.
    #[rstest]
    fn work_is_shared(
        #[values(
            Weights::Q4_1,
            Weights::Q4_0,
            Weights::Q8_0,
            Weights::Q4K,
            Weights::Q5_0,
            Weights::Q5_1,
            Weights::Q5K,
            Weights::Q6K
        )]
        weights: Weights,
        #[values(InstructionSet::Aie2, InstructionSet::Aie2p)] set: InstructionSet,
    ) {
        let cycles = |width: usize, columns: usize| {
            let problem = Problem::sized(weights, 1024, 2048, columns).unwrap();
            cycles(set, &problem, &plan(&problem, width, 0).unwrap())
        };
        assert!(cycles(4, 1) < cycles(2, 1) && cycles(2, 1) < cycles(1, 1) && cycles(1, 1) < cycles(1, 2));
    }
}
