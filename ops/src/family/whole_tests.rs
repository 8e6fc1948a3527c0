//! Whole numbers in every operation that takes them, against loops over exact integers.

use super::binary;
use super::cpu::integers::WHOLE;
use super::mul_mat;
use super::testing::*;
use super::unary;
use crate::name::kernel_name;
use crate::node::{Node, OpParams};
use crate::normalise::{F16Policy, normalise};
use crate::tensor::DataType::{self, F32, I8, I16, I32, I64};
use crate::tensor::Tensor;

const UNARY: [&str; 6] = ["ABS", "SGN", "NEG", "STEP", "RELU", "SQR"];
const BINARY: [&str; 3] = ["ADD", "SUB", "MUL"];

/// What is left of `value` in a type: its low bits, or the nearest f32.
fn held(dtype: DataType, value: i64) -> i64 {
    match dtype {
        I8 => (value as i8).into(),
        I16 => (value as i16).into(),
        I32 => (value as i32).into(),
        F32 => (value as f32) as i64,
        other => panic!("{other} is none of the results"),
    }
}

fn least(dtype: DataType) -> i64 {
    -1 << (8 * dtype.block_bytes() - 1)
}

/// A tensor with numbers by index; gaps are 0xAA.
fn filled(tensor: Tensor, mut number: impl FnMut([usize; 4]) -> i64) -> Data {
    let mut bytes = vec![0xAA; tensor.span_bytes()];
    for index in indices(tensor.ne) {
        let at: usize = index.iter().zip(tensor.nb).map(|(i, stride)| i * stride).sum();
        let size = tensor.dtype.block_bytes();
        bytes[at..at + size].copy_from_slice(&number(index).to_le_bytes()[..size]);
    }
    Data { tensor, bytes }
}

/// Numbers over all of the type's range, every fifth of them at one of its ends or next to zero.
fn wide(tensor: Tensor, random: &mut Rng) -> Data {
    let least = least(tensor.dtype);
    let odd = [least, least + 1, -1, 0, 1, -(least + 1)];
    filled(tensor, |_| match random.u32(..30) {
        few @ 0..6 => odd[few as usize],
        _ => held(tensor.dtype, random.i64(..)),
    })
}

/// The element at `index`, which wraps at the extents.
fn number(data: &Data, index: [usize; 4]) -> i64 {
    let Tensor { dtype, ne, nb } = data.tensor;
    let at: usize = (0..4).map(|d| index[d] % ne[d] * nb[d]).sum();
    let bytes = &data.bytes[at..];
    match dtype {
        I8 => i8::from_le_bytes([bytes[0]]).into(),
        I16 => i16::from_le_bytes([bytes[0], bytes[1]]).into(),
        I32 => i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
        _ => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as i64,
    }
}

/// Runs a node and compares every element of the result, and that the gaps keep their bytes.
fn compare(op: &str, output: Tensor, sources: &[&Data], exact: impl Fn([usize; 4]) -> i64) {
    let given: Vec<_> = sources.iter().copied().map(Some).collect();
    let result = run(op, OpParams::default(), output, &given).unwrap();
    let tensors: Vec<_> = sources.iter().map(|source| source.tensor).collect();
    for index in indices(output.ne) {
        let expected = held(output.dtype, exact(index));
        assert_eq!(number(&result, index), expected, "{op} at {index:?} of {output:?} from {tensors:?}");
    }
    let mut touched = vec![false; output.span_bytes()];
    for index in indices(output.ne) {
        let at: usize = index.iter().zip(output.nb).map(|(i, stride)| i * stride).sum();
        touched[at..at + output.dtype.block_bytes()].fill(true);
    }
    assert!(result.bytes.iter().zip(touched).all(|(byte, touched)| touched || *byte == 0xAA), "{op} wrote to a gap");
}

fn of_one(op: &str, x: i64) -> i64 {
    match op {
        "ABS" => x.abs(),
        "SGN" => x.signum(),
        "NEG" => -x,
        "STEP" => (x > 0).into(),
        "RELU" => x.max(0),
        "SQR" => x * x,
        other => panic!("{other} is not defined"),
    }
}

fn of_two(op: &str, x: i64, y: i64) -> i64 {
    match op {
        "ADD" => x + y,
        "SUB" => x - y,
        "MUL" => x * y,
        other => panic!("{other} is not defined"),
    }
}

