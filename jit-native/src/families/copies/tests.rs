//! Copies on the emulator, byte for byte beside the reference kernels.

use super::*;
use crate::array::testing::{Device, aie2, arch, bytes_of, words_of};
use crate::families::build;
use crate::families::rings::vectors;
use aie_ops::table::lookup;
use aie_ops::{DataType, OpParams};
use rstest::rstest;

/// A reproducible source of bytes.
struct Random(u32);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0.rotate_left(13)
    }

    fn bytes(&mut self, tensor: &Tensor) -> Vec<u8> {
        let words = tensor.span_bytes().div_ceil(4);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| self.word().to_le_bytes()).collect();
        bytes.truncate(tensor.span_bytes());
        bytes
    }
}

fn tensor(dtype: DataType, ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(dtype, ne)
}

/// `tensor` with its dimensions in another order: dimension `d` of the result is dimension `order[d]`.
fn permuted(tensor: Tensor, order: [usize; 4]) -> Tensor {
    Tensor { ne: order.map(|d| tensor.ne[d]), nb: order.map(|d| tensor.nb[d]), ..tensor }
}

fn node(op: &str, output: Tensor, sources: &[Tensor]) -> Node {
    Node::new(op, OpParams::default(), output, sources.iter().copied().map(Some).collect())
}

fn padded(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    words_of(&bytes)
}

/// Runs the kernel of `node` for `arch` on these bytes of its sources and of what the result has before, and compares all of the
/// result.
fn check(node: &Node, arch: &Arch, inputs: &[Vec<u8>], before: Vec<u8>) {
    check_of((&FAMILY, arch), node, inputs, before);
}

/// [`check`] of the kernel that a family makes.
fn check_of((family, arch): (&Family, &Arch), node: &Node, inputs: &[Vec<u8>], before: Vec<u8>) {
    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut expected = before.clone();
    lookup(&node.op).unwrap().reference(node).unwrap().run(&slices, &mut expected).unwrap();
    let artifact = (family.build)(node, arch).unwrap();
    let stream = match artifact.stream_maker() {
        Some(maker) => {
            let read: Vec<&[u8]> = maker.reads().iter().map(|argument| slices[*argument]).collect();
            maker.make(&read).unwrap()
        }
        None => artifact.instructions().to_vec(),
    };
    let artifact = artifact.with_instructions(stream).unwrap();
    let mut device = Device::load_on(arch, artifact.pdi()).unwrap();
    let mut buffers: Vec<Vec<u32>> = inputs.iter().map(|bytes| padded(bytes)).collect();
    buffers.push(padded(&before));
    // Twice: the second dispatch finds everything as the first did.
    for _ in 0..2 {
        device.dispatch(artifact.instructions(), &mut buffers).unwrap();
    }
    let found = bytes_of(&buffers[inputs.len()]);
    let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differing, None, "{node:?}");
    for (bytes, buffer) in inputs.iter().zip(&buffers) {
        assert_eq!(padded(bytes), *buffer, "an operand was written");
    }
}

fn check_random(node: &Node, arch: &Arch) {
    let mut random = Random(5);
    let inputs: Vec<Vec<u8>> = node.inputs().map(|tensor| random.bytes(tensor)).collect();
    let before = random.bytes(&node.output);
    check(node, arch, &inputs, before);
}

#[rstest]
#[case::line(DataType::F32, tensor(DataType::F32, [600, 3, 2, 1]))]
#[case::odd_bytes_in_lines(DataType::F16, tensor(DataType::F16, [6, 7, 2, 1]))]
#[case::blocks(DataType::Q8_0, tensor(DataType::Q8_0, [64, 6, 1, 1]))]
#[case::turned(DataType::F32, permuted(tensor(DataType::F32, [20, 30, 3, 2]), [1, 0, 2, 3]))]
#[case::merged_heads(DataType::F32, permuted(tensor(DataType::F32, [64, 5, 9, 1]), [0, 2, 1, 3]))]
#[case::halves_in_pairs(DataType::F16, permuted(tensor(DataType::F16, [8, 5, 9, 2]), [0, 3, 1, 2]))]
fn layouts_change(#[case] dtype: DataType, #[case] from: Tensor, #[values("aie2", "aie2p")] generation: &str) {
    check_random(&node("CONT", tensor(dtype, from.ne), &[from]), &arch(generation));
}

#[rstest]
fn shapes_change_where_a_side_has_no_gaps(#[values("aie2", "aie2p")] generation: &str) {
    let from = permuted(tensor(DataType::F32, [16, 6, 4, 1]), [0, 2, 1, 3]);
    check_random(&node("CONT", tensor(DataType::F32, [64, 6, 1, 1]), &[from]), &arch(generation));
}

