//! Every type of weights, and shapes with edges, batches and strides.

use crate::data::{Data, bf16, of_bf16, permuted};
use crate::device::{Device, aie2};
use aie_emulator::Timing;
use aie_jit_native::families;
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use fastrand::Rng;
use rstest::rstest;

/// The highest normalised mean squared error beside the reference kernels; ggml's tests allow 5e-4.
const BOUND: f64 = 1e-4;

pub fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

/// The sum of the squares of the errors, by that of the values.
fn nmse(found: &[f64], expected: &[f64]) -> f64 {
    let error: f64 = found.iter().zip(expected).map(|(found, expected)| (found - expected).powi(2)).sum();
    error / expected.iter().map(|value| value * value).sum::<f64>()
}

/// Runs a product on the device and compares it with the definition and with the reference kernel.
///
/// The array rounds both operands to bf16 and sums in f32: beside the exact product of the rounded operands, where rounding is
/// simple, the error is that of the sums alone.
pub fn compare(device: &mut Option<Device>, weights: &Data, columns: &Data, output: Tensor) -> Timing {
    compare_with(device, weights, [columns, columns], output, BOUND)
}

/// The same with columns of their own for the reference kernel, and the highest error beside it.
fn compare_with(
    device: &mut Option<Device>,
    weights: &Data,
    [columns, of_reference]: [&Data; 2],
    output: Tensor,
    bound: f64,
) -> Timing {
    let sources = vec![Some(weights.tensor), Some(columns.tensor)];
    let node = Node::new("MUL_MAT", OpParams::default(), output, sources);
    let kernel = families::build(&node, &aie2()).unwrap_or_else(|error| panic!("{error}"));
    let device = device.get_or_insert_with(|| Device::new(&kernel));
    let (mut a, mut b) = (weights.bytes.clone(), columns.bytes.clone());
    let mut found = Data { tensor: output, bytes: vec![0xAA; output.span_bytes()] };
    let mut reference = found.clone();
    let timing = device.run(&kernel, vec![&mut a, &mut b, &mut found.bytes]);
    let operation = table::lookup("MUL_MAT").unwrap();
    let sources = vec![Some(weights.tensor), Some(of_reference.tensor)];
    let node = Node::new("MUL_MAT", OpParams::default(), output, sources);
    let inputs: [&[u8]; 2] = [&weights.bytes, &of_reference.bytes];
    operation.reference(&node).unwrap().run(&inputs, &mut reference.bytes).unwrap();

    let [_, n, second, third] = output.ne;
    let [_, m, w2, w3] = weights.tensor.ne;
    let rounded =
        |values: Vec<f32>| -> Vec<f64> { values.into_iter().map(|value| f64::from(of_bf16(bf16(value)))).collect() };
    let rows: Vec<Vec<f64>> = (0..weights.tensor.rows()).map(|row| rounded(weights.values_on_cores(row))).collect();
    let (mut values, mut expected, mut of_reference) = (Vec::new(), Vec::new(), Vec::new());
    for column in 0..output.rows() {
        let right = rounded(columns.values(column));
        let (inner, outer) = (column / n % second, column / (n * second));
        let matrix = inner / (second / w2) + w2 * (outer / (third / w3));
        for row in &rows[matrix * m..(matrix + 1) * m] {
            expected.push(row.iter().zip(&right).map(|(a, b)| a * b).sum::<f64>());
        }
        values.extend(found.values(column).into_iter().map(f64::from));
        of_reference.extend(reference.values(column).into_iter().map(f64::from));
    }
    let (of_rounded, of_reference) = (nmse(&values, &expected), nmse(&values, &of_reference));
    // Blocks are decoded in f32 and then rounded, which for numbers between two of bf16 may go the other way.
    let tolerance = if weights.tensor.dtype.is_quantised() { 1e-8 } else { 1e-11 };
    assert!(of_rounded <= tolerance, "NMSE {of_rounded:e} beside the product of rounded operands");
    assert!(of_reference <= bound, "NMSE {of_reference:e} beside the reference kernel");
    // Gaps between rows are as before.
    let written: usize = output.elements() * 4;
    let untouched = found.bytes.iter().filter(|byte| **byte == 0xAA).count();
    assert!(untouched + written >= found.bytes.len(), "{untouched} bytes untouched");
    timing
}

