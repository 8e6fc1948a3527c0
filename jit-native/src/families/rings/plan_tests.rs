//! Every row is computed, from bytes within the tensor.

use super::super::weights::Weights;
use super::*;
use rstest::rstest;

const COLUMNS: usize = 4;

fn planned(weights: Weights, depth: usize, rows: usize) -> Result<(Problem, Vec<Column>), String> {
    let problem = Problem::sized(weights, depth, rows, 1)?;
    Ok((problem, plan(&problem, COLUMNS)?))
}

/// What has to hold for any plan.
fn expect_whole(problem: &Problem, columns: &[Column]) {
    let (row_bytes, total) = (problem.row_bytes(), problem.rows * problem.row_bytes());
    let mut end = 0;
    for column in columns {
        let rows = BATCH_ROWS * column.batches;
        let bytes = column.blocks * BLOCK as usize;
        assert!(column.blocks.is_multiple_of(DEPTH.into()) && column.skip.is_multiple_of(SKIP), "{column:?}");
        assert!(column.skip + rows * row_bytes <= bytes, "{column:?}");
        let mut next = end;
        for [first, second] in column.jobs.iter().copied() {
            assert!(first >= end && first <= next && second > first && second <= first + rows, "{column:?}");
            for start in [first, second] {
                let start = start * row_bytes;
                assert!(start >= column.skip && start - column.skip + bytes <= total, "{problem:?} {column:?}");
            }
            assert!((second - first) * row_bytes <= MOST_STEP);
            next = second + rows;
        }
        assert!(next > end);
        end = next;
    }
    assert_eq!(end, problem.rows);
}

/// All small numbers of rows, for types of which a row is short and long.
#[test]
fn every_row_is_computed_within_the_tensor() {
    let (mut taken, mut refused) = (0, 0);
    for weights in Weights::ALL {
        for depth in [256usize, 576, 1024, 2048].into_iter().filter(|depth| *depth >= 4 * weights.unit()) {
            for rows in 1..600 {
                match planned(weights, depth, rows) {
                    Ok((problem, columns)) => {
                        expect_whole(&problem, &columns);
                        taken += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 4 * refused && refused > 0);
}

/// Rows of the model of 1B: all columns work, none more than it has to.
#[rstest]
#[case::pairs(2048, &[[0, 256], [512, 768], [1024, 1280], [1536, 1792]], 16, 0)]
#[case::odd_batches(2032, &[[0, 256], [512, 768], [1024, 1280], [1536, 1776]], 16, 0)]
#[case::a_part_of_a_batch(2047, &[[0, 256], [512, 768], [1024, 1280], [1536, 1791]], 16, 0)]
#[case::one_pair_more(2080, &[[0, 272], [544, 800], [1056, 1312], [1568, 1824]], 16, 0)]
#[case::least(128, &[[0, 16], [32, 48], [64, 80], [96, 112]], 1, 0)]
fn rows_are_dealt(#[case] rows: usize, #[case] firsts: &[[usize; 2]], #[case] last_batches: usize, #[case] job: usize) {
    let (_, columns) = planned(Weights::Q4_0, 2048, rows).unwrap();
    let found: Vec<[usize; 2]> = columns.iter().map(|column| column.jobs[job]).collect();
    assert_eq!((&found[..], columns[columns.len() - 1].batches), (firsts, last_batches));
    assert!(columns.iter().all(|column| column.jobs.len() == 1));
}

/// Few rows are for fewer columns, so that each has two batches and the cores' rows are not the same.
#[rstest]
#[case(17, &[1])]
#[case(32, &[1])]
#[case(33, &[2])]
#[case(48, &[2])]
#[case(64, &[1, 1])]
#[case(65, &[1, 2])]
#[case(100, &[1, 1, 2])]
#[case(129, &[1, 1, 1, 2])]
fn few_rows_take_few_columns(#[case] rows: usize, #[case] batches: &[usize]) {
    let problem = Problem { rows, ..Problem::sized(Weights::Q4_0, 8192, rows, 1).unwrap() };
    let found: Vec<usize> = match plan(&problem, COLUMNS) {
        Ok(columns) => columns.iter().map(|column| column.batches).collect(),
        // So few that a turn is more than they have.
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found, batches);
}

/// The last region ends with the tensor, and begins in what is in front of its rows.
#[test]
fn the_end_of_the_tensor_is_not_passed() {
    // A core has 16 rows of 324 bytes: 5,184 of the 8,192 of a turn.
    let (problem, columns) = planned(Weights::Q4_0, 576, 128).unwrap();
    expect_whole(&problem, &columns);
    let found: Vec<_> = columns.iter().map(|column| (column.blocks, column.skip)).collect();
    assert_eq!(found, [(4, 0), (4, 0), (4, 0), (4, 8192 - 5184)]);
    // The skipped bytes take a turn more.
    assert_eq!(blocks(8128, 8128), (4, 64));
    assert_eq!(blocks(8192, 8192), (4, 0));
    assert_eq!(blocks(8256, 8256), (8, 16384 - 8256));
    assert_eq!(blocks(8192 - 64, 8192 - 64 + 20), (4, 64));
    // As much as the next rows allow.
    assert_eq!(blocks(100, 8192), (4, 0));
    assert_eq!(blocks(100, 8191), (4, 64));
}

#[rstest]
#[case::rows(Weights::Q4_0, 2048, 16, "16 rows; possible: from 17 on")]
#[case::none(Weights::Q4_0, 2048, 0, "0 rows; possible: from 17 on")]
#[case::tiny(
    Weights::Q4_0,
    256,
    18,
    "18 rows of 144 bytes: a core would read 8192 bytes, in turns of 8192, and the tensor has 2592"
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
    let (problem, columns) = planned(weights, depth, rows).unwrap();
    expect_whole(&problem, &columns);
    assert_eq!(columns.iter().map(|column| column.jobs.len()).max(), Some(jobs));
}
