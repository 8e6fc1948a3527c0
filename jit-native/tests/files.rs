//! The files of native kernels, as others read them: the kernel store's check, and the reader of designs.

use aie_emulator::design::{Design, Source};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_jit_native::families;
use aie_ops::fit::{self, Fit};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use rstest::rstest;

fn aie2() -> Arch {
    (*ArchRegistry::builtin().get("aie2").unwrap()).clone()
}

fn f32s(ne: [usize; 4]) -> Option<Tensor> {
    Some(Tensor::contiguous(DataType::F32, ne))
}

fn of(op: &str, output: [usize; 4], sources: Vec<Option<Tensor>>) -> Node {
    Node::new(op, OpParams::default(), Tensor::contiguous(DataType::F32, output), sources)
}

fn add(ne: [usize; 4]) -> Node {
    of("ADD", ne, vec![f32s(ne), f32s(ne)])
}

/// `m` rows of `k` weights times `n` columns.
fn product(dtype: DataType, [m, n, k]: [usize; 3]) -> Node {
    product_of([dtype, DataType::F32], [m, n, k])
}

fn product_of([left, right]: [DataType; 2], [m, n, k]: [usize; 3]) -> Node {
    let (weights, columns) = (Tensor::contiguous(left, [k, m, 1, 1]), Tensor::contiguous(right, [k, n, 1, 1]));
    of("MUL_MAT", [m, n, 1, 1], vec![Some(weights), Some(columns)])
}

/// A token's attention to `keys` keys, of three heads.
fn attention(dtype: DataType, heads: usize, keys: usize) -> Node {
    let cache = Some(Tensor::contiguous(dtype, [64, keys, 3, 1]));
    let mask = Some(Tensor::contiguous(DataType::F16, [keys, 1, 1, 1]));
    let mut node = of("FLASH_ATTN_EXT", [64, heads, 1, 1], vec![f32s([64, 1, heads, 1]), cache, cache, mask]);
    node.params.0[0] = 0.125f32.to_bits().cast_signed();
    node
}

/// The dimensions 0 and 1 of a tensor change places.
fn turned() -> Node {
    let from =
        Tensor { ne: [30, 20, 3, 1], nb: [80, 4, 2400, 7200], ..Tensor::contiguous(DataType::F32, [20, 30, 3, 1]) };
    of("CONT", from.ne, vec![Some(from)])
}

fn gathered() -> Node {
    let rows = Tensor::contiguous(DataType::I32, [5, 1, 1, 1]);
    of("GET_ROWS", [64, 5, 1, 1], vec![f32s([64, 9, 1, 1]), Some(rows)])
}

/// A norm with weights.
fn normed() -> Node {
    let ne = [577, 3, 1, 1];
    of("RMS_NORM_MUL", ne, vec![f32s(ne), f32s([577, 1, 1, 1])])
}

/// Rows into a cache of f16.
fn scattered() -> Node {
    let (rows, cache) =
        (Tensor::contiguous(DataType::I64, [5, 1, 1, 1]), Tensor::contiguous(DataType::F16, [64, 90, 1, 1]));
    Node::new("SET_ROWS", OpParams::default(), cache, vec![f32s([64, 5, 1, 1]), Some(rows), Some(cache)])
}

fn build(node: &Node) -> KernelArtifact {
    families::build(node, &aie2()).unwrap_or_else(|error| panic!("{error}"))
}

#[rstest]
#[case::row(add([5000, 1, 1, 1]))]
#[case::broadcast(of("ADD", [576, 7, 3, 1], vec![f32s([576, 7, 3, 1]), f32s([576, 1, 1, 1])]))]
#[case::long(add([4096, 512, 1, 1]))]
#[case::decode(product(DataType::BF16, [576, 1, 1536]))]
#[case::prefill(product(DataType::BF16, [576, 64, 576]))]
#[case::blocks(product(DataType::Q4_0, [1536, 1, 576]))]
#[case::attention(attention(DataType::F16, 9, 256))]
#[case::long_blocks(product(DataType::Q4_K, [512, 1, 1536]))]
#[case::six_bits(product(DataType::Q6_K, [512, 1, 1536]))]
#[case::zeros(product(DataType::F32, [20, 3, 129]))]
#[case::documents(product_of([DataType::BF16, DataType::BF16], [1024, 64, 768]))]
#[case::normed(normed())]
#[case::turned(turned())]
#[case::gathered(gathered())]
#[case::scattered(scattered())]
fn files_are_read_as_they_are_meant(#[case] node: Node) {
    let kernel = build(&node);
    let op = table::lookup(&node.op).unwrap();
    assert_eq!(fit::check(op, &node, &kernel), Ok(Fit::Fits));
    let design = Design::read(&aie2(), &Source::parse(kernel.pdi(), Some(kernel.instructions())).unwrap()).unwrap();
    assert_eq!((design.problems, design.doubts), (vec![], vec![]));
    assert_eq!(design.arguments_unknown, None);
    // Neighbours with the same PDI become one dispatch.
    assert!(InstructionStream::parse(kernel.instructions()).unwrap().can_be_joined());
    assert!(kernel.argument_extents().is_ok());
}

/// Kernels of one family share their PDI, so that nothing is loaded between them.
#[test]
fn shapes_and_types_share_a_pdi() {
    let one_pdi = |nodes: &[Node]| {
        let digests: Vec<_> = nodes.iter().map(|node| *build(node).digest()).collect();
        digests.iter().all(|digest| *digest == digests[0])
    };
    let squares = |ne| of("SQR", ne, vec![f32s(ne)]);
    assert!(one_pdi(&[add([5000, 7, 1, 1]), add([33, 70, 3, 2]), squares([64, 100, 1, 1])]));
    let products = |shape| [DataType::BF16, DataType::Q4_0, DataType::Q4_K].map(|dtype| product(dtype, shape));
    let mut of_prompt = products([100, 9, 256]).to_vec();
    of_prompt.extend([product(DataType::Q6_K, [16, 9, 512]), product(DataType::F32, [16, 1, 1])]);
    of_prompt.push(product_of([DataType::BF16, DataType::BF16], [16, 3, 256]));
    assert!(one_pdi(&of_prompt));
    let mut of_token = products([576, 1, 1536]).to_vec();
    of_token.extend([product(DataType::Q6_K, [16, 4, 512]), normed(), add([5000, 1, 1, 1]), squares([64, 1, 1, 1])]);
    assert!(one_pdi(&of_token));
    let of_attention = [DataType::F16, DataType::F32].map(|dtype| [18, 256].map(|keys| attention(dtype, 9, keys)));
    assert!(one_pdi(&of_attention.concat()));
    assert!(one_pdi(&[turned(), gathered(), scattered()]));
}
