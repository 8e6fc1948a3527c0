//! Copies against an element-by-element definition.

use super::super::testing::*;
use super::*;

fn copy(op: &str, source: &Data, output: Tensor) -> Vec<f32> {
    run(op, OpParams::default(), output, &[Some(source)]).unwrap().values()
}

fn exact(source: &Data) -> Vec<f64> {
    source.values().into_iter().map(f64::from).collect()
}

const ORDERS: [[usize; 4]; 6] = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [3, 1, 2, 0], [1, 2, 0, 3], [2, 3, 0, 1]];

#[rstest]
fn any_permutation_to_any_permutation(
    #[values(DataType::F32, DataType::F16, DataType::I16)] from: DataType,
    #[values(0, 1, 2, 3, 4, 5)] a: usize,
    #[values(0, 1, 2, 3, 4, 5)] b: usize,
) {
    // The source's dimensions are exchanged one way, the result's another, and the extents agree.
    let target = permuted(&Tensor::contiguous(from, [5, 6, 3, 2]), ORDERS[b]);
    let mut inverse = [0; 4];
    for (i, d) in ORDERS[a].into_iter().enumerate() {
        inverse[d] = i;
    }
    let source = permuted(&Tensor::contiguous(from, permuted(&target, inverse).ne), ORDERS[a]);
    assert_eq!(source.ne, target.ne);
    let values: Vec<f32> = (0..180).map(|i| i as f32).collect();
    let source = Data::new(source, &values);
    assert_close(&copy("DUP", &source, target), exact(&source), 0.0);
}

#[rstest]
#[case(DataType::F32, DataType::F16, 1.0 / 2048.0)]
#[case(DataType::F32, DataType::BF16, 1.0 / 256.0)]
#[case(DataType::F16, DataType::F32, 0.0)]
#[case(DataType::F16, DataType::BF16, 1.0 / 256.0)]
#[case(DataType::BF16, DataType::F32, 0.0)]
#[case(DataType::BF16, DataType::F16, 1.0 / 2048.0)]
#[case(DataType::F32, DataType::Q8_0, 0.01)]
#[case(DataType::F16, DataType::Q8_0, 0.01)]
#[case(DataType::Q8_0, DataType::F32, 0.0)]
#[case(DataType::Q8_0, DataType::Q8_0, 0.0)]
fn types_are_converted(
    #[case] from: DataType,
    #[case] to: DataType,
    #[case] tolerance: f64,
    #[values([64, 3, 2, 2], [96, 1, 1, 1], [2048, 40, 1, 1])] ne: [usize; 4],
) {
    let source = Data::random(Tensor::contiguous(from, ne), &mut Rng::with_seed(81));
    assert_close(&copy("CPY", &source, Tensor::contiguous(to, ne)), exact(&source), tolerance);
    // Rows in another order.
    let moved = permuted(&Tensor::contiguous(from, [ne[0], ne[2], ne[1], ne[3]]), [0, 2, 1, 3]);
    let source = Data::random(moved, &mut Rng::with_seed(82));
    assert_close(&copy("CPY", &source, Tensor::contiguous(to, ne)), exact(&source), tolerance);
    // Into rows with gaps between them.
    let mut spread = Tensor::contiguous(to, ne);
    spread.nb[1] += spread.nb[0] * 2;
    spread.nb[2] = spread.nb[1] * ne[1];
    spread.nb[3] = spread.nb[2] * ne[2];
    assert_close(&copy("CPY", &source, spread), exact(&source), tolerance);
}

#[test]
fn integers_truncate() {
    let source = Data::contiguous(DataType::F32, [4, 1, 1, 1], &[1.9, -1.9, 3e10, f32::NAN]);
    let result = copy("CPY", &source, Tensor::contiguous(DataType::I32, [2, 2, 1, 1]));
    assert_eq!(result, [1.0, -1.0, i32::MAX as f32, 0.0]);
    let source = Data::contiguous(DataType::I32, [3, 1, 1, 1], &[7.0, -8.0, 0.0]);
    assert_eq!(copy("CPY", &source, f32s([3, 1, 1, 1])), [7.0, -8.0, 0.0]);
}

