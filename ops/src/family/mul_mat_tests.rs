//! Products against the definition in double precision.

use super::super::testing::*;
use super::*;

fn compare(a: &Data, b: &Data, output: Tensor) {
    let [ka, _, a2, a3] = a.tensor.ne;
    let (r2, r3) = (output.ne[2] / a2, output.ne[3] / a3);
    // Rounding errors grow with the root of the number of products.
    let tolerance = 3e-7 * (ka as f64).sqrt().max(4.0);
    assert_formula(NAME, OpParams::default(), output, &[a, b], tolerance, |[m, n, c, d], get| {
        (0..ka).map(|k| get(0, [k, m, c / r2, d / r3]) * get(1, [k, n, c, d])).sum()
    });
}

#[rstest]
#[case::vector((16, 1, 64), [1, 1], [1, 1])]
#[case::tail((7, 3, 37), [1, 1], [1, 1])]
#[case::single((1, 1, 1), [1, 1], [1, 1])]
#[case::short((5, 6, 3), [2, 1], [2, 1])]
#[case::grouped_heads((24, 5, 32), [3, 1], [9, 1])]
#[case::grouped_batches((9, 4, 32), [2, 3], [4, 6])]
#[case::many_columns((33, 40, 96), [1, 1], [1, 1])]
#[case::parallel_rows((1000, 2, 600), [1, 1], [1, 1])]
#[case::parallel_columns((20, 400, 200), [1, 1], [1, 1])]
#[case::parallel_both((130, 70, 64), [2, 1], [4, 1])]
#[case::blocks_of_rows((150, 13, 2080), [1, 1], [1, 1])]
fn is_the_definition(
    #[case] (m, n, k): (usize, usize, usize),
    #[case] weights: [usize; 2],
    #[case] right: [usize; 2],
    #[values((DataType::F32, DataType::F32), (DataType::BF16, DataType::F32), (DataType::F16, DataType::F32),
             (DataType::F16, DataType::F16), (DataType::BF16, DataType::BF16), (DataType::F32, DataType::BF16),
             (DataType::Q8_0, DataType::F32))]
    types: (DataType, DataType),
) {
    let mut random = Rng::with_seed(101);
    let k = if types.0.is_quantised() { k.next_multiple_of(32) } else { k };
    let a = Data::random(Tensor::contiguous(types.0, [k, m, weights[0], weights[1]]), &mut random);
    let b = Data::random(Tensor::contiguous(types.1, [k, n, right[0], right[1]]), &mut random);
    compare(&a, &b, f32s([m, n, right[0], right[1]]));
}

#[rstest]
fn operands_and_result_may_be_strided(
    #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
    #[values([0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1], [1, 0, 2, 3])] order: [usize; 4],
    #[values(2, 30)] n: usize,
) {
    let mut random = Rng::with_seed(102);
    let from = |ne: [usize; 4], dtype| {
        // Contiguous before the exchange, of extents `ne` after it.
        let before: [usize; 4] = std::array::from_fn(|i| ne[order[i]]);
        permuted(&Tensor::contiguous(dtype, before), order)
    };
    let a = Data::random(from([48, 10, 3, 2], dtype), &mut random);
    let b = Data::random(from([48, n, 6, 4], DataType::F32), &mut random);
    let mut output = f32s([10, n, 6, 4]);
    output.nb = [4, 4 * 6 * 12, 48, 4 * 6 * 12 * n];
    compare(&a, &b, output);
}

#[test]
fn a_sum_of_nothing_is_zero() {
    let (a, b) = (f32s([0, 3, 1, 1]), f32s([0, 2, 1, 1]));
    let output = f32s([3, 2, 1, 1]);
    let kernel = find(NAME).reference(&node(NAME, OpParams::default(), output, &[Some(a), Some(b)])).unwrap();
    let mut bytes = [0xAA; 24];
    kernel.run(&[&[], &[]], &mut bytes).unwrap();
    assert_eq!(bytes, [0; 24]);
}

#[test]
fn infinities_and_nans_arrive() {
    let mut a = vec![1.0; 64];
    a[5] = f32::INFINITY;
    a[32 + 7] = f32::NAN;
    let a = Data::contiguous(DataType::BF16, [32, 2, 1, 1], &a);
    let b = Data::contiguous(DataType::F32, [32, 1, 1, 1], &[1.0; 32]);
    let result = run(NAME, OpParams::default(), f32s([2, 1, 1, 1]), &[Some(&a), Some(&b)]).unwrap();
    assert_eq!(result.values()[0], f32::INFINITY);
    assert!(result.values()[1].is_nan());
}

#[rstest]
#[case(DataType::F32, DataType::F16, 0, false)]
#[case(DataType::F32, DataType::F16, HINT_HADAMARD, true)]
#[case(DataType::F16, DataType::F16, 0, true)]
#[case(DataType::F16, DataType::BF16, 0, false)]
#[case(DataType::Q4_0, DataType::F32, 0, true)]
#[case(DataType::Q4_0, DataType::F16, 0, false)]
#[case(DataType::I32, DataType::F32, 0, false)]
#[case(DataType::I8, DataType::F32, 0, false)]
#[case(DataType::F32, DataType::I8, 0, false)]
fn accepts_the_types_of_the_cpu_backend(
    #[case] a: DataType,
    #[case] b: DataType,
    #[case] hint: i32,
    #[case] possible: bool,
) {
    let (a, b) = (Tensor::contiguous(a, [64, 4, 1, 1]), Tensor::contiguous(b, [64, 2, 1, 1]));
    let mut params = OpParams::default();
    params.0[1] = hint;
    assert_eq!(accepts(NAME, params, f32s([4, 2, 1, 1]), &[a, b]), possible);
}

#[rstest]
#[case::inner([64, 4, 1, 1], [32, 2, 1, 1], [4, 2, 1, 1])]
#[case::output([64, 4, 1, 1], [64, 2, 1, 1], [2, 4, 1, 1])]
#[case::repeat([64, 4, 2, 1], [64, 2, 3, 1], [4, 2, 3, 1])]
#[case::more_weights([64, 4, 4, 1], [64, 2, 2, 1], [4, 2, 2, 1])]
fn rejects_shapes(#[case] a: [usize; 4], #[case] b: [usize; 4], #[case] out: [usize; 4]) {
    assert!(!accepts(NAME, OpParams::default(), f32s(out), &[f32s(a), f32s(b)]));
}

#[test]
fn overlapping_rows_of_the_result_are_rejected() {
    let mut out = f32s([4, 2, 1, 1]);
    out.nb[1] = 8;
    assert!(!accepts(NAME, OpParams::default(), out, &[f32s([8, 4, 1, 1]), f32s([8, 2, 1, 1])]));
}
