use super::super::testing::*;
use super::*;

/// Ids for `used` experts of each token, different ones, as the first columns of a wider tensor.
fn choose(experts: usize, used: usize, tokens: usize) -> Data {
    let tensor = Tensor {
        dtype: DataType::I32,
        ne: [used, tokens, 1, 1],
        nb: [4, experts * 4, experts * tokens * 4, experts * tokens * 4],
    };
    let ids: Vec<f32> = (0..used * tokens).map(|i| ((i % used + i / used * 3) % experts) as f32).collect();
    Data::new(tensor, &ids)
}

/// Compares with the product in double precision.
fn assert_product(weights: &Data, x: &Data, ids: &Data, tolerance: f64) {
    let out = f32s([weights.tensor.ne[1], ids.tensor.ne[0], ids.tensor.ne[1], 1]);
    let sources = [weights, x, ids];
    assert_formula(MUL_MAT_ID, OpParams::default(), out, &sources, tolerance, |[row, slot, token, _], get| {
        let expert = get(2, [slot, token, 0, 0]) as usize;
        (0..weights.tensor.ne[0]).map(|k| get(0, [k, row, expert, 0]) * get(1, [k, slot, token, 0])).sum()
    });
}

#[rstest]
#[case::one_token(64, 33, 1, 2)]
#[case::short_rows(32, 7, 5, 2)]
#[case::all_experts(96, 16, 9, 5)]
#[case::large(256, 130, 40, 3)]
fn products_are_the_definition(
    #[case] length: usize,
    #[case] rows: usize,
    #[case] tokens: usize,
    #[case] used: usize,
    #[values(DataType::F32, DataType::F16, DataType::BF16, DataType::Q8_0, DataType::Q4_1)] dtype: DataType,
    #[values(false, true)] repeated: bool,
) {
    let mut random = Rng::with_seed(23);
    let weights = Data::random(Tensor::contiguous(dtype, [length, rows, 5, 1]), &mut random);
    let x = Data::random(f32s([length, if repeated { 1 } else { used }, tokens, 1]), &mut random);
    assert_product(&weights, &x, &choose(5, used, tokens), 2e-5);
}

#[rstest]
#[case(DataType::F16)]
#[case(DataType::BF16)]
fn the_right_operand_may_be_half(#[case] dtype: DataType) {
    let mut random = Rng::with_seed(24);
    let weights = Data::random(Tensor::contiguous(dtype, [40, 9, 3, 1]), &mut random);
    let x = Data::random(Tensor::contiguous(dtype, [40, 2, 4, 1]), &mut random);
    assert_product(&weights, &x, &choose(3, 2, 4), 1e-5);
}

#[test]
fn strided_operands_are_read_where_they_lie() {
    let mut random = Rng::with_seed(25);
    let part = Tensor { ne: [20, 6, 3, 1], ..f32s([20, 8, 3, 1]) };
    let weights = Data::random(part, &mut random);
    let x = Data::random(permuted(&f32s([20, 4, 2, 1]), [0, 2, 1, 3]), &mut random);
    assert_product(&weights, &x, &choose(3, 2, 4), 1e-5);
}

/// Weights of an expert that was not chosen are not read: here they could not be decoded.
#[test]
fn only_chosen_experts_count() {
    let mut random = Rng::with_seed(26);
    let mut weights = Data::random(f32s([16, 4, 3, 1]), &mut random);
    weights.bytes[16 * 4 * 4..2 * 16 * 4 * 4].fill(0xFF);
    let x = Data::random(f32s([16, 1, 1, 1]), &mut random);
    let ids = Data::contiguous(DataType::I32, [2, 1, 1, 1], &[2.0, 0.0]);
    let result = run(MUL_MAT_ID, OpParams::default(), f32s([4, 2, 1, 1]), &[Some(&weights), Some(&x), Some(&ids)]);
    assert!(result.unwrap().values().iter().all(|y| y.is_finite()));
}

#[rstest]
#[case(MUL_MAT_ID, -1)]
#[case(MUL_MAT_ID, 3)]
#[case(MUL_MAT_ID, i32::MIN)]
#[case(ADD_ID, -1)]
#[case(ADD_ID, 3)]
fn ids_out_of_range_are_data_errors(#[case] op: &str, #[case] id: i32) {
    let (first, second) = if op == MUL_MAT_ID { ([8, 8, 3, 1], [8, 2, 4, 1]) } else { ([8, 2, 4, 1], [8, 3, 1, 1]) };
    let (first, second) = (f32s(first), f32s(second));
    let ids = Tensor::contiguous(DataType::I32, [2, 4, 1, 1]);
    let node = node(op, OpParams::default(), f32s([8, 2, 4, 1]), &[Some(first), Some(second), Some(ids)]);
    let kernel = find(op).reference(&node).unwrap();
    let mut bytes = vec![0; ids.span_bytes()];
    bytes[28..].copy_from_slice(&id.to_le_bytes());
    let (first, second) = (vec![0; first.span_bytes()], vec![0; second.span_bytes()]);
    let error = kernel.run(&[&first, &second, &bytes], &mut vec![0; node.output.span_bytes()]).unwrap_err();
    assert!(matches!(&error, HostFunctionError::Data { .. }), "{error}");
    assert!(error.to_string().contains(&format!("expert {id} is out of range; possible: 0 to 3")), "{error}");
}

