//! Functions of vectors as machine code on the emulator, beside the reference kernels.

use super::*;
use crate::array::testing::{Device, aie2, words_of};
use crate::families::testing::{Random, error, f32s, node, params};
use crate::kit::NativeError;
use aie_hal::KernelArtifact;
use aie_ops::table::lookup;
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;

/// A node with its kernel and operands, and what the reference kernel makes of them.
struct Case {
    node: Node,
    kernel: KernelArtifact,
    operands: Vec<Vec<u32>>,
    expected: Vec<f32>,
}

impl Case {
    fn new(node: Node, random: &mut Random) -> Self {
        let operands: Vec<Vec<u32>> = node
            .inputs()
            .map(|tensor| random.values(tensor.span_bytes() / 4, -9.0, 9.0).into_iter().map(f32::to_bits).collect())
            .collect();
        let bytes: Vec<Vec<u8>> = operands.iter().map(|words| crate::array::testing::bytes_of(words)).collect();
        let inputs: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let mut expected = vec![0; node.output.span_bytes()];
        lookup(&node.op).unwrap().reference(&node).unwrap().run(&inputs, &mut expected).unwrap();
        let kernel = (FAMILY.build)(&node, &aie2()).unwrap_or_else(|error| panic!("{error}"));
        let expected = words_of(&expected).into_iter().map(f32::from_bits).collect();
        Self { node, kernel, operands, expected }
    }

    /// Runs the kernel on a device that has its PDI, and gives the cycles.
    fn run(&self, device: &mut Device) -> u64 {
        let mut buffers = self.operands.clone();
        buffers.push(vec![0xAAAA_AAAA; self.expected.len()]);
        let run = device.dispatch(self.kernel.instructions(), &mut buffers).unwrap();
        self.check(&buffers[self.operands.len()]);
        assert_eq!(buffers[..self.operands.len()], self.operands, "an operand was written");
        run.timing.cycles
    }

    fn check(&self, found: &[u32]) {
        let found: Vec<f32> = found.iter().copied().map(f32::from_bits).collect();
        let error = error(&found, &self.expected);
        println!("{} {:?}: NMSE {error:.1e}", self.node.op, self.node.output.ne);
        assert!(error <= 1e-10, "{} {:?}: NMSE {error:e}", self.node.op, self.node.output.ne);
    }

    /// Runs it with the result in the place of its first source.
    fn run_in_place(&self, device: &mut Device) {
        let mut buffers = self.operands.clone();
        let arguments: Vec<usize> = (0..buffers.len()).chain([0]).collect();
        device.dispatch_on(self.kernel.instructions(), &mut buffers, &arguments).unwrap();
        self.check(&buffers[0]);
    }

    fn device(&self) -> Device {
        Device::load(self.kernel.pdi()).unwrap()
    }
}

fn of(op: &str, result: Tensor, sources: &[Tensor]) -> Node {
    node(op, params(&[(0, 1e-5)]), result, sources)
}

#[rstest]
fn sums_and_products(
    #[values("ADD", "MUL", "SUB")] op: &str,
    #[values([1, 1], [7, 1], [576, 1], [1000, 3], [2048, 4], [64, 9])] ne: [usize; 2],
) {
    let tensor = f32s([ne[0], ne[1], 1, 1]);
    let case = Case::new(of(op, tensor, &[tensor, tensor]), &mut Random(1));
    let mut device = case.device();
    let cycles = case.run(&mut device);
    case.run_in_place(&mut device);
    println!("{cycles} cycles");
}

/// The second source has fewer rows.
#[rstest]
#[case([576, 4, 1, 1], [576, 1, 1, 1])]
#[case([100, 2, 2, 1], [100, 1, 2, 1])]
#[case([48, 3, 2, 1], [48, 3, 1, 1])]
fn repeated_rows(#[values("ADD", "MUL")] op: &str, #[case] ne: [usize; 4], #[case] second: [usize; 4]) {
    let case = Case::new(of(op, f32s(ne), &[f32s(ne), f32s(second)]), &mut Random(2));
    let mut device = case.device();
    case.run(&mut device);
    case.run_in_place(&mut device);
}

#[rstest]
fn norms(
    #[values("RMS_NORM", "RMS_NORM_MUL", "NORM", "NORM_MUL", "L2_NORM")] op: &str,
    #[values([1, 1], [15, 2], [64, 9], [576, 1], [577, 3], [1536, 4], [2048, 1])] ne: [usize; 2],
) {
    let tensor = f32s([ne[0], ne[1], 1, 1]);
    let sources = [tensor, f32s([ne[0], 1, 1, 1])];
    // The norm of a single element without its mean is a difference of nothing.
    if ne[0] == 1 && op.starts_with("NORM") {
        return;
    }
    let count = if op.ends_with("_MUL") { 2 } else { 1 };
    let case = Case::new(of(op, tensor, &sources[..count]), &mut Random(3));
    let mut device = case.device();
    let cycles = case.run(&mut device);
    case.run_in_place(&mut device);
    println!("{cycles} cycles");
}

