//! Kernels of the lanes as machine code on the emulator, beside the reference kernels.

use super::*;
use crate::array::testing::{Device, aie2, bytes_of, words_of};
use crate::kernels::build;
use aie_ops::OpParams;
use aie_ops::table::lookup;
use rstest::rstest;

/// A reproducible source of numbers between 0 and 1.
struct Random(u32);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }

    fn values(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| low + (high - low) * self.next()).collect()
    }
}

fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

fn params(words: &[(usize, f32)]) -> OpParams {
    let mut params = OpParams::default();
    for (index, value) in words {
        params.0[*index] = value.to_bits().cast_signed();
    }
    params
}

fn node(op: &str, params: OpParams, output: Tensor, sources: &[Tensor]) -> Node {
    Node::new(op, params, output, sources.iter().copied().map(Some).collect())
}

/// ggml's measure: infinite results have to be the same, and the squares of the errors are compared with those of the results.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    let (mut error, mut power) = (0.0, 0.0);
    for (found, expected) in found.iter().zip(expected) {
        assert!(!found.is_nan() && !expected.is_nan());
        if found.is_infinite() || expected.is_infinite() {
            assert_eq!(found, expected);
            continue;
        }
        error += (f64::from(*found) - f64::from(*expected)).powi(2);
        power += f64::from(*expected).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / power }
}

