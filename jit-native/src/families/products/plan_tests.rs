//! Plans of shapes of models and of the edges: everything is computed, and within the limits of the array.

use super::*;
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;
use std::collections::HashMap;

fn problem(dtype: DataType, shape: [usize; 3], matrices: [usize; 2]) -> Problem {
    problem_of([dtype, DataType::F32], shape, matrices)
}

fn problem_of([left, right]: [DataType; 2], [m, n, k]: [usize; 3], matrices: [usize; 2]) -> Problem {
    let weights = Tensor::contiguous(left, [k, m, 1, 1]);
    let columns = Tensor::contiguous(right, [k, n, matrices[0], matrices[1]]);
    let output = Tensor::contiguous(DataType::F32, [m, n, matrices[0], matrices[1]]);
    let sources = vec![Some(weights), Some(columns)];
    Problem::of(&Node::new("MUL_MAT", OpParams::default(), output, sources)).unwrap()
}

/// How often each row of each block of columns of each matrix is computed.
fn covered(problem: &Problem, phases: &[Phase]) -> HashMap<([usize; 2], usize, usize), usize> {
    let mut rows = HashMap::new();
    for Phase { tiling, items } in phases {
        for item in items {
            assert!(item.first_column + item.columns <= problem.columns && item.columns <= tiling.columns);
            for core in 0..CORES {
                let count = item.partial.map_or(tiling.rows, |rows| rows[core]);
                for tile in 0..tiling.tiles {
                    let first = item.first_row + (tile * CORES + core) * tiling.rows;
                    for row in first..first + count {
                        assert!(row < problem.rows, "row {row}");
                        for column in item.first_column..item.first_column + item.columns {
                            *rows.entry((item.matrix, column, row)).or_default() += 1;
                        }
                    }
                }
            }
        }
    }
    rows
}

fn check_limits(problem: &Problem, tiling: &Tiling) {
    assert!(tiling.fits(problem.weights.is_direct()), "{tiling:?}");
    assert_eq!(tiling.chunks * tiling.present, problem.depth);
    assert!((tiling.present..tiling.present + problem.weights.unit()).contains(&tiling.depth), "{tiling:?}");
    assert!(tiling.zeros().into_iter().all(|zeros| zeros <= 63), "{tiling:?}");
    assert!(tiling.depth.is_multiple_of(problem.weights.unit()));
}

#[rstest]
fn everything_is_computed(
    #[values(DataType::BF16, DataType::F32, DataType::Q4_0, DataType::Q4_1, DataType::Q8_0)] dtype: DataType,
    #[values([1, 1, 64], [16, 1, 256], [17, 5, 192], [63, 4, 64], [64, 33, 128], [65, 2, 576], [70, 33, 128], [577, 1, 1536], [300, 70, 2048])]
    shape: [usize; 3],
    #[values([1, 1], [3, 2])] matrices: [usize; 2],
) {
    let problem = problem(dtype, shape, matrices);
    let phases = problem.phases(4).unwrap();
    phases.iter().for_each(|phase| check_limits(&problem, &phase.tiling));
    assert!(phases.iter().all(|phase| (1..=4).contains(&phase.items.len())));
    let rows = covered(&problem, &phases);
    assert_eq!(rows.len(), shape[0] * shape[1] * matrices[0] * matrices[1]);
}

/// Rows that are no whole steps of the inner loop, of one to many pieces, and those that no division makes small enough.
#[rstest]
fn zeros_fill_up_what_is_missing(
    #[values(DataType::BF16, DataType::F32)] left: DataType,
    #[values(DataType::BF16, DataType::F32)] right: DataType,
    #[values(2, 4, 34, 130, 1058, 2046, 6006)] depth: usize,
    #[values([16, 1], [70, 33])] shape: [usize; 2],
) {
    let [m, n] = shape;
    let problem = problem_of([left, right], [m, n, depth], [1, 1]);
    let phases = problem.phases(4).unwrap();
    phases.iter().for_each(|phase| check_limits(&problem, &phase.tiling));
    assert_eq!(covered(&problem, &phases).len(), m * n);
}

/// Where 16 columns of f32 do not fit a mem tile, eight do.
#[test]
fn long_rows_meet_more_than_four_columns() {
    for (right, columns) in [(DataType::F32, 8..=12), (DataType::BF16, 16..=64)] {
        let problem = problem_of([DataType::BF16, right], [2048, 512, 8192], [1, 1]);
        let phases = problem.phases(4).unwrap();
        phases.iter().for_each(|phase| check_limits(&problem, &phase.tiling));
        assert!(columns.contains(&phases[0].tiling.columns), "{right}: {:?}", phases[0].tiling);
    }
}

#[test]
fn rows_of_a_large_prime_are_rejected_with_the_reason() {
    let problem = problem(DataType::F32, [16, 1, 8191], [1, 1]);
    let reason = problem.phases(4).unwrap_err();
    assert!(reason.contains("8191 has no divisor"), "{reason}");
}

/// Shapes of models of 135M to 8B parameters: rows of weights are read at most a tenth more often than needed.
#[rstest]
fn models_fit(
    #[values(DataType::BF16, DataType::Q4_0, DataType::Q4_1, DataType::Q8_0)] dtype: DataType,
    #[values([576, 576], [192, 576], [1536, 576], [576, 1536], [49_152, 576], [2048, 8192], [14_336, 4096], [4096, 14_336])]
    shape: [usize; 2],
    #[values(1, 512)] columns: usize,
) {
    let [rows, depth] = shape;
    let problem = problem(dtype, [rows, columns, depth], [1, 1]);
    let phases = problem.phases(4).unwrap();
    let mut computed = 0;
    for phase in &phases {
        check_limits(&problem, &phase.tiling);
        for item in &phase.items {
            computed += phase.tiling.rows * CORES * phase.tiling.tiles * item.columns;
        }
    }
    let Phase { tiling, items } = &phases[0];
    let cycles = tiling.cycles(&problem, items[0].columns);
    println!("{dtype} {rows} x {columns} x {depth}: {} phases of about {cycles} cycles: {tiling:?}", phases.len());
    assert!(computed * 10 <= rows * columns * 11, "{computed} for {rows} x {columns}: {:?}", phases[0].tiling);
}

/// Blocks of 256 in shapes of models, with the words of each and what it leaves behind them in a core; those of q6_K as pairs.
#[rstest]
fn long_blocks_fit(
    #[values((DataType::Q4_K, 36 * 2, 45 * 2), (DataType::Q6_K, 105, 122))] weights: (DataType, usize, usize),
    #[values([1, 512], [2048, 2048], [8192, 2048], [2048, 8192], [14_336, 4096], [4096, 14_336])] shape: [usize; 2],
    #[values(1, 512)] columns: usize,
) {
    let [rows, depth] = shape;
    let (dtype, words, in_core) = weights;
    let problem = problem(dtype, [rows, columns, depth], [1, 1]);
    let phases = problem.phases(4).unwrap();
    phases.iter().for_each(|phase| check_limits(&problem, &phase.tiling));
    let tiling = phases[0].tiling;
    assert_eq!(tiling.weight_bytes(), 16 * 4 * in_core * tiling.depth / 512);
    assert_eq!(tiling.words, words * tiling.depth / 512);
}
