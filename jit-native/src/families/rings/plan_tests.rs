//! Every row is computed, from bytes within the tensor.

use super::super::weights::Weights;
use super::*;
use rstest::rstest;

const COLUMNS: usize = 4;

fn planned(weights: Weights, depth: usize, rows: usize) -> Result<(Problem, Plan), String> {
    let problem = Problem::sized(weights, depth, rows, 1)?;
    Ok((problem, plan(&problem, COLUMNS, 0)?))
}

/// What has to hold for any plan.
fn expect_whole(problem: &Problem, plan: &Plan) {
    let (row_bytes, total) = (problem.row_bytes(), problem.rows * problem.row_bytes());
    let (rows, [within, apart]) = (BATCH_ROWS * plan.batches, plan.steps);
    let mut end = 0;
    for job in &plan.jobs {
        for (number, column) in plan.columns.iter().enumerate() {
            let bytes = column.blocks * BLOCK as usize;
            assert!(column.blocks.is_multiple_of(DEPTH.into()) && column.skip.is_multiple_of(SKIP), "{column:?}");
            assert!(column.skip + rows * row_bytes <= bytes, "{column:?}");
            for first in [job + apart * number, job + apart * number + within] {
                assert!(first <= end, "{problem:?} {plan:?}");
                let start = first * row_bytes;
                assert!(start.is_multiple_of(4), "{problem:?} {plan:?}");
                assert!(start >= column.skip && start - column.skip + bytes <= total, "{problem:?} {plan:?}");
                end = end.max(first + rows);
            }
        }
    }
    assert!(within > 0 && apart > 0 && within * row_bytes <= MOST_STEP, "{problem:?} {plan:?}");
    assert_eq!(end, problem.rows);
}

/// All small numbers of rows, for types of which a row is short and long, and arrays of both generations.
#[test]
fn every_row_is_computed_within_the_tensor() {
    let (mut taken, mut refused) = (0, 0);
    for weights in Weights::ALL {
        for depth in [256usize, 576, 1024, 2048].into_iter().filter(|depth| *depth >= 4 * weights.unit()) {
            for (rows, columns) in (1..600).flat_map(|rows| [1, 4, 8].map(|columns| (rows, columns))) {
                let problem = Problem::sized(weights, depth, rows, 1);
                for more in 0..3 {
                    match problem.clone().and_then(|problem| Ok((problem, plan(&problem, columns, more)?))) {
                        Ok((problem, plan)) => {
                            assert!(plan.columns.len() == columns && plan.jobs.len() == 1 + more);
                            expect_whole(&problem, &plan);
                            taken += 1;
                        }
                        Err(_) => refused += usize::from(more == 0),
                    }
                }
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 4 * refused && refused > 0);
}

/// Cores have as many batches, one more only where their steps would not meet the last row.
#[rstest]
#[case::whole(2048, 16, [256, 512])]
#[case::a_batch_less(2032, 16, [255, 507])]
#[case::a_row_less(2047, 17, [254, 507])]
#[case::a_batch_more(2064, 17, [256, 512])]
#[case::least(20, 1, [1, 1])]
#[case::few(128, 1, [16, 32])]
#[case::in_common(576, 5, [70, 142])]
fn rows_are_dealt(#[case] rows: usize, #[case] batches: usize, #[case] steps: [usize; 2]) {
    let problem = Problem { rows, ..Problem::sized(Weights::Q4_0, 8192, rows, 1).unwrap() };
    let plan = plan(&problem, COLUMNS, 0).unwrap();
    assert_eq!((plan.batches, plan.steps, &plan.jobs[..]), (batches, steps, &[0][..]));
}

/// Of rows that are no whole words every other one begins at a word.
#[rstest]
#[case(8, 32, Some([2, 2]))]
#[case(6, 32, None)]
#[case(176, 32, Some([26, 50]))]
#[case(222, 32, None)]
#[case(224, 32, Some([32, 64]))]
fn regions_begin_at_words(#[case] rest: usize, #[case] each: usize, #[case] expected: Option<[usize; 2]>) {
    assert_eq!(steps(rest, each, COLUMNS, 2), expected);
}

/// The last region ends with the tensor, and begins in what is in front of its rows.
#[test]
fn the_end_of_the_tensor_is_not_passed() {
    // A core has 16 rows of 324 bytes: 5,184 of the 8,192 of a turn.
    let (problem, plan) = planned(Weights::Q4_0, 576, 128).unwrap();
    expect_whole(&problem, &plan);
    let found: Vec<_> = plan.columns.iter().map(|column| (column.blocks, column.skip)).collect();
    assert_eq!(found, [(4, 0), (4, 0), (4, 0), (4, 8192 - 5184)]);
    // The skipped bytes take a turn more.
    assert_eq!(blocks(8128, 8128), Some((4, 64)));
    assert_eq!(blocks(8192, 8192), Some((4, 0)));
    assert_eq!(blocks(8256, 8256), Some((8, 16384 - 8256)));
    assert_eq!(blocks(8192 - 64, 8192 - 64 + 20), Some((4, 64)));
    // As much as the next rows allow.
    assert_eq!(blocks(100, 8192), Some((4, 0)));
    assert_eq!(blocks(100, 8191), Some((4, 64)));
}

#[rstest]
#[case::rows(Weights::Q4_0, 2048, 19, "19 rows; possible: from 20 on")]
#[case::none(Weights::Q4_0, 2048, 0, "0 rows; possible: from 20 on")]
#[case::tiny(
    Weights::Q4_0,
    256,
    20,
    "20 rows of 144 bytes: a core would read 8192 bytes, in turns of 8192, and the tensor has 2880"
)]
fn what_is_too_small_is_refused(
    #[case] weights: Weights,
    #[case] depth: usize,
    #[case] rows: usize,
    #[case] message: &str,
) {
    assert_eq!(planned(weights, depth, rows).unwrap_err(), message);
}

/// Heads of models: regions further apart than a descriptor's step are several jobs.
#[rstest]
#[case::of_1b(Weights::Q4_0, 2048, 128_256, 5)]
#[case::of_8b(Weights::Q4K, 4096, 128_256, 9)]
#[case::down_of_8b(Weights::Q4K, 4096, 14_336, 1)]
#[case::odd(Weights::Q8_0, 4096, 128_255, 17)]
fn distant_regions_are_jobs(#[case] weights: Weights, #[case] depth: usize, #[case] rows: usize, #[case] jobs: usize) {
    let (problem, plan) = planned(weights, depth, rows).unwrap();
    expect_whole(&problem, &plan);
    assert_eq!(plan.jobs.len(), jobs);
}