#[rstest]
fn shapes_may_differ(#[values(DataType::F32, DataType::F16)] to: DataType, #[values(false, true)] strided: bool) {
    let mut random = Rng::with_seed(83);
    let shape = f32s([6, 4, 5, 1]);
    let source = if strided { permuted(&shape, [1, 0, 2, 3]) } else { shape };
    let source = Data::random(source, &mut random);
    for target in [[12, 10, 1, 1], [1, 120, 1, 1], [5, 3, 2, 4]] {
        for gap in [0, 6] {
            let mut target = Tensor::contiguous(to, target);
            for d in 1..4 {
                target.nb[d] += gap * target.nb[d] / target.nb[1];
            }
            target.nb[2] = target.nb[1] * target.ne[1];
            target.nb[3] = target.nb[2] * target.ne[2];
            assert_close(&copy("CPY", &source, target), exact(&source), 1.0 / 2048.0);
        }
    }
}

#[test]
fn blocks_change_shape_by_way_of_elements() {
    let mut random = Rng::with_seed(84);
    let source = Data::random(permuted(&f32s([3, 64, 2, 1]), [1, 0, 2, 3]), &mut random);
    let blocks =
        run("CPY", OpParams::default(), Tensor::contiguous(DataType::Q8_0, [32, 12, 1, 1]), &[Some(&source)]).unwrap();
    assert_close(&blocks.values(), exact(&source), 0.01);
    let transposed = permuted(&f32s([12, 32, 1, 1]), [1, 0, 2, 3]);
    assert_close(&copy("CPY", &blocks, transposed), exact(&blocks), 0.0);
}

#[test]
fn the_destination_slot_is_not_read() {
    let source = Data::random(f32s([8, 2, 1, 1]), &mut Rng::with_seed(85));
    let unread = Data { tensor: source.tensor, bytes: Vec::new() };
    let result = run("CPY", OpParams::default(), source.tensor, &[Some(&source), Some(&unread)]).unwrap();
    assert_eq!(result.bytes, source.bytes);
}

#[rstest]
#[case(DataType::Q8_0, DataType::BF16)]
#[case(DataType::BF16, DataType::Q8_0)]
#[case(DataType::I32, DataType::BF16)]
#[case(DataType::F16, DataType::F32)]
fn conversions_are_wider_than_copies(#[case] from: DataType, #[case] to: DataType) {
    // Blocks whose largest element is 127 have a scale of one, so that nothing is rounded.
    let values: Vec<f32> = (0..128).map(|i| if i % 32 == 31 { 127.0 } else { (i % 32) as f32 }).collect();
    let source = Data::contiguous(from, [64, 2, 1, 1], &values);
    let mut result = Data::contiguous(to, [128, 1, 1, 1], &[0.0; 128]);
    let kernel = convert(&source.tensor, &result.tensor).unwrap();
    kernel.run(&[&source.bytes], &mut result.bytes).unwrap();
    assert_close(&result.values(), exact(&source), 0.0);
}

#[rstest]
#[case::count([8, 1, 1, 1], [9, 1, 1, 1], DataType::F32, DataType::F32)]
#[case::no_integer_halves([8, 1, 1, 1], [8, 1, 1, 1], DataType::I32, DataType::F16)]
#[case::not_encoded([256, 1, 1, 1], [256, 1, 1, 1], DataType::F32, DataType::IQ2_XXS)]
#[case::not_even_copied([256, 1, 1, 1], [256, 1, 1, 1], DataType::IQ2_XXS, DataType::IQ2_XXS)]
#[case::blocks_to_halves([256, 1, 1, 1], [256, 1, 1, 1], DataType::Q8_0, DataType::F16)]
fn rejects(#[case] a: [usize; 4], #[case] b: [usize; 4], #[case] from: DataType, #[case] to: DataType) {
    assert!(!accepts("CPY", OpParams::default(), Tensor::contiguous(to, b), &[Tensor::contiguous(from, a)]));
}

#[test]
fn a_type_that_can_only_be_read_is_not_converted_to() {
    let plain = f32s([256, 1, 1, 1]);
    let blocks = Tensor::contiguous(DataType::IQ2_XXS, plain.ne);
    let error = convert(&plain, &blocks).unwrap_err().to_string();
    assert!(error.contains("type iq2_xxs of the result"), "{error}");
    assert!(convert(&blocks, &plain).is_ok());
}