fn compare_two(op: &str, output: Tensor, a: &Data, b: &Data) {
    compare(op, output, &[a, b], |index| of_two(op, number(a, index), number(b, index)));
}

fn compare_product(output: Tensor, a: &Data, b: &Data) {
    let repeats = [2, 3].map(|d| output.ne[d] / a.tensor.ne[d]);
    compare("MUL_MAT", output, &[a, b], |[m, n, c, d]| {
        let terms =
            (0..a.tensor.ne[0]).map(|k| number(a, [k, m, c / repeats[0], d / repeats[1]]) * number(b, [k, n, c, d]));
        // Of i32 the low bits are the result's.
        terms.fold(0, i64::wrapping_add)
    });
}

/// A tensor of extents `ne` that in memory has its dimensions in another order, and gaps if there is `room`.
fn scattered(dtype: DataType, ne: [usize; 4], order: [usize; 4], room: usize) -> Tensor {
    let mut tensor = Tensor::contiguous(dtype, ne);
    let mut stride = dtype.block_bytes();
    for d in order {
        tensor.nb[d] = stride;
        stride *= ne[d] + room;
    }
    tensor
}

#[rstest]
#[case::single([1, 1, 1, 1], [1, 1, 1, 1])]
#[case::odd([7, 5, 3, 2], [7, 5, 3, 2])]
#[case::row([65, 5, 3, 2], [65, 1, 1, 1])]
#[case::column([6, 5, 3, 2], [1, 5, 1, 2])]
#[case::scalar([33, 5, 1, 1], [1, 1, 1, 1])]
#[case::period([12, 6, 4, 2], [4, 3, 2, 1])]
#[case::long([40_001, 1, 1, 1], [40_001, 1, 1, 1])]
#[case::long_scalar([70_000, 1, 1, 1], [1, 1, 1, 1])]
#[case::long_period([70_000, 1, 1, 1], [7, 1, 1, 1])]
#[case::many_rows([40, 2000, 1, 1], [40, 1, 1, 1])]
fn sums_differences_and_products_are_exact(#[case] a: [usize; 4], #[case] b: [usize; 4]) {
    let mut random = Rng::with_seed(301);
    for (op, dtype) in BINARY.iter().flat_map(|op| WHOLE.iter().map(move |dtype| (*op, *dtype))) {
        let [a, b] = [a, b].map(|ne| wide(Tensor::contiguous(dtype, ne), &mut random));
        compare_two(op, a.tensor, &a, &b);
    }
}

#[test]
fn functions_of_every_byte_are_exact() {
    let bytes = filled(Tensor::contiguous(I8, [16, 16, 1, 1]), |[i, j, ..]| (i + 16 * j) as i64 - 128);
    for op in UNARY {
        compare(op, bytes.tensor, &[&bytes], |index| of_one(op, number(&bytes, index)));
    }
}

#[rstest]
fn functions_are_exact(
    #[values([1, 1, 1, 1], [129, 5, 3, 2], [70_001, 1, 1, 1])] ne: [usize; 4],
    #[values(I8, I16, I32)] dtype: DataType,
) {
    let source = wide(Tensor::contiguous(dtype, ne), &mut Rng::with_seed(302));
    for op in UNARY {
        compare(op, source.tensor, &[&source], |index| of_one(op, number(&source, index)));
    }
}

/// What no type of the result can hold, by hand: the low bits stay.
#[rstest]
#[case(I8, [-128, -128], [0, 0, 0])]
#[case(I8, [127, 1], [-128, 126, 127])]
#[case(I8, [-128, 1], [-127, 127, -128])]
#[case(I8, [100, 3], [103, 97, 44])]
#[case(I8, [-128, -1], [127, -127, -128])]
#[case(I16, [-32768, -32768], [0, 0, 0])]
#[case(I16, [32767, 32767], [-2, 0, 1])]
#[case(I16, [300, 300], [600, 0, 24464])]
#[case(I32, [i64::from(i32::MIN), -1], [2_147_483_647, -2_147_483_647, -2_147_483_648])]
#[case(I32, [2_147_483_647, 2], [-2_147_483_647, 2_147_483_645, -2])]
#[case(I32, [65_537, 65_537], [131_074, 0, 131_073])]
#[case(I32, [16_777_217, 1], [16_777_218, 16_777_216, 16_777_217])]
fn overflow_wraps(#[case] dtype: DataType, #[case] sources: [i64; 2], #[case] expected: [i64; 3]) {
    let tensor = Tensor::contiguous(dtype, [3, 1, 1, 1]);
    let [a, b] = sources.map(|value| filled(tensor, |_| value));
    for (op, expected) in BINARY.iter().zip(expected) {
        let result = run(op, OpParams::default(), tensor, &[Some(&a), Some(&b)]).unwrap();
        assert_eq!([0, 1, 2].map(|i| number(&result, [i, 0, 0, 0])), [expected; 3], "{op}");
    }
}

