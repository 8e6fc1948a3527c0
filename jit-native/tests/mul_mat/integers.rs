//! Products of i8: bit for bit those of the reference kernel.

use crate::data::{Data, permuted};
use crate::device::{Device, aie2};
use aie_emulator::Timing;
use aie_jit_native::families;
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use fastrand::Rng;
use rstest::rstest;

fn i8s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::I8, ne)
}

/// Runs a product of random bytes. What lies between rows of the result stays as it was.
fn compare(device: &mut Option<Device>, weights: Tensor, columns: Tensor, output: Tensor) -> Timing {
    let mut random = Rng::with_seed(21);
    let [weights, columns] = [weights, columns].map(|tensor| Data::random(tensor, &mut random, 1.0));
    let sources = vec![Some(weights.tensor), Some(columns.tensor)];
    let node = Node::new("MUL_MAT", OpParams::default(), output, sources);
    let kernel = families::build(&node, &aie2()).unwrap_or_else(|error| panic!("{error}"));
    let (mut a, mut b) = (weights.bytes.clone(), columns.bytes.clone());
    let mut found = vec![0xAA; output.span_bytes()];
    let mut expected = found.clone();
    let device = device.get_or_insert_with(|| Device::new(&kernel));
    let timing = device.run(&kernel, vec![&mut a, &mut b, &mut found]);
    let reference = table::lookup("MUL_MAT").unwrap().reference(&node).unwrap();
    reference.run(&[&weights.bytes, &columns.bytes], &mut expected).unwrap();
    assert_eq!(found, expected);
    timing
}

#[rstest]
#[case::one_column([16, 1, 256])]
#[case::eight_columns([64, 8, 256])]
#[case::nine_columns([16, 9, 256])]
#[case::few_rows([3, 2, 64])]
#[case::odd_rows([37, 1, 64])]
#[case::unequal_columns([200, 3, 128])]
#[case::wide([96, 33, 96])]
#[case::wider([64, 65, 64])]
#[case::long_columns([48, 2, 4096])]
#[case::long_columns_in_units([80, 6, 2560])]
#[case::zeros_behind_rows([20, 5, 100])]
#[case::pieces_with_zeros([20, 18, 1012])]
fn shapes(#[case] shape: [usize; 3]) {
    let [m, n, k] = shape;
    let output = Tensor::contiguous(DataType::I32, [m, n, 1, 1]);
    compare(&mut None, i8s([k, m, 1, 1]), i8s([k, n, 1, 1]), output);
}

#[test]
fn batches_repeat_and_strides_are_kept() {
    let columns = permuted(i8s([64, 2, 6, 2]), [0, 2, 1, 3]);
    let mut output = Tensor::contiguous(DataType::I32, [20, 6, 2, 2]);
    output.nb = [4, 4 * 24 * 2, 4 * 24, 4 * 24 * 12];
    compare(&mut None, i8s([64, 20, 1, 1]), columns, output);
}

/// One device, one configuration.
#[test]
fn shapes_follow_each_other() {
    let mut device = None;
    for [m, n, k] in [[16, 1, 64], [40, 17, 96], [3, 2, 32], [128, 4, 64]] {
        let output = Tensor::contiguous(DataType::I32, [m, n, 1, 1]);
        compare(&mut device, i8s([k, m, 1, 1]), i8s([k, n, 1, 1]), output);
    }
}
