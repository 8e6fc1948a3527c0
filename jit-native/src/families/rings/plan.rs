//! How a product is cut: which rows each core computes, and which bytes it gets.
//!
//! Rows are dealt in *batches* of 16, and a column of the array has at least two of them. Both of its cores compute as many: core 0 from the
//! column's first row on, core 1 up to its last. Where that is more than there are, the two regions overlap, and the rows that
//! they share are computed twice and written twice, with the same bytes.
//!
//! Weights are sent in blocks without regard to rows, and in whole turns of the chains. So more than the rows is read: what follows them in
//! the tensor, or, at its end, what is in front of them, which the core skips.
//!
//! Blocks of the two cores alternate in one task of the shim, from regions that are a step of its descriptor apart. Rows whose regions are
//! further apart come in several *jobs*, each with the same parameters and the operand again.

use super::memory::{BLOCK, DEPTH, SKIP};
use super::problem::{BATCH_ROWS, Problem};
use aie_hal::format::extent::Traffic;

/// Cores of a column.
const CORES: usize = 2;
/// The longest step of a shim's descriptor.
const MOST_STEP: usize = 4 << 20;
/// Tasks of a dispatch that a channel has at most. More would be many waits for tokens.
const MOST_JOBS: usize = 64;

/// What a column does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// Batches of each core in a job.
    pub batches: usize,
    /// Blocks of weights of each core in a job.
    pub blocks: usize,
    /// Bytes in front of the first row.
    pub skip: usize,
    /// The first row of each core, job by job.
    pub jobs: Vec<[usize; CORES]>,
}

/// Cuts a product for an array of so many columns; otherwise why that cannot be.
pub(super) fn plan(problem: &Problem, columns: usize) -> Result<Vec<Column>, String> {
    let rows = problem.rows;
    let batches = rows.div_ceil(BATCH_ROWS);
    let busy = columns.min(batches / CORES);
    if busy == 0 {
        return Err(format!("{rows} rows; possible: from {} on", BATCH_ROWS + 1));
    }
    // Pairs of batches. The first columns have one more, as the last ones may have to skip much before their first row; unless the last
    // one would have less than two batches then.
    let pairs = batches.div_ceil(CORES);
    let pair = CORES * BATCH_ROWS;
    let is_enough = (pairs / busy) * pair > BATCH_ROWS + (pairs * pair - rows);
    let share = |column: usize| (pairs + if is_enough { busy - 1 - column } else { column }) / busy;
    let mut first = 0;
    let columns = (0..busy).map(|column| {
        let end = if column + 1 == busy { rows } else { first + share(column) * pair };
        let planned = Column::new(problem, first, end);
        first = end;
        planned
    });
    columns.collect()
}

/// The weights that are read, which are next to each other block by block.
pub(super) fn traffic(columns: &[Column]) -> Traffic {
    let blocks: usize = columns.iter().map(|column| CORES * column.blocks * column.jobs.len()).sum();
    Traffic { bytes: (blocks * BLOCK as usize) as u64, pieces: 0 }
}

impl Column {
    /// The rows from `first` to `end`: at least 17.
    fn new(problem: &Problem, first: usize, end: usize) -> Result<Self, String> {
        let (rows, row_bytes) = (end - first, problem.row_bytes());
        let all = rows.div_ceil(BATCH_ROWS).div_ceil(CORES);
        let most = (MOST_STEP / (BATCH_ROWS * row_bytes)).max(1);
        let jobs = all.div_ceil(most);
        let tasks = jobs * problem.turns;
        if tasks > MOST_JOBS {
            let (rows, columns) = (problem.rows, problem.columns * problem.turns);
            return Err(format!(
                "{rows} rows of {row_bytes} bytes times {columns} columns take {tasks} jobs; possible: {MOST_JOBS}"
            ));
        }
        let batches = all.div_ceil(jobs);
        let each = batches * BATCH_ROWS;
        let starts = (0..jobs).map(|job| {
            // The last one ends with the rows, and may begin before the one in front of it has ended.
            let start = first + CORES * each * job;
            let start = if job + 1 == jobs { start.min(end.saturating_sub(CORES * each).max(first)) } else { start };
            [start, (start + each).min(end - each)]
        });
        let jobs: Vec<_> = starts.collect();
        let (lowest, highest) = (jobs[0][0] * row_bytes, jobs[jobs.len() - 1][1] * row_bytes);
        let (blocks, skip) = blocks(each * row_bytes, problem.rows * row_bytes - highest);
        if skip > lowest {
            let (total, block) = (problem.rows * row_bytes, DEPTH as usize * BLOCK as usize);
            return Err(format!(
                "{} rows of {row_bytes} bytes: a core would read {} bytes, in turns of {block}, and the tensor has {total}",
                problem.rows,
                blocks * BLOCK as usize
            ));
        }
        Ok(Self { batches, blocks, skip, jobs })
    }
}

/// Blocks for so many bytes of rows, in whole turns, and what has to be skipped in front of the rows so that the last block ends within the
/// tensor, which has `left` bytes from the first row on.
fn blocks(bytes: usize, left: usize) -> (usize, usize) {
    let mut skip = 0;
    loop {
        let blocks = (skip + bytes).div_ceil(BLOCK as usize).next_multiple_of(DEPTH.into());
        let beyond = (blocks * BLOCK as usize).saturating_sub(left).next_multiple_of(SKIP);
        if beyond <= skip {
            return (blocks, skip);
        }
        // What is skipped takes room in the last turn, or one more.
        skip = beyond;
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