#[rstest]
fn the_least_number_has_no_magnitude(#[values(I8, I16, I32)] dtype: DataType) {
    let tensor = Tensor::contiguous(dtype, [1; 4]);
    let source = filled(tensor, |_| least(dtype));
    let expected = [least(dtype), -1, least(dtype), 0, 0, 0];
    for (op, expected) in UNARY.iter().zip(expected) {
        let result = run(op, OpParams::default(), tensor, &[Some(&source)]).unwrap();
        assert_eq!(number(&result, [0; 4]), expected, "{op}");
    }
}

#[rstest]
#[case::one((1, 1, 1), [1, 1], [1, 1])]
#[case::vector((19, 1, 64), [1, 1], [1, 1])]
#[case::odd((7, 3, 37), [1, 1], [2, 3])]
#[case::grouped((9, 4, 33), [2, 3], [4, 6])]
#[case::parallel((70, 50, 130), [2, 1], [2, 1])]
#[case::blocks_of_rows((300, 2, 4100), [1, 1], [1, 1])]
fn products_of_matrices_are_exact(
    #[case] (m, n, k): (usize, usize, usize),
    #[case] weights: [usize; 2],
    #[case] right: [usize; 2],
    #[values((I8, I8), (I8, I16), (I8, I32), (I8, F32), (I16, I16), (I16, I32), (I16, F32), (I32, I32))] types: (
        DataType,
        DataType,
    ),
) {
    let mut random = Rng::with_seed(303);
    let a = wide(Tensor::contiguous(types.0, [k, m, weights[0], weights[1]]), &mut random);
    let b = wide(Tensor::contiguous(types.0, [k, n, right[0], right[1]]), &mut random);
    compare_product(Tensor::contiguous(types.1, [m, n, right[0], right[1]]), &a, &b);
}

/// Sums beyond 32 bits: their low bits in whole results, the sum itself in f32.
#[rstest]
#[case(I8, -128, 1 << 17, I32, i64::from(i32::MIN))]
#[case(I8, -128, 1 << 18, I32, 0)]
#[case(I8, -128, 1 << 18, F32, 1 << 32)]
#[case(I8, -128, 3, I16, -16384)]
#[case(I8, -128, 2, I16, -32768)]
#[case(I8, -128, 2, I8, 0)]
#[case(I8, -127, 1, I8, 1)]
#[case(I16, -32768, 2, I32, i64::from(i32::MIN))]
#[case(I16, -32768, 2, F32, 1 << 31)]
#[case(I16, -32767, 4, F32, 4 * 32767 * 32767)]
#[case(I16, -32767, 2, I16, 2)]
#[case(I32, -2, 3, I32, 12)]
#[case(I32, i64::from(i32::MIN), 3, I32, 0)]
#[case(I32, 65_537, 1, I32, 131_073)]
fn sums_of_extremes(
    #[case] dtype: DataType,
    #[case] value: i64,
    #[case] length: usize,
    #[case] result: DataType,
    #[case] expected: i64,
) {
    let a = filled(Tensor::contiguous(dtype, [length, 1, 1, 1]), |_| value);
    let output = Tensor::contiguous(result, [1; 4]);
    let found = run("MUL_MAT", OpParams::default(), output, &[Some(&a), Some(&a)]).unwrap();
    assert_eq!(number(&found, [0; 4]), held(result, expected));
}

