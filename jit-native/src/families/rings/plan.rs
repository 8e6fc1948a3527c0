//! How a product is cut: which rows each core computes, and which bytes it gets.
//!
//! Rows are dealt in *batches* of 16, and all cores compute as many: core 0 of a column from the column's first row on, core 1 some rows
//! behind it. So results of all cores come in one order, by which one descriptor writes them. Where the cores together have more rows than there
//! are, regions that follow each other overlap, and the rows that they share are computed twice and written twice, with the same bytes.
//!
//! Weights are sent in blocks without regard to rows, and in whole turns of the chains. So more than the rows is read: what follows them in
//! the tensor, or, at its end, what is in front of them, which the core skips.
//!
//! Blocks of the two cores of a column alternate in one task of the shim, from regions that are a step of its descriptor apart. More rows than
//! that allows come in several *jobs*, each with the same parameters and the operand again. Their regions follow each other without gaps, which
//! takes a descriptor's dimension less: so several jobs can also take fewer tasks than one.

use super::memory::{BLOCK, DEPTH, SKIP};
use super::problem::{BATCH_ROWS, Problem};
use aie_hal::format::extent::Traffic;

/// Cores of a column.
const CORES: usize = 2;
/// The longest step of a shim's descriptor.
const MOST_STEP: usize = 4 << 20;
/// Tasks of a dispatch that a channel has at most. More would be many waits for tokens.
const MOST_JOBS: usize = 64;

/// What all columns do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Batches of each core in a job.
    pub batches: usize,
    /// The first row of each job.
    pub jobs: Vec<usize>,
    /// Rows from core 0 of a column to core 1, and to core 0 of the next one.
    pub steps: [usize; 2],
    pub columns: Vec<Column>,
}

/// What a column does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// Blocks of weights of each core in a job.
    pub blocks: usize,
    /// Bytes in front of the first row.
    pub skip: usize,
}

/// Cuts a product for an array of so many columns, in as few jobs as possible or in more; otherwise why that cannot be.
pub(super) fn plan(problem: &Problem, columns: usize, more: usize) -> Result<Plan, String> {
    let (rows, row_bytes) = (problem.rows, problem.row_bytes());
    let batch = columns * CORES * BATCH_ROWS;
    let all = rows.div_ceil(batch);
    let jobs = all.div_ceil((MOST_STEP / (BATCH_ROWS * row_bytes)).max(1)) + more;
    let tasks = jobs * problem.turns;
    if tasks > MOST_JOBS {
        let columns = problem.columns * problem.turns;
        return Err(format!(
            "{rows} rows of {row_bytes} bytes times {columns} columns take {tasks} jobs; possible: {MOST_JOBS}"
        ));
    }
    if jobs <= 1 {
        return once(problem, columns, all);
    }
    let batches = all.div_ceil(jobs);
    let (each, span) = (BATCH_ROWS * batches, batch * batches);
    if all < jobs || span > rows {
        return Err(format!("{rows} rows; possible for {jobs} jobs: from {} on", batch * jobs));
    }
    // The last one ends with the rows, and may begin before the one in front of it has ended.
    let starts = (0..jobs).map(|job| (span * job).min(rows - span)).collect();
    Plan::new(problem, columns, batches, starts, [each, CORES * each])
}

/// In one job, of at least so many batches for each core.
fn once(problem: &Problem, columns: usize, least: usize) -> Result<Plan, String> {
    let rows = problem.rows;
    // Words have four bytes.
    let unit = if problem.row_bytes().is_multiple_of(4) { 1 } else { 2 };
    let possible = (least.max(1)..).take_while(|batches| BATCH_ROWS * batches < rows);
    // The last core's rows end with the tensor, and what is skipped in front of them is a multiple of this.
    let mut whole = possible.filter(|batches| (BATCH_ROWS * batches * problem.row_bytes()).is_multiple_of(SKIP));
    let dealt = whole.find_map(|batches| {
        let each = BATCH_ROWS * batches;
        steps(rows - each, each, columns, unit).map(|steps| (batches, steps))
    });
    let Some((batches, steps)) = dealt else {
        return Err(format!("{rows} rows; possible: from {} on", BATCH_ROWS + unit * columns));
    };
    Plan::new(problem, columns, batches, vec![0], steps)
}

/// Steps by which the last core begins `rest` rows behind the first one and no row is left out, where each has `each` rows: multiples of
/// `unit`, about the same from core to core. If they are the same it takes a dimension less.
fn steps(rest: usize, each: usize, columns: usize, unit: usize) -> Option<[usize; 2]> {
    let (between, cores) = (columns - 1, CORES * columns - 1);
    let is_possible = |[within, apart]: &[usize; 2]| {
        within + between * apart == rest
            && (unit..=each).contains(within)
            && (unit..=within + each).contains(apart)
            && within.is_multiple_of(unit)
            && apart.is_multiple_of(unit)
    };
    let even = [rest / cores, CORES * (rest / cores)];
    let others = (unit..=each.min(rest)).step_by(unit).map(|within| [within, (rest - within) / between.max(1)]);
    let uneven = others.filter(is_possible).min_by_key(|[within, _]| (within * cores).abs_diff(rest));
    Some(even).filter(is_possible).or(uneven)
}

/// The weights that are read, which are next to each other block by block.
pub(super) fn traffic(plan: &Plan) -> Traffic {
    let blocks: usize = plan.columns.iter().map(|column| CORES * column.blocks * plan.jobs.len()).sum();
    Traffic { bytes: (blocks * BLOCK as usize) as u64, pieces: 0 }
}

impl Plan {
    fn new(
        problem: &Problem,
        columns: usize,
        batches: usize,
        jobs: Vec<usize>,
        steps: [usize; 2],
    ) -> Result<Self, String> {
        let (row_bytes, total) = (problem.row_bytes(), problem.rows * problem.row_bytes());
        let (first, last) = (jobs[0], jobs[jobs.len() - 1]);
        let column = |column: usize| {
            let [within, apart] = steps;
            let lowest = (first + apart * column) * row_bytes;
            let highest = (last + apart * column + within) * row_bytes;
            let needed = BATCH_ROWS * batches * row_bytes;
            let Some((blocks, skip)) = blocks(needed, total - highest) else {
                return Err(format!(
                    "{} rows of {row_bytes} bytes: the last {needed} are no multiple of {SKIP}, and nothing is behind them",
                    problem.rows
                ));
            };
            if skip > lowest {
                let (bytes, turn) = (blocks * BLOCK as usize, DEPTH as usize * BLOCK as usize);
                return Err(format!(
                    "{} rows of {row_bytes} bytes: a core would read {bytes} bytes, in turns of {turn}, and the tensor has {total}",
                    problem.rows
                ));
            }
            Ok(Column { blocks, skip })
        };
        let columns = (0..columns).map(column).collect::<Result<_, _>>()?;
        Ok(Self { batches, jobs, steps, columns })
    }
}

/// Blocks for so many bytes of rows, in whole turns, and what has to be skipped in front of the rows so that the last block ends within the
/// tensor, which has `left` bytes from the first row on. None where that is no multiple of what can be skipped.
fn blocks(bytes: usize, left: usize) -> Option<(usize, usize)> {
    let mut skip = 0;
    // What is skipped takes room in the last turn, or one more.
    for _ in 0..3 {
        let blocks = (skip + bytes).div_ceil(BLOCK as usize).next_multiple_of(DEPTH.into());
        let beyond = (blocks * BLOCK as usize).saturating_sub(left).next_multiple_of(SKIP);
        if beyond <= skip {
            return Some((blocks, skip));
        }
        skip = beyond;
    }
    None
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