#[rstest]
fn gated_units(
    #[values("SWIGLU", "GEGLU", "REGLU", "GEGLU_QUICK")] op: &str,
    #[values([16, 1], [1536, 1], [101, 3], [2048, 4])] ne: [usize; 2],
) {
    let tensor = f32s([ne[0], ne[1], 1, 1]);
    let case = Case::new(of(op, tensor, &[tensor, tensor]), &mut Random(4));
    let cycles = case.run(&mut case.device());
    println!("{cycles} cycles");
    let case = Case::new(of(op, tensor, &[f32s([2 * ne[0], ne[1], 1, 1])]), &mut Random(5));
    case.run(&mut case.device());
}

#[rstest]
fn functions_of_one_operand(#[values("SILU", "GELU", "GELU_QUICK", "RELU", "SQR", "SCALE")] op: &str) {
    let tensor = f32s([300, 2, 1, 1]);
    let case = Case::new(node(op, params(&[(0, 0.3), (1, 2.0)]), tensor, &[tensor]), &mut Random(6));
    let mut device = case.device();
    case.run(&mut device);
    case.run_in_place(&mut device);
}

/// One PDI, products between functions: what a dispatch leaves behind does not disturb the next.
#[test]
fn a_layer_of_a_token() {
    let (x, wide) = (f32s([256, 2, 1, 1]), f32s([512, 2, 1, 1]));
    let weights = |dtype, k, m| Tensor::contiguous(dtype, [k, m, 1, 1]);
    let product =
        |weights: Tensor, x: Tensor, result: Tensor| node("MUL_MAT", OpParams::default(), result, &[weights, x]);
    let nodes = [
        of("RMS_NORM_MUL", x, &[x, f32s([256, 1, 1, 1])]),
        product(weights(DataType::F32, 256, 512), x, wide),
        of("SWIGLU", wide, &[wide, wide]),
        product(weights(DataType::F32, 512, 256), wide, x),
        of("ADD", x, &[x, x]),
    ];
    let kernels: Vec<KernelArtifact> =
        nodes.iter().map(|node| crate::families::build(node, &aie2()).unwrap()).collect();
    assert!(kernels.iter().all(|kernel| kernel.pdi() == kernels[0].pdi()));
    let mut random = Random(7);
    let mut device = Device::load(kernels[0].pdi()).unwrap();
    for node in nodes.iter().chain(nodes.iter().rev()) {
        if node.op != "MUL_MAT" {
            Case::new(node.clone(), &mut random).run(&mut device);
            continue;
        }
        let kernel = crate::families::build(node, &aie2()).unwrap();
        let mut buffers: Vec<Vec<u32>> = node
            .inputs()
            .chain([&node.output])
            .map(|tensor| random.values(tensor.elements(), -1.0, 1.0).into_iter().map(f32::to_bits).collect())
            .collect();
        device.dispatch(kernel.instructions(), &mut buffers).unwrap();
        let bytes: Vec<Vec<u8>> = buffers.iter().map(|words| crate::array::testing::bytes_of(words)).collect();
        let mut expected = vec![0; node.output.span_bytes()];
        lookup("MUL_MAT").unwrap().reference(node).unwrap().run(&[&bytes[0], &bytes[1]], &mut expected).unwrap();
        let numbers = |bytes: &[u8]| words_of(bytes).into_iter().map(f32::from_bits).collect::<Vec<_>>();
        let error = error(&numbers(&bytes[2]), &numbers(&expected));
        assert!(error <= 1e-4, "NMSE {error:e}");
    }
}

/// What the families of elements and rows take instead.
#[rstest]
#[case("ADD", [576, 5, 2, 1], DataType::F32, [576, 5, 2, 1])]
#[case("ADD", [576, 1, 1, 1], DataType::BF16, [576, 1, 1, 1])]
#[case("MUL", [576, 4, 1, 1], DataType::F32, [1, 4, 1, 1])]
#[case("RMS_NORM", [9000, 1, 1, 1], DataType::F32, [1, 1, 1, 1])]
fn larger_nodes_are_left_to_the_lanes(
    #[case] op: &str,
    #[case] ne: [usize; 4],
    #[case] dtype: DataType,
    #[case] second: [usize; 4],
) {
    let tensor = Tensor::contiguous(dtype, ne);
    let sources = [tensor, Tensor::contiguous(dtype, second)];
    let node = of(op, tensor, if op == "RMS_NORM" { &sources[..1] } else { &sources });
    assert!(matches!((FAMILY.build)(&node, &aie2()), Err(NativeError::Unsupported { .. })));
    assert!(crate::families::build(&node, &aie2()).is_ok());
}