#[rstest]
fn sources_are_joined(#[values(0, 1, 2, 3)] dimension: usize, #[values("aie2", "aie2p")] generation: &str) {
    let (a, mut b) = (tensor(DataType::F32, [12, 5, 4, 3]), tensor(DataType::F32, [12, 5, 4, 3]));
    b.ne[dimension] = 7;
    let b = tensor(DataType::F32, b.ne);
    let mut ne = a.ne;
    ne[dimension] += 7;
    let mut node = node("CONCAT", tensor(DataType::F32, ne), &[a, b]);
    node.params.0[0] = dimension as i32;
    check_random(&node, &arch(generation));
}

#[rstest]
fn sources_are_repeated(#[values("aie2", "aie2p")] generation: &str) {
    let from = tensor(DataType::F32, [10, 3, 2, 1]);
    check_random(&node("REPEAT", tensor(DataType::F32, [20, 3, 6, 2]), &[from]), &arch(generation));
}

/// Every exponent, with mantissas around the places where f16 and bf16 are rounded.
fn numbers(count: usize) -> Vec<u8> {
    let mut random = Random(9);
    let word = |index: usize| {
        let exponent = (index as u32 % 256) << 23;
        let mantissa = [0, 0x1000, 0x1001, 0xFFF, 0x3000, 0x8000, 0x8001, 0x7F_F000, 0x7F_FFFF][index / 256 % 9];
        let mantissa = if index / 256 < 9 { mantissa } else { random.word() & 0x7F_FFFF };
        (index as u32 & 1) << 31 | exponent | mantissa
    };
    (0..count).map(word).flat_map(u32::to_le_bytes).collect()
}

/// All results but NaN, of which any will do.
#[rstest]
fn f32_becomes_f16_and_bf16(
    #[values(DataType::F16, DataType::BF16)] dtype: DataType,
    #[values((&FAMILY, "aie2"), (&FAMILY, "aie2p"), (&vectors::FAMILY, "aie2"))] of: (&'static Family, &str),
) {
    let ne = [1026, 11, 1, 1];
    let node = node("CPY", tensor(dtype, ne), &[tensor(DataType::F32, ne), tensor(dtype, ne)]);
    let before = vec![0; node.output.span_bytes()];
    let mut input = numbers(1026 * 11);
    // Any NaN will do: the reference may give another.
    for word in input.as_chunks_mut::<4>().0 {
        let bits = u32::from_le_bytes(*word);
        if bits & 0x7FFF_FFFF > 0x7F80_0000 {
            *word = 0x3F80_0000u32.to_le_bytes();
        }
    }
    check_of((of.0, &arch(of.1)), &node, &[input, before.clone()], before);
}

fn indices(dtype: DataType, ne: [usize; 4], rows: &[u32]) -> (Tensor, Vec<u8>) {
    let bytes = |row: &u32| match dtype {
        DataType::I64 => u64::from(*row).to_le_bytes().to_vec(),
        _ => row.to_le_bytes().to_vec(),
    };
    (tensor(dtype, ne), rows.iter().flat_map(bytes).collect())
}

#[rstest]
#[case::f32(DataType::F32, "aie2")]
#[case::f32_of_aie2p(DataType::F32, "aie2p")]
#[case::i32(DataType::I32, "aie2")]
fn rows_are_gathered(
    #[case] dtype: DataType,
    #[case] generation: &str,
    #[values(DataType::I32, DataType::I64)] kind: DataType,
) {
    let (table, output) = (tensor(dtype, [70, 40, 2, 1]), tensor(dtype, [70, 6, 2, 1]));
    let (places, chosen) = indices(kind, [6, 2, 1, 1], &[3, 4, 5, 39, 0, 0, 38, 2, 2, 7, 11, 1]);
    let node = node("GET_ROWS", output, &[table, places]);
    check(&node, &arch(generation), &[Random(3).bytes(&table), chosen], vec![0; output.span_bytes()]);
}

/// As a KV cache is filled: the rows of a prompt, a token's, rows in no order, and two for one place.
#[rstest]
#[case::prompt(&[100, 101, 102, 103, 104, 105])]
#[case::token(&[77])]
#[case::anywhere(&[9, 3, 127, 0, 50, 51])]
#[case::the_later_stays(&[5, 6, 5, 5, 8, 6])]
fn rows_are_scattered(
    #[case] rows: &[u32],
    #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
    #[values((&FAMILY, "aie2"), (&FAMILY, "aie2p"), (&vectors::FAMILY, "aie2"))] of: (&'static Family, &str),
) {
    let count = rows.len();
    let (from, cache) = (tensor(DataType::F32, [192, count, 1, 1]), tensor(dtype, [192, 128, 1, 1]));
    let (places, chosen) = indices(DataType::I64, [count, 1, 1, 1], rows);
    let node = node("SET_ROWS", cache, &[from, places, cache]);
    let numbers: Vec<u8> = numbers(192 * count + 256 * 9)[256 * 9 * 4..].to_vec();
    let finite =
        numbers.as_chunks::<4>().0.iter().flat_map(|word| (u32::from_le_bytes(*word) & 0xC7FF_FFFF).to_le_bytes());
    let before = Random(1).bytes(&cache);
    check_of((of.0, &arch(of.1)), &node, &[finite.collect(), chosen, before.clone()], before);
}

