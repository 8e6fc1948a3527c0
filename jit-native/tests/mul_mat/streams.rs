//! Streams of models' shapes.

use crate::device::aie2;
use crate::products::f32s;
use aie_jit_native::families;
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;

/// The documents' example configuration of products, and columns of bf16 in a prompt.
#[rstest]
#[case::of_documents([1024, 64, 768])]
#[case::prompt([576, 512, 1536])]
fn of_columns_of_bf16(#[case] shape: [usize; 3]) {
    let [m, n, k] = shape;
    let of = |dtype, ne| Some(Tensor::contiguous(dtype, ne));
    let sources = vec![of(DataType::BF16, [k, m, 1, 1]), of(DataType::BF16, [k, n, 1, 1])];
    let node = Node::new("MUL_MAT", OpParams::default(), f32s([m, n, 1, 1]), sources);
    let kernel = families::build(&node, &aie2()).unwrap();
    println!("{} bytes of instructions", kernel.instructions().len());
}

/// Kernels of models' shapes are made, share one PDI, and have instruction streams of a bearable size.
#[rstest]
#[case::down([576, 576, 1536])]
#[case::head([49_152, 1, 576])]
#[case::of_1b([2048, 512, 8192])]
#[case::head_of_1b([128_256, 1, 2048])]
#[case::of_8b([14_336, 1, 4096])]
#[case::down_of_8b([4096, 1, 14_336])]
#[case::prompt_of_8b([4096, 512, 14_336])]
fn of_streams(#[case] shape: [usize; 3]) {
    let [m, n, k] = shape;
    let mut digests = std::collections::HashSet::new();
    let types = [DataType::BF16, DataType::Q4_0, DataType::Q4_1, DataType::Q8_0, DataType::Q4_K, DataType::Q6_K];
    // Rows of q6_K are whole pairs of blocks.
    let unit = |dtype: &DataType| if *dtype == DataType::Q6_K { 512 } else { dtype.block_elements() };
    for dtype in types.into_iter().filter(|dtype| k.is_multiple_of(unit(dtype))) {
        let sources = vec![Some(Tensor::contiguous(dtype, [k, m, 1, 1])), Some(f32s([k, n, 1, 1]))];
        let node = Node::new("MUL_MAT", OpParams::default(), f32s([m, n, 1, 1]), sources);
        let start = std::time::Instant::now();
        let kernel = families::build(&node, &aie2()).unwrap_or_else(|error| panic!("{error}"));
        let bytes = kernel.instructions().len();
        println!("{dtype} m={m} n={n} k={k}: {bytes} bytes of instructions, {:?}", start.elapsed());
        assert!(bytes < 1 << 22, "{bytes}");
        digests.insert(kernel.digest().to_string());
    }
    assert_eq!(digests.len(), 1);
}