#[rstest]
#[case::one_column([16, 1, 256])]
#[case::four_columns([64, 4, 256])]
#[case::five_columns([16, 5, 256])]
#[case::nine_columns([16, 9, 256])]
#[case::few_rows([3, 2, 64])]
#[case::odd_rows([37, 1, 64])]
#[case::unequal_columns([200, 3, 128])]
#[case::wide([96, 33, 96])]
#[case::wider([64, 65, 64])]
#[case::long_columns([48, 2, 4096])]
#[case::long_columns_in_units([80, 6, 2560])]
fn shapes(#[case] shape: [usize; 3], #[values(DataType::BF16, DataType::F32)] dtype: DataType) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(7);
    let weights = Data::random(Tensor::contiguous(dtype, [k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
}

#[rstest]
#[case::one_row_of_blocks([16, 1, 64])]
#[case::decode([64, 1, 256])]
#[case::two_columns([33, 2, 128])]
#[case::many_columns([48, 20, 192])]
fn quantised(
    #[case] shape: [usize; 3],
    #[values(DataType::Q4_0, DataType::Q4_1, DataType::Q8_0)] dtype: DataType,
    // With the last, scales are subnormal numbers of f16.
    #[values(1.0, 1e-4)] scale: f32,
) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(12);
    let weights = Data::random(Tensor::contiguous(dtype, [k, m, 1, 1]), &mut random, scale);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
}

/// Blocks of 256: one, several in a piece of a row, and several pieces.
#[rstest]
#[case::one_block([16, 1, 256])]
#[case::two_columns([33, 2, 512])]
#[case::many_columns([48, 20, 256])]
#[case::pieces([20, 1, 2560])]
fn blocks_of_256(#[case] shape: [usize; 3], #[values(1.0, 1e-2)] scale: f32) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(13);
    let weights = Data::random(Tensor::contiguous(DataType::Q4_K, [k, m, 1, 1]), &mut random, scale);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
}

/// Columns of one sign, beside which what rounding of scales does to many weights adds up.
#[rstest]
fn columns_of_one_sign(
    #[values(DataType::Q4_0, DataType::Q4_1, DataType::Q8_0, DataType::Q4_K, DataType::Q6_K)] dtype: DataType,
    #[values(1, 8)] n: usize,
) {
    let [m, k] = [48, 1024];
    let mut random = Rng::with_seed(15);
    let weights = Data::random(Tensor::contiguous(dtype, [k, m, 1, 1]), &mut random, 1.0);
    let mut columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    columns.bytes.chunks_exact_mut(4).for_each(|value| value[3] &= 0x7F);
    // Its minimum is rounded as it is, so that the error of the scale counts in full.
    let bound = if dtype == DataType::Q4_1 { 5e-4 } else { BOUND };
    compare_with(&mut None, &weights, [&columns, &columns], f32s([m, n, 1, 1]), bound);
}

/// Pairs of blocks of q6_K: one, two in a piece of a row, and several pieces.
#[rstest]
#[case::one_pair([16, 1, 512])]
#[case::two_columns([33, 2, 1024])]
#[case::many_columns([20, 20, 512])]
#[case::pieces([20, 1, 2560])]
fn blocks_of_six_bits(#[case] shape: [usize; 3], #[values(1.0, 1e-3)] scale: f32) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(18);
    let weights = Data::random(Tensor::contiguous(DataType::Q6_K, [k, m, 1, 1]), &mut random, scale);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
}

/// Columns of bf16, which every type of weights can meet here, though ggml has them with bf16 and f32 only.
#[rstest]
#[case::one_column([16, 1, 256])]
#[case::five_columns([37, 5, 512])]
#[case::many_columns([48, 20, 256])]
fn columns_of_bf16(
    #[case] shape: [usize; 3],
    #[values(DataType::BF16, DataType::F32, DataType::Q4_1, DataType::Q4_K)] dtype: DataType,
) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(14);
    let weights = Data::random(Tensor::contiguous(dtype, [k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(Tensor::contiguous(DataType::BF16, [k, n, 1, 1]), &mut random, 1.0);
    // The reference kernel takes bf16 columns with weights of bf16 and f32 only.
    if dtype.is_quantised() {
        let widened = Data { tensor: f32s([k, n, 1, 1]), bytes: widen(&columns.bytes) };
        compare_with(&mut None, &weights, [&columns, &widened], f32s([m, n, 1, 1]), BOUND);
    } else {
        compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
    }
}

fn widen(bytes: &[u8]) -> Vec<u8> {
    let numbers = bytes.chunks_exact(2).map(|bytes| of_bf16(u16::from_le_bytes([bytes[0], bytes[1]])));
    numbers.flat_map(f32::to_le_bytes).collect()
}

/// Rows that are no whole steps of the inner loop: zeros follow them on their way to the cores, which before held other numbers.
#[rstest]
#[case::two([16, 1, 2])]
#[case::four([20, 7, 4])]
#[case::ten([37, 5, 130])]
#[case::many_columns([20, 18, 70])]
fn depths(
    #[case] shape: [usize; 3],
    #[values(DataType::BF16, DataType::F32)] left: DataType,
    #[values(DataType::BF16, DataType::F32)] right: DataType,
) {
    let [m, n, k] = shape;
    if (left, right) == (DataType::F32, DataType::BF16) && n > 5 {
        return;
    }
    let mut random = Rng::with_seed(15);
    // NaN everywhere, which a product with a zero would not hide.
    let nan = Data { tensor: f32s([96, 32, 1, 1]), bytes: vec![0xFF; 4 * 96 * 32] };
    let node =
        Node::new("MUL_MAT", OpParams::default(), f32s([32, 32, 1, 1]), vec![Some(nan.tensor), Some(nan.tensor)]);
    let kernel = families::build(&node, &aie2()).unwrap();
    let mut device = Device::new(&kernel);
    device.run(&kernel, vec![&mut nan.bytes.clone(), &mut nan.bytes.clone(), &mut vec![0; 4 * 32 * 32]]);
    let mut device = Some(device);
    let weights = Data::random(Tensor::contiguous(left, [k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(Tensor::contiguous(right, [k, n, 1, 1]), &mut random, 1.0);
    compare(&mut device, &weights, &columns, f32s([m, n, 1, 1]));
}

/// Odd depths are whole words in f32; 1057 = 7 x 151 comes in seven pieces, each with zeros behind.
#[rstest]
#[case::one([16, 1, 1])]
#[case::odd([20, 3, 129])]
#[case::pieces([16, 1, 1057])]
fn odd_depths(#[case] shape: [usize; 3]) {
    let [m, n, k] = shape;
    let mut random = Rng::with_seed(16);
    let weights = Data::random(f32s([k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
}

#[rstest]
#[case::batches([16, 2, 64], [3, 1], [3, 1])]
#[case::broadcast([16, 1, 64], [2, 1], [4, 1])]
#[case::both([16, 3, 32], [1, 2], [2, 4])]
fn batches(#[case] shape: [usize; 3], #[case] of_weights: [usize; 2], #[case] of_columns: [usize; 2]) {
    let ([m, n, k], [w2, w3], [n2, n3]) = (shape, of_weights, of_columns);
    let mut random = Rng::with_seed(8);
    let weights = Data::random(Tensor::contiguous(DataType::BF16, [k, m, w2, w3]), &mut random, 1.0);
    let columns = Data::random(f32s([k, n, n2, n3]), &mut random, 1.0);
    compare(&mut None, &weights, &columns, f32s([m, n, n2, n3]));
}

#[rstest]
#[case::rows_apart([0, 2, 1, 3])]
#[case::columns_across([1, 0, 2, 3])]
#[case::batches_exchanged([0, 1, 3, 2])]
fn strides(#[case] order: [usize; 4]) {
    let mut random = Rng::with_seed(9);
    let ne = [64, 6, 2, 2];
    // Contiguous before the exchange, of extents `ne` after it.
    let before: [usize; 4] = std::array::from_fn(|dimension| ne[order[dimension]]);
    let columns = Data::random(permuted(f32s(before), order), &mut random, 1.0);
    let mut weights = Tensor::contiguous(DataType::BF16, [64, 20, 2, 1]);
    if order[0] == 0 {
        weights.nb = [2, 2 * 64 * 2, 64 * 2, 2 * 64 * 2 * 20];
    }
    let weights = Data::random(weights, &mut random, 1.0);
    let mut output = f32s([20, 6, 2, 2]);
    output.nb = [4, 4 * 24 * 2, 4 * 24, 4 * 24 * 12];
    compare(&mut None, &weights, &columns, output);
}

/// One device, one configuration: what a dispatch leaves behind does not disturb the next.
#[test]
fn shapes_follow_each_other() {
    let mut random = Rng::with_seed(10);
    let mut device = None;
    for [m, n, k] in [[16, 1, 64], [40, 17, 96], [3, 2, 32], [128, 4, 64]] {
        let weights = Data::random(Tensor::contiguous(DataType::BF16, [k, m, 1, 1]), &mut random, 1.0);
        let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
        compare(&mut device, &weights, &columns, f32s([m, n, 1, 1]));
    }
}