/// The error of a node on the emulator beside its reference kernel, and the cycles.
fn compare(node: &Node, inputs: &[Vec<f32>]) -> (f64, u64) {
    let operation = lookup(&node.op).unwrap();
    let bytes: Vec<Vec<u8>> =
        inputs.iter().map(|values| values.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let mut expected = vec![0xAA; node.output.span_bytes()];
    operation.reference(node).unwrap().run(&slices, &mut expected).unwrap();
    let artifact = build(node, &aie2()).unwrap();
    let mut device = Device::load(artifact.pdi()).unwrap();
    let mut buffers: Vec<Vec<u32>> = bytes.iter().map(|bytes| words_of(bytes)).collect();
    buffers.push(vec![0xAAAA_AAAA; node.output.span_bytes() / 4]);
    device.dispatch(artifact.instructions(), &mut buffers).unwrap();
    let floats = |words: &[u32]| words.iter().map(|word| f32::from_bits(*word)).collect::<Vec<f32>>();
    for (input, buffer) in bytes.iter().zip(&buffers) {
        assert_eq!(*input, bytes_of(buffer), "an operand was written");
    }
    (error(&floats(&buffers[bytes.len()]), &floats(&words_of(&expected))), device.array.timing().cycles)
}

fn check(node: &Node, inputs: &[Vec<f32>], bound: f64) {
    let (error, cycles) = compare(node, inputs);
    println!("{} {:?}: NMSE {error:.1e}, {cycles} cycles", node.op, node.output.ne);
    assert!(error <= bound, "{} {:?}: NMSE {error:e}", node.op, node.output.ne);
}

#[test]
fn the_program_fits_a_core() {
    let program = program::program().unwrap();
    println!("{} bytes", program.code.len());
    for l in &program.loops {
        println!("{} at {:#x}: {} cycles a vector", l.name, l.start, l.interval);
    }
    assert!(program.code.len() <= 16 * 1024);
}

#[rstest]
#[case::same([10, 5, 4, 3], [10, 5, 4, 3])]
#[case::row([10, 5, 4, 3], [10, 1, 1, 1])]
#[case::scalar([10, 5, 4, 3], [1, 1, 1, 1])]
#[case::column([7, 3, 5, 2], [1, 3, 1, 2])]
#[case::period([12, 6, 4, 2], [4, 3, 2, 1])]
fn arithmetic(#[case] a: [usize; 4], #[case] b: [usize; 4]) {
    let mut random = Random(1);
    for op in ["ADD", "SUB", "MUL", "DIV"] {
        let node = node(op, OpParams::default(), f32s(a), &[f32s(a), f32s(b)]);
        let inputs = [(a, -1.0), (b, 0.1)].map(|(ne, low)| random.values(ne.iter().product(), low, 1.0));
        check(&node, &inputs, 1e-12);
    }
}

#[rstest]
fn functions(#[values([128, 2, 2, 2], [5, 7, 11, 1])] ne: [usize; 4]) {
    let parameters = params(&[(0, 0.1), (1, 0.8), (2, 1.3), (3, 0.5), (4, -1e-6)]);
    let flat = f32s([ne.iter().product(), 1, 1, 1]);
    for op in elementwise::FAMILY.operations.iter().filter(|op| !op.contains("GLU") && lookup(op).is_some()) {
        if matches!(*op, "ADD" | "SUB" | "MUL" | "DIV") {
            continue;
        }
        let (low, high) = match *op {
            "SQRT" | "LOG" => (0.0, 100.0),
            "SIN" | "COS" => (-6.5, 6.5),
            _ => (-150.0, 150.0),
        };
        let mut values = Random(7).values(flat.elements(), low, high);
        for (index, value) in values.iter_mut().enumerate().filter(|(index, _)| index % 3 == 0 && low < 0.0) {
            *value /= 1.0 + (index % 97) as f32;
        }
        check(&node(op, parameters, flat, &[flat]), &[values], 1e-9);
    }
}

#[rstest]
fn gated_units(#[values(1, 2)] sources: usize, #[values([128, 2, 2, 2], [5, 7, 11, 1])] ne: [usize; 4]) {
    let mut random = Random(3);
    for op in ["REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP"] {
        let mut wide = ne;
        wide[0] *= if sources == 1 { 2 } else { 1 };
        let node = node(op, params(&[(2, 1.702), (3, 7.0)]), f32s(ne), &vec![f32s(wide); sources]);
        let inputs: Vec<Vec<f32>> = (0..sources).map(|_| random.values(wide.iter().product(), -20.0, 20.0)).collect();
        check(&node, &inputs, 1e-9);
    }
}

#[rstest]
#[case([64, 5, 4, 3])]
#[case([33, 3, 2, 1])]
#[case([3000, 2, 1, 1])]
fn norms(#[case] ne: [usize; 4]) {
    let mut random = Random(4);
    for op in ["RMS_NORM", "NORM", "L2_NORM", "RMS_NORM_MUL", "NORM_MUL"] {
        let weights = [ne[0], 1, 1, 1];
        let sources = if op.ends_with("_MUL") { vec![f32s(ne), f32s(weights)] } else { vec![f32s(ne)] };
        let inputs: Vec<Vec<f32>> = sources.iter().map(|s| random.values(s.elements(), -10.0, 10.0)).collect();
        check(&node(op, params(&[(0, 1e-5)]), f32s(ne), &sources), &inputs, 1e-11);
    }
}

#[rstest]
#[case([16, 2, 4, 1], None, 0.0)]
#[case([33, 5, 2, 1], Some([33, 5, 1, 1]), 0.0)]
#[case([40, 3, 2, 2], Some([40, 8, 2, 1]), 0.0)]
#[case([40, 3, 6, 2], Some([40, 8, 2, 1]), 8.0)]
fn soft_max(#[case] ne: [usize; 4], #[case] mask: Option<[usize; 4]>, #[case] max_bias: f32) {
    let mut random = Random(5);
    let mut sources = vec![f32s(ne)];
    let mut inputs = vec![random.values(sources[0].elements(), -10.0, 10.0)];
    if let Some(mask) = mask {
        sources.push(f32s(mask));
        let mut values = random.values(sources[1].elements(), -2.0, 2.0);
        values.iter_mut().step_by(3).for_each(|value| *value = f32::NEG_INFINITY);
        inputs.push(values);
    }
    check(&node("SOFT_MAX", params(&[(0, 0.7), (1, max_bias)]), f32s(ne), &sources), &inputs, 1e-11);
}

#[rstest]
#[case::pairs(0, 64, [64, 8, 3, 1], false)]
#[case::pairs_of_a_part(0, 20, [40, 3, 2, 2], false)]
#[case::factors_of_pairs(0, 64, [64, 3, 2, 1], true)]
#[case::halves(2, 128, [128, 12, 2, 1], false)]
#[case::short_halves(2, 80, [80, 4, 3, 1], false)]
#[case::halves_of_a_part(2, 64, [80, 3, 2, 1], false)]
#[case::factors_of_halves(2, 64, [64, 4, 5, 1], true)]
fn rotations(
    #[case] mode: i32,
    #[case] dimensions: i32,
    #[case] ne: [usize; 4],
    #[case] with_factors: bool,
    #[values(false, true)] yarn: bool,
) {
    let (scale, extrapolation, magnitude) = if yarn { (0.7, 0.75, 1.4) } else { (1.0, 0.0, 1.0) };
    let mut parameters = params(&[(5, 10_000.0), (6, scale), (7, extrapolation), (8, magnitude), (9, 32.0), (10, 1.0)]);
    (parameters.0[1], parameters.0[2], parameters.0[4]) = (dimensions, mode, 512);
    let mut random = Random(6);
    let mut sources = vec![f32s(ne), Tensor::contiguous(DataType::I32, [ne[2], 1, 1, 1])];
    let positions = (0..ne[2]).map(|_| f32::from_bits((random.next() * 4096.0) as u32)).collect();
    let mut inputs = vec![random.values(sources[0].elements(), -1.0, 1.0), positions];
    if with_factors {
        let pairs = dimensions as usize / 2;
        sources.push(f32s([pairs, 1, 1, 1]));
        inputs.push(random.values(pairs, 0.9, 1.1));
    }
    let node = node("ROPE", parameters, f32s(ne), &sources);
    if yarn && mode == 0 && (dimensions as usize) < ne[0] {
        assert!(build(&node, &aie2()).unwrap_err().to_string().contains("magnitude"));
        return;
    }
    // ggml's angles are sums of roundings, which count at positions of thousands.
    check(&node, &inputs, 1e-7);
}
