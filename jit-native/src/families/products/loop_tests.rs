//! The inner loops on the emulated array take what the schedule says.

use super::dispatch::stream;
use super::loops;
use super::machine::machine;
use super::plan::{Item, Phase, Tiling};
use super::problem::Problem;
use crate::array::testing::{Device, aie2};
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;

/// Cycles in which a core did something, with one tile of so many groups of 16 rows for each core of a column, and a chunk of so
/// many steps of 8 `k`.
fn busy(dtype: DataType, columns: usize, groups: usize, steps: usize) -> u64 {
    let (rows, depth) = (16 * groups, 8 * steps);
    let of = |rows| Some(Tensor::contiguous(dtype, [depth, rows, 1, 1]));
    let result = if dtype == DataType::I8 { DataType::I32 } else { DataType::F32 };
    let output = Tensor::contiguous(result, [4 * rows, columns, 1, 1]);
    let sources = vec![of(4 * rows), of(columns)];
    let problem = Problem::of(&Node::new("MUL_MAT", OpParams::default(), output, sources)).unwrap();
    let words = depth * dtype.block_bytes() / 4;
    let tiling = Tiling {
        arithmetic: problem.weights.arithmetic(),
        columns,
        wide: columns.is_multiple_of(16),
        chunks: 1,
        depth,
        present: depth,
        words,
        present_words: words,
        core_words: words,
        column_bytes: dtype.block_bytes(),
        rows,
        tiles: 1,
        resident: true,
        ahead: false,
        sums: 1,
        share: 1,
    };
    let item = Item { matrix: [0, 0], first_column: 0, columns, first_row: 0, partial: None };
    let machine = machine(&aie2(), problem.purpose()).unwrap();
    let stream = stream(&machine, &problem, &[Phase { tiling, items: vec![item] }]).unwrap();
    let mut device = Device::of(machine.product.configured());
    let mut buffers = [4 * rows * words, columns * words, 4 * rows * columns].map(|words| vec![0; words]);
    let run = device.dispatch(&stream, &mut buffers).unwrap();
    run.timing.core().unwrap().busy
}

/// What the steps of a group take is what more groups of more steps take: all else depends on one of the two.
#[rstest]
#[case::floats(DataType::BF16, 16, "product of 16 columns")]
#[case::integers(DataType::I8, 16, "product of 16 columns of i8")]
#[case::few_columns(DataType::BF16, 4, "product of 4 columns")]
#[case::few_columns_of_integers(DataType::I8, 8, "product of 8 columns of i8")]
fn the_loops_keep_the_matrix_unit_busy(#[case] dtype: DataType, #[case] columns: usize, #[case] name: &str) {
    let loops = loops(&aie2()).unwrap();
    let report = loops.iter().find(|report| report.name == name).unwrap();
    assert!(report.share() >= 0.8, "{report:?}");
    let (groups, steps) = ([1, 3], [16, 48]);
    let [few, many] = groups.map(|groups| {
        let [short, long] = steps.map(|steps| busy(dtype, columns, groups, steps));
        long - short
    });
    let macs = (groups[1] - groups[0]) * 16 * columns * 8 * (steps[1] - steps[0]);
    assert_eq!((many - few) * u64::from(report.macs), macs as u64 * u64::from(report.interval));
}
