//! What the family does not take is an error with numbers.

use crate::device::aie2;
use crate::products::f32s;
use aie_jit_native::families;
use aie_jit_native::kit::NativeError;
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;

#[rstest]
#[case::odd_depth(Tensor::contiguous(DataType::BF16, [41, 16, 1, 1]), f32s([41, 1, 1, 1]), "multiples of 2")]
#[case::odd_columns(
    f32s([41, 16, 1, 1]),
    Tensor::contiguous(DataType::BF16, [41, 1, 1, 1]),
    "multiples of 2"
)]
#[case::block_in_a_word(Tensor::contiguous(DataType::Q8_0, [32, 16, 1, 1]), f32s([32, 1, 1, 1]), "multiples of 64")]
#[case::one_of_two_blocks(
    Tensor::contiguous(DataType::Q6_K, [768, 16, 1, 1]),
    f32s([768, 1, 1, 1]),
    "multiples of 512"
)]
#[case::type_of_weights(Tensor::contiguous(DataType::Q2_K, [256, 16, 1, 1]), f32s([256, 1, 1, 1]), "source 0 is q2_K")]
#[case::type_of_columns(
    Tensor::contiguous(DataType::BF16, [64, 16, 1, 1]),
    Tensor::contiguous(DataType::F16, [64, 1, 1, 1]),
    "source 1 is f16"
)]
#[case::nothing(f32s([64, 0, 1, 1]), f32s([64, 1, 1, 1]), "nothing to multiply")]
#[case::too_long(f32s([131_072, 4, 1, 1]), f32s([131_072, 1, 1, 1]), "131072 elements")]
fn names_what_is_not_possible(#[case] weights: Tensor, #[case] columns: Tensor, #[case] reason: &str) {
    let output = f32s([weights.ne[1], columns.ne[1], columns.ne[2], columns.ne[3]]);
    let node = Node::new("MUL_MAT", OpParams::default(), output, vec![Some(weights), Some(columns)]);
    match families::build(&node, &aie2()) {
        Err(NativeError::Unsupported { reason: found, .. }) => assert!(found.contains(reason), "{found}"),
        other => panic!("{:?}", other.err()),
    }
}

/// Of the family of all products; AIE2P has that of rings.
#[test]
fn other_generations_are_rejected() {
    let arch = aie_hal::ArchRegistry::builtin().get("aie2p").unwrap();
    let node = Node::new(
        "MUL_MAT",
        OpParams::default(),
        f32s([16, 1, 1, 1]),
        vec![Some(f32s([64, 16, 1, 1])), Some(f32s([64, 1, 1, 1]))],
    );
    assert!(matches!((families::products::FAMILY.build)(&node, &arch), Err(NativeError::Generation { .. })));
    match families::build(&node, &arch) {
        Err(NativeError::Unsupported { reason, .. }) => assert!(reason.starts_with("source 0 is f32"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
}
