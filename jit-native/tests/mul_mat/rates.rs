//! How fast: printed, and compared with bounds that are well below.

use crate::data::{Data, Random};
use crate::products::{compare, f32s};
use aie_emulator::{Resource, Timing};
use aie_hal::format::dma_channel::Direction;
use aie_ops::{DataType, Tensor};
use rstest::rstest;

/// Bytes of weights a cycle that the shims' channels bring.
fn bytes_per_cycle(weights: &Data, timing: &Timing) -> f64 {
    weights.bytes.len() as f64 / timing.cycles as f64
}

fn describe(name: &str, [m, n, k]: [usize; 3], weights: &Data, timing: &Timing) {
    let macs = (m * n * k) as f64;
    let cores = timing.uses.iter().filter(|used| used.resource == Resource::Core).count();
    let shim = timing.uses.iter().filter(|used| {
        used.row == 0 && matches!(used.resource, Resource::Channel { direction: Direction::MemoryToStream, .. })
    });
    let busiest = shim.map(|used| used.busy).max().unwrap_or(0);
    println!(
        "{name} m={m} n={n} k={k}: {} cycles, {:.1} MAC/cycle ({cores} cores), {:.2} weight bytes/cycle, busiest shim MM2S {busiest} \
         cycles, bound: {}",
        timing.cycles,
        macs / timing.cycles as f64,
        bytes_per_cycle(weights, timing),
        timing.bound().map(ToString::to_string).unwrap_or_default()
    );
}

#[rstest]
#[case::decode([256, 1, 256])]
#[case::prefill([128, 64, 128])]
fn of_a_small_product(#[case] shape: [usize; 3], #[values(DataType::BF16)] dtype: DataType) {
    of_small_products(shape, dtype);
}

fn of_small_products(shape: [usize; 3], dtype: DataType) {
    let [m, n, k] = shape;
    let mut random = Random(11);
    let weights = Data::random(Tensor::contiguous(dtype, [k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(f32s([k, n, 1, 1]), &mut random, 1.0);
    let timing = compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
    describe(dtype.name(), [m, n, k], &weights, &timing);
}

/// Shapes of SmolLM2-135M: one column, and a prompt. Takes minutes without optimisation: `cargo test -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn of_one_column() {
    of_small_products([6144, 1, 576], DataType::Q4_1);
    of_small_products([2048, 1, 512], DataType::Q4_K);
    of_small_products([2048, 1, 512], DataType::Q6_K);
    for shape in [[576, 1, 1536], [1536, 1, 576]] {
        for dtype in [DataType::BF16, DataType::Q4_0, DataType::Q4_1, DataType::Q8_0] {
            of_small_products(shape, dtype);
        }
    }
}

/// As [`of_one_column`].
#[test]
#[ignore = "takes minutes"]
fn of_a_prompt() {
    for dtype in [DataType::BF16, DataType::Q4_0, DataType::Q4_1, DataType::Q8_0] {
        of_small_products([576, 128, 576], dtype);
    }
    of_small_products([512, 128, 512], DataType::Q4_K);
}

/// Columns of bf16 beside those of f32.
#[test]
#[ignore = "takes minutes"]
fn of_a_prompt_of_bf16() {
    let mut random = Random(17);
    let [m, n, k] = [576, 128, 576];
    let weights = Data::random(Tensor::contiguous(DataType::BF16, [k, m, 1, 1]), &mut random, 1.0);
    let columns = Data::random(Tensor::contiguous(DataType::BF16, [k, n, 1, 1]), &mut random, 1.0);
    let timing = compare(&mut None, &weights, &columns, f32s([m, n, 1, 1]));
    describe("bf16 x bf16", [m, n, k], &weights, &timing);
}

/// The schedule of the inner loops.
#[test]
fn of_loops() {
    let loops = aie_jit_native::kernels::mul_mat::loops(&crate::device::aie2()).unwrap();
    for (name, macs) in [("product of 4 columns", 4 * 128), ("product of 16 columns", 16 * 128)] {
        let report = loops.iter().find(|report| report.name == name).unwrap();
        println!(
            "{name}: {macs} MAC in {} cycles, {:.1} a cycle",
            report.interval,
            f64::from(macs) / f64::from(report.interval)
        );
    }
    for report in loops {
        println!("{report:?}");
    }
}

/// The documents' example configuration of products, and columns of bf16 in a prompt.
#[rstest]
#[case::of_documents([1024, 64, 768])]
#[case::prompt([576, 512, 1536])]
fn of_columns_of_bf16(#[case] shape: [usize; 3]) {
    let [m, n, k] = shape;
    let of = |dtype, ne| Some(Tensor::contiguous(dtype, ne));
    let sources = vec![of(DataType::BF16, [k, m, 1, 1]), of(DataType::BF16, [k, n, 1, 1])];
    let node = aie_ops::Node::new("MUL_MAT", aie_ops::OpParams::default(), f32s([m, n, 1, 1]), sources);
    let kernel = aie_jit_native::kernels::build(&node, &crate::device::aie2()).unwrap();
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
        let node = aie_ops::Node::new("MUL_MAT", aie_ops::OpParams::default(), f32s([m, n, 1, 1]), sources);
        let start = std::time::Instant::now();
        let kernel =
            aie_jit_native::kernels::build(&node, &crate::device::aie2()).unwrap_or_else(|error| panic!("{error}"));
        let bytes = kernel.instructions().len();
        println!("{dtype} m={m} n={n} k={k}: {bytes} bytes of instructions, {:?}", start.elapsed());
        assert!(bytes < 1 << 22, "{bytes}");
        digests.insert(kernel.digest().to_string());
    }
    assert_eq!(digests.len(), 1);
}