#[rstest]
#[case::integers(|node: &mut Node| node.sources[0] = Some(Tensor::contiguous(DataType::I32, [32, 6, 3, 1])))]
#[case::half_with_quantised(|node: &mut Node| node.sources[1] = Some(Tensor::contiguous(DataType::F16, [32, 2, 4, 1])))]
#[case::ids_of_another_type(|node: &mut Node| node.sources[2] = Some(f32s([2, 4, 1, 1])))]
#[case::ids_of_other_tokens(|node: &mut Node| node.sources[2] = Some(Tensor::contiguous(DataType::I32, [2, 3, 1, 1])))]
#[case::no_columns(|node: &mut Node| node.sources[1] = Some(f32s([32, 0, 4, 1])))]
#[case::columns_do_not_repeat(|node: &mut Node| node.sources[1] = Some(f32s([32, 3, 4, 1])))]
#[case::depth(|node: &mut Node| node.sources[1] = Some(f32s([64, 2, 4, 1])))]
#[case::output(|node: &mut Node| node.output = f32s([6, 4, 2, 1]))]
#[case::four_dimensions(|node: &mut Node| node.sources[0] = Some(Tensor::contiguous(DataType::Q8_0, [32, 6, 3, 2])))]
#[case::missing(|node: &mut Node| node.sources.truncate(2))]
fn products_that_do_not_fit_are_rejected(#[case] change: fn(&mut Node)) {
    let sources = [
        Tensor::contiguous(DataType::Q8_0, [32, 6, 3, 1]),
        f32s([32, 2, 4, 1]),
        Tensor::contiguous(DataType::I32, [2, 4, 1, 1]),
    ];
    assert_rejected(node(MUL_MAT_ID, OpParams::default(), f32s([6, 2, 4, 1]), &sources.map(Some)), change);
}

#[test]
fn weights_keep_their_type_on_the_array() {
    use crate::normalise::{F16Policy, normalise};
    for dtype in [DataType::F16, DataType::Q4_K, DataType::IQ1_S] {
        for node in find(MUL_MAT_ID).examples(dtype) {
            for policy in [F16Policy::F32, F16Policy::Bf16] {
                assert!(!normalise(find(MUL_MAT_ID), &node, policy).unwrap().needs_conversion(), "{dtype}");
            }
        }
    }
}

#[rstest]
#[case::plain([33, 4, 7, 1], false)]
#[case::large([128, 8, 100, 2], false)]
#[case::strided([16, 3, 5, 1], true)]
fn sums_are_the_definition(#[case] ne: [usize; 4], #[case] strided: bool) {
    let mut random = Rng::with_seed(27);
    let tensor = f32s(ne);
    let source = if strided { permuted(&f32s([ne[0], ne[2], ne[1], ne[3]]), [0, 2, 1, 3]) } else { tensor };
    let a = Data::random(source, &mut random);
    let b = Data::random(f32s([ne[0], 9, 1, 1]), &mut random);
    let ids = choose(9, ne[1], ne[2]);
    assert_formula(ADD_ID, OpParams::default(), tensor, &[&a, &b, &ids], 1e-6, |[i, slot, token, outer], get| {
        let expert = get(2, [slot, token, 0, 0]) as usize;
        get(0, [i, slot, token, outer]) + get(1, [i, expert, 0, 0])
    });
}

#[rstest]
#[case::width(f32s([8, 2, 4, 1]), f32s([9, 3, 1, 1]), [2, 4, 1, 1])]
#[case::slots(f32s([8, 2, 4, 1]), f32s([8, 3, 1, 1]), [3, 4, 1, 1])]
#[case::tokens(f32s([8, 2, 4, 1]), f32s([8, 3, 1, 1]), [2, 5, 1, 1])]
#[case::no_matrix_of_ids(f32s([8, 2, 4, 1]), f32s([8, 3, 1, 1]), [2, 4, 0, 1])]
#[case::half(f32s([8, 2, 4, 1]), Tensor::contiguous(DataType::F16, [8, 3, 1, 1]), [2, 4, 1, 1])]
fn sums_that_do_not_fit_are_rejected(#[case] a: Tensor, #[case] b: Tensor, #[case] ids: [usize; 4]) {
    assert!(!accepts(ADD_ID, OpParams::default(), a, &[a, b, Tensor::contiguous(DataType::I32, ids)]));
}

#[test]
fn both_are_made() {
    assert_made(OPERATIONS, &[DataType::F32, DataType::Q4_K]);
}