#[rstest]
fn a_sum_of_nothing_is_zero(#[values(I8, I16, I32, F32)] result: DataType) {
    let sources = [[0, 3, 1, 1], [0, 2, 1, 1]].map(|ne| Some(Tensor::contiguous(I8, ne)));
    let output = Tensor::contiguous(result, [3, 2, 1, 1]);
    let kernel = find("MUL_MAT").reference(&node("MUL_MAT", OpParams::default(), output, &sources)).unwrap();
    let mut bytes = vec![0xAA; output.span_bytes()];
    kernel.run(&[&[], &[]], &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

/// Shapes, types, strides and repetitions at random.
#[test]
fn anything_that_is_accepted_is_the_loop() {
    const ORDERS: [[usize; 4]; 5] = [[0, 1, 2, 3], [1, 0, 2, 3], [2, 1, 0, 3], [3, 0, 1, 2], [0, 2, 1, 3]];
    let mut random = Rng::with_seed(304);
    for _ in 0..400 {
        let mut below = |end: usize| random.usize(..end);
        let dtype = WHOLE[below(3)];
        let ne = [1 + below(40), 1 + below(5), 1 + below(3), 1 + below(3)];
        // Each extent of what repeats divides the other's.
        let part =
            ne.map(|extent| *[1, extent, if extent % 2 == 0 { extent / 2 } else { extent }].get(below(3)).unwrap());
        let (orders, rooms) = ([ORDERS[below(5)], ORDERS[below(5)]], [below(3), below(3), below(3)]);
        let (two, one) = (BINARY[below(3)], UNARY[below(6)]);
        let (rows, columns) = (1 + below(11), 1 + below(6));
        let factor = [I8, I16, I32][below(3)];
        let results: &[DataType] = match factor {
            I8 => &[I8, I16, I32, F32],
            I16 => &[I16, I32, F32],
            _ => &[I32],
        };
        let result = results[below(results.len())];

        let output = scattered(dtype, ne, [0, 2, 1, 3], rooms[2]);
        let a = wide(scattered(dtype, ne, orders[0], rooms[0]), &mut random);
        let b = wide(scattered(dtype, part, orders[1], rooms[1]), &mut random);
        compare_two(two, output, &a, &b);
        compare(one, output, &[&a], |index| of_one(one, number(&a, index)));

        let a = wide(scattered(factor, [ne[0], rows, part[2], part[3]], orders[0], rooms[0]), &mut random);
        let b = wide(scattered(factor, [ne[0], columns, ne[2], ne[3]], orders[1], rooms[1]), &mut random);
        compare_product(scattered(result, [rows, columns, ne[2], ne[3]], [0, 2, 1, 3], rooms[2]), &a, &b);
    }
}

/// The message of the rule that a node breaks.
fn refusal(op: &str, output: DataType, sources: &[DataType]) -> String {
    let tensor = |dtype| Tensor::contiguous(dtype, [8, 8, 1, 1]);
    let sources: Vec<_> = sources.iter().map(|dtype| Some(tensor(*dtype))).collect();
    let node = node(op, OpParams::default(), tensor(output), &sources);
    find(op).check(&node).map_or_else(|error| error.to_string(), |()| "accepted".to_owned())
}

#[rstest]
#[case("ADD", I8, &[I8, I16], "ADD: type i16 of source 1; possible: i8")]
#[case("SUB", I32, &[I8, I8], "SUB: type i32 of the result; possible: i8")]
#[case("MUL", I32, &[I32, F32], "MUL: type f32 of source 1; possible: i32")]
#[case("ADD", F32, &[I32, I32], "ADD: type f32 of the result; possible: i32")]
#[case("ADD", I64, &[I64, I64], "possible: f32, f16, bf16, i8, i16 or i32 alike")]
#[case("DIV", I32, &[I32, I32], "DIV: type i32 of source 0; possible: f32, f16 or bf16 alike")]
#[case("ABS", F32, &[I8], "ABS: type f32 of the result; possible: i8")]
#[case("NEG", I64, &[I64], "NEG: type i64 of source 0; possible: f32, f16, bf16, i8, i16, i32")]
#[case("HARDSIGMOID", I8, &[I8], "HARDSIGMOID: type i8 of source 0; possible: f32, f16, bf16")]
#[case("SCALE", I8, &[I8], "SCALE: type i8 of source 0; possible: f32, f16, bf16")]
#[case("MUL_MAT", I32, &[I8, I16], "MUL_MAT: type i16 of source 1; possible: i8 with i8; i16 with i16; i32 with i32")]
#[case("MUL_MAT", I8, &[I16, I16], "MUL_MAT: type i8 of the result; possible: i32; f32 or i16 of i8 and i16; i8 of i8")]
#[case("MUL_MAT", I64, &[I8, I8], "MUL_MAT: type i64 of the result; possible: i32; f32 or i16 of i8 and i16; i8 of i8")]
#[case("MUL_MAT", F32, &[I32, I32], "MUL_MAT: type f32 of the result; possible: i32; f32 or i16 of i8 and i16; i8 of i8")]
#[case("MUL_MAT", I32, &[I64, I64], "MUL_MAT: type i64 of source 0; possible: f32, f16, bf16, i8, i16, i32, quantised")]
fn other_types_are_refused_by_name(
    #[case] op: &str,
    #[case] output: DataType,
    #[case] sources: &[DataType],
    #[case] expected: &str,
) {
    let message = refusal(op, output, sources);
    assert!(message.contains(expected), "{message}");
}

/// Products of whole numbers are not fused: intermediate values of fused operations are f32.
#[test]
fn products_of_whole_numbers_stay_single() {
    let tensor = |dtype, ne| Some(Tensor::contiguous(dtype, ne));
    let out = f32s([8, 2, 1, 1]);
    for (dtype, expected) in [(DataType::BF16, true), (I8, false), (I16, false), (I32, false)] {
        let sources = [tensor(dtype, [64, 8, 1, 1]), tensor(dtype, [64, 2, 1, 1]), tensor(F32, [8, 1, 1, 1])];
        let node = node("MUL_MAT_ADD", OpParams::default(), out, &sources);
        assert_eq!(find("MUL_MAT_ADD").check(&node).is_ok(), expected, "{dtype}");
    }
}

/// As the C++ backend's: flattened where all shapes are alike, the result first.
#[rstest]
#[case("ADD", [I8, I8, I8], [[32, 32, 1, 1]; 3], "add-1024i8-1024i8-1024i8")]
#[case("MUL", [I16, I16, I16], [[10, 5, 4, 3], [10, 5, 4, 3], [10, 1, 1, 1]], "mul-10x5x4x3i16-10x5x4x3i16-10i16")]
#[case("SUB", [I32, I32, I32], [[1; 4]; 3], "sub-1i32-1i32-1i32")]
#[case("MUL_MAT", [I32, I16, I16], [[64, 2, 1, 1], [32, 64, 1, 1], [32, 2, 1, 1]], "mul_mat-64x2i32-32x64i16-32x2i16")]
#[case("MUL_MAT", [F32, I8, I8], [[64, 2, 1, 1], [32, 64, 1, 1], [32, 2, 1, 1]], "mul_mat-64x2f32-32x64i8-32x2i8")]
fn names_are_those_of_the_cpp_backend(
    #[case] op: &str,
    #[case] types: [DataType; 3],
    #[case] ne: [[usize; 4]; 3],
    #[case] expected: &str,
    #[values(F16Policy::F32, F16Policy::Bf16)] policy: F16Policy,
) {
    let [output, a, b] = std::array::from_fn(|i| Tensor::contiguous(types[i], ne[i]));
    assert_eq!(normalised_name(&node(op, OpParams::default(), output, &[Some(a), Some(b)]), policy), expected);
}

fn normalised_name(node: &Node, policy: F16Policy) -> String {
    let op = find(&node.op);
    op.check(node).unwrap();
    let normalised = normalise(op, node, policy).unwrap();
    op.check(&normalised.node).unwrap();
    kernel_name(op, &normalised.node)
}

#[rstest]
fn functions_are_flattened_and_packed(#[values(I8, I16, I32)] dtype: DataType) {
    let output = Tensor::contiguous(dtype, [10, 5, 4, 1]);
    let turned = scattered(dtype, output.ne, [1, 0, 2, 3], 0);
    for source in [output, turned] {
        let node = node("NEG", OpParams::default(), output, &[Some(source)]);
        assert_eq!(normalised_name(&node, F16Policy::F32), format!("neg-200{dtype}-200{dtype}"));
    }
}

#[rstest]
fn kernels_of_whole_numbers_are_made(#[values(I8, I16, I32)] dtype: DataType) {
    let named = |operations: &[&'static dyn crate::Operation], names: &[&str]| -> Vec<&dyn crate::Operation> {
        operations.iter().copied().filter(|op| names.contains(&op.name())).collect()
    };
    let (two, one) = (named(binary::OPERATIONS, &BINARY), named(unary::OPERATIONS, &UNARY));
    assert_eq!((two.len(), one.len()), (BINARY.len(), UNARY.len()));
    assert_made(&two, &[dtype]);
    assert_made(&one, &[dtype]);
    if dtype != I32 {
        assert_made(mul_mat::OPERATIONS, &[dtype]);
    }
}