/// More tasks on either side than a channel's queue has places, none of which may wait for rows that come later.
#[rstest]
fn groups_of_rows_are_scattered(
    #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
    #[values((&FAMILY, "aie2"), (&FAMILY, "aie2p"), (&vectors::FAMILY, "aie2"))] of: (&'static Family, &str),
) {
    let from = Tensor { nb: [4, 256, 1792, 3584], ..tensor(DataType::F32, [64, 3, 2, 21]) };
    let cache = tensor(dtype, [64, 11, 2, 21]);
    let rows: Vec<u32> = (0..42).flat_map(|group| [0, 4, 2].map(|row| (row + 5 * group) % 11)).collect();
    let (places, chosen) = indices(DataType::I64, [3, 2, 21, 1], &rows);
    let node = node("SET_ROWS", cache, &[from, places, cache]);
    let words = Random(7).bytes(&from);
    let finite = words.as_chunks::<4>().0.iter();
    let finite = finite.flat_map(|word| (u32::from_le_bytes(*word) & 0xC7FF_FFFF).to_le_bytes());
    let before = Random(1).bytes(&cache);
    check_of((of.0, &arch(of.1)), &node, &[finite.collect(), chosen, before.clone()], before);
}

#[test]
fn indices_out_of_range_are_errors() {
    let (table, output) = (tensor(DataType::F32, [64, 10, 1, 1]), tensor(DataType::F32, [64, 2, 1, 1]));
    let (places, chosen) = indices(DataType::I32, [2, 1, 1, 1], &[9, 10]);
    let kernel = build(&node("GET_ROWS", output, &[table, places]), &aie2()).unwrap();
    let maker = kernel.stream_maker().unwrap();
    assert_eq!(maker.reads(), [1]);
    let error = maker.make(&[&chosen]).unwrap_err().to_string();
    assert!(error.contains("row 10 of 10"), "{error}");
    assert!(maker.make(&[&u32::MAX.to_le_bytes().repeat(2)]).is_err());
    assert!(maker.make(&[&chosen[1..]]).is_err() && maker.make(&[]).is_err());
}

#[rstest]
#[case::turned_halves("CONT", tensor(DataType::F16, [5, 4, 1, 1]), &[permuted(tensor(DataType::F16, [4, 5, 1, 1]), [1, 0, 2, 3])], "no whole words")]
#[case::odd_rows("SET_ROWS", tensor(DataType::F16, [3, 9, 1, 1]), &[tensor(DataType::F32, [3, 2, 1, 1]), tensor(DataType::I64, [2, 1, 1, 1])], "no whole words")]
#[case::blocks_to_numbers("GET_ROWS", tensor(DataType::F32, [64, 2, 1, 1]), &[tensor(DataType::Q8_0, [64, 9, 1, 1]), tensor(DataType::I32, [2, 1, 1, 1])], "q8_0 to f32")]
#[case::many_rows("GET_ROWS", tensor(DataType::F32, [64, 2000, 1, 1]), &[tensor(DataType::F32, [64, 9, 1, 1]), tensor(DataType::I32, [2000, 1, 1, 1])], "2000 rows")]
fn what_stays_with_the_host_is_unsupported(
    #[case] op: &str,
    #[case] output: Tensor,
    #[case] sources: &[Tensor],
    #[case] expected: &str,
) {
    let error = build(&node(op, output, sources), &aie2()).unwrap_err();
    assert!(matches!(&error, NativeError::Unsupported { reason, .. } if reason.contains(expected)), "{error}");
}

#[test]
fn all_copies_share_one_pdi() {
    let x = tensor(DataType::F32, [64, 4, 1, 1]);
    let (half, places) = (tensor(DataType::F16, [64, 9, 1, 1]), tensor(DataType::I64, [4, 1, 1, 1]));
    let nodes = [node("CONT", x, &[x]), node("SET_ROWS", half, &[x, places, half])];
    let digests = nodes.map(|node| *build(&node, &aie2()).unwrap().digest());
    assert_eq!(digests[0], digests[1]);
}
