//! Kernels as machine code on the emulator, beside the reference kernels.

use super::functions::{Function, Repertoire};
use super::step::{Slot, Step};
use super::*;
use crate::array::testing::{Device, arch, bytes_of, words_of};
use crate::codegen::LoopForm;
use crate::families::testing::{Random, error, f32s, node, params, without_evidence};
use crate::kit::NativeError;
use aie_hal::{Arch, KernelArtifact};
use aie_isa::Isa;
use aie_ops::table::lookup;
use aie_ops::{DataType, Node, OpParams, Tensor};
use rstest::rstest;

/// Without the machine for decoded tokens, which comes first and takes small nodes.
fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let families = [&ELEMENTWISE, &ROWS, &ROPE];
    let family = families.into_iter().find(|family| family.operations.contains(&node.op.as_str())).unwrap();
    (family.build)(node, arch)
}

/// For each of the first inputs the difference of results, as far as it is more than what `small` says of the input, in units of
/// bf16's last place of the result.
fn each_error(arch: &Arch, node: &Node, inputs: &[Vec<f32>], small: fn(f32) -> f64) -> (Vec<(f32, f64)>, u64) {
    let (found, expected, cycles) = results(arch, node, inputs);
    let unit = |x: f32| f64::from(x.abs().max(f32::MIN_POSITIVE)).log2().floor().exp2() / 128.0;
    let difference = |x: f32, found: f32, expected: f32| {
        let difference = if found == expected { 0.0 } else { (f64::from(found) - f64::from(expected)).abs() };
        if difference <= small(x) { 0.0 } else { difference / unit(expected) }
    };
    let pairs = inputs[0].iter().zip(found.iter().zip(&expected));
    let errors = pairs.map(|(x, (found, expected))| (*x, difference(*x, *found, *expected)));
    (errors.collect(), cycles)
}

/// The sum of the smallest normal numbers that two results may lose.
fn lost(_: f32) -> f64 {
    2.0 * f64::from(f32::MIN_POSITIVE)
}

/// The bytes of numbers; what is not bf16 is words.
fn encoded(dtype: DataType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DataType::BF16 => values.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn decoded(dtype: DataType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DataType::BF16 => {
            bytes.as_chunks().0.iter().map(|half| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16)).collect()
        }
        _ => words_of(bytes).into_iter().map(f32::from_bits).collect(),
    }
}

/// The error of a node on the emulator beside its reference kernel, and the cycles.
fn compare(arch: &Arch, node: &Node, inputs: &[Vec<f32>]) -> (f64, u64) {
    let (found, expected, cycles) = results(arch, node, inputs);
    (error(&found, &expected), cycles)
}

/// The results on the emulator and of the reference kernel, and the cycles.
fn results(arch: &Arch, node: &Node, inputs: &[Vec<f32>]) -> (Vec<f32>, Vec<f32>, u64) {
    let operation = lookup(&node.op).unwrap();
    let sources = node.inputs().map(|tensor| tensor.dtype);
    let bytes: Vec<Vec<u8>> = sources.zip(inputs).map(|(dtype, values)| encoded(dtype, values)).collect();
    let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let mut expected = vec![0xAA; node.output.span_bytes()];
    operation.reference(node).unwrap().run(&slices, &mut expected).unwrap();
    let artifact = build(node, arch).unwrap();
    let mut device = Device::load_on(arch, artifact.pdi()).unwrap();
    let mut buffers: Vec<Vec<u32>> = bytes.iter().map(|bytes| words_of(bytes)).collect();
    buffers.push(vec![0xAAAA_AAAA; node.output.span_bytes() / 4]);
    let run = device.dispatch(artifact.instructions(), &mut buffers).unwrap();
    for (input, buffer) in bytes.iter().zip(&buffers) {
        assert_eq!(*input, bytes_of(buffer), "an operand was written");
    }
    let (found, expected) = (bytes_of(&buffers[bytes.len()]), expected);
    let decoded = |bytes: &[u8]| decoded(node.output.dtype, bytes);
    (decoded(&found), decoded(&expected), run.timing.cycles)
}

fn check(arch: &Arch, node: &Node, inputs: &[Vec<f32>], bound: f64) {
    let (error, cycles) = compare(arch, node, inputs);
    println!("{} {:?}: NMSE {error:.1e}, {cycles} cycles", node.op, node.output.ne);
    assert!(error <= bound, "{} {:?}: NMSE {error:e}", node.op, node.output.ne);
}

#[rstest]
fn programs_fit_a_core(
    #[values(Repertoire::Elements, Repertoire::Curves, Repertoire::Rows, Repertoire::Token)] repertoire: Repertoire,
    #[values("aie2", "aie2p")] generation: &str,
    #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
) {
    let isa = Isa::for_arch(generation).unwrap();
    let program = program::program(isa, repertoire, loops).unwrap();
    println!("{repertoire:?}: {} bytes", program.code.len());
    for l in &program.loops {
        let how = if l.pipelined { "overlapped" } else { "" };
        println!(
            "{} at {:#x}: {} cycles an iteration {how}, {} by slots",
            l.name, l.start, l.interval, l.resource_bound
        );
    }
    assert!(program.code.len() <= 16 * 1024);
    // What a step costs is known of all that have a loop.
    let without_loop = [Function::First, Function::Repeat, Function::Again, Function::AgainWords, Function::Gather];
    for function in repertoire.functions().iter().filter(|function| !without_loop.contains(function)) {
        assert!(
            Step::unary(*function, Slot::A, Slot::A).cycles(8, &program.loops) > 0 || is_rotation(*function),
            "{function:?}"
        );
        assert!(program.loops.iter().any(|report| report.name == format!("{function:?}")), "{function:?}");
    }
}

/// Its cycles are those of as many heads as its constants say.
fn is_rotation(function: Function) -> bool {
    matches!(function, Function::RotatePairs | Function::RotateHalves)
}

/// What the emulator makes of an instruction has been compared with something else, for all that the programs of aie2p use.
#[rstest]
fn programs_of_aie2p_use_what_has_evidence(
    #[values(Repertoire::Elements, Repertoire::Curves, Repertoire::Rows)] repertoire: Repertoire,
    #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
) {
    let program = program::program(Isa::aie2p(), repertoire, loops).unwrap();
    assert_eq!(without_evidence(&program.code), [""; 0], "{repertoire:?}");
}

/// Steps and the parts of a work name functions that their program has.
#[test]
fn programs_have_functions_once() {
    for repertoire in Repertoire::ALL.into_iter().chain([Repertoire::Token]) {
        for (number, function) in (0..).zip(repertoire.functions()) {
            assert_eq!(repertoire.number(*function), Some(number));
        }
    }
}

fn bf16s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::BF16, ne)
}

/// Whether results differ from the reference kernels' by more than roundings to bf16 that fall to the other side.
const OTHER_SIDE: f64 = 1e-7;

#[rstest]
#[case::alike([4096, 1, 1, 1], [4096, 1, 1, 1])]
#[case::rows([96, 5, 3, 2], [96, 1, 3, 1])]
#[case::odd_vectors([34, 5, 1, 1], [34, 1, 1, 1])]
fn arithmetic_on_bf16(#[case] a: [usize; 4], #[case] b: [usize; 4], #[values("aie2", "aie2p")] generation: &str) {
    type Kind = fn([usize; 4]) -> Tensor;
    let kinds: [[Kind; 3]; 3] = [[bf16s; 3], [bf16s, f32s, bf16s], [bf16s, f32s, f32s]];
    let mut random = Random(11);
    for op in ["ADD", "SUB", "MUL", "DIV"] {
        let inputs = [(a, -1.0), (b, 0.1)].map(|(ne, low)| random.values(ne.iter().product(), low, 1.0));
        for [x, y, result] in kinds {
            check(&arch(generation), &node(op, OpParams::default(), result(a), &[x(a), y(b)]), &inputs, OTHER_SIDE);
        }
    }
}

/// The fifteen and more functions on bf16, and with results of f32.
#[rstest]
fn functions_on_bf16(#[values(4096, 1046)] count: usize, #[values("aie2", "aie2p")] generation: &str) {
    let parameters = params(&[(0, 0.1), (1, 0.8), (2, 1.3), (3, 0.5), (4, -1e-6)]);
    let flat = [count, 1, 1, 1];
    for op in ELEMENTWISE.operations.iter().filter(|op| !op.contains("GLU") && lookup(op).is_some()) {
        if matches!(*op, "ADD" | "SUB" | "MUL" | "DIV") {
            continue;
        }
        let (low, high) = match *op {
            "SQRT" | "LOG" => (0.01, 100.0),
            "SIN" | "COS" => (-6.5, 6.5),
            _ => (-30.0, 30.0),
        };
        let values = Random(7).values(count, low, high);
        check(&arch(generation), &node(op, parameters, bf16s(flat), &[bf16s(flat)]), &[values], OTHER_SIDE);
    }
}

/// Gates are exact to 2^-16, so that roundings to bf16 fall to the other side here and there.
#[rstest]
#[case("REGLU", 0)]
#[case("GEGLU", 16)]
#[case("SWIGLU", 8)]
#[case("GEGLU_QUICK", 8)]
fn gated_units_on_bf16(#[case] op: &str, #[case] most: usize, #[values("aie2", "aie2p")] generation: &str) {
    let ne = [128, 8, 1, 1];
    let mut random = Random(3);
    let inputs: Vec<Vec<f32>> = (0..2).map(|_| random.values(ne.iter().product(), -9.0, 9.0)).collect();
    let (errors, cycles) =
        each_error(&arch(generation), &node(op, OpParams::default(), bf16s(ne), &[bf16s(ne); 2]), &inputs, lost);
    let worst = errors.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let others = errors.iter().filter(|(_, error)| *error > 0.0).count();
    println!("{op}: {:.2} units of bf16 at {:e}, {others} differ, {cycles} cycles", worst.1, worst.0);
    assert!(worst.1 <= 1.0 && others <= most, "{op}: {worst:?}, {others} differ");
}

#[rstest]
fn gelu_erf_units_on_bf16(#[values("aie2", "aie2p")] generation: &str) {
    let ne = [128, 8, 1, 1];
    let mut random = Random(3);
    let inputs: Vec<Vec<f32>> = (0..2).map(|_| random.values(ne.iter().product(), -9.0, 9.0)).collect();
    check(&arch(generation), &node("GEGLU_ERF", OpParams::default(), bf16s(ne), &[bf16s(ne); 2]), &inputs, OTHER_SIDE);
}

#[rstest]
fn what_is_no_whole_number_of_words_is_rejected(#[values("aie2", "aie2p")] generation: &str) {
    let ne = [33, 1, 1, 1];
    let error =
        build(&node("SQR", OpParams::default(), bf16s(ne), &[bf16s(ne)]), &arch(generation)).unwrap_err().to_string();
    assert!(error.contains("argument 0 is bf16, and a run of it is"), "{error}");
}

/// All normal bf16 whose result is finite.
#[rstest]
fn functions_of_all_bf16(
    #[values(
        "ABS",
        "SGN",
        "NEG",
        "STEP",
        "TANH",
        "ELU",
        "RELU",
        "SIGMOID",
        "GELU",
        "GELU_QUICK",
        "SILU",
        "HARDSWISH",
        "HARDSIGMOID",
        "EXP",
        "GELU_ERF",
        "SQR",
        "SQRT",
        "LOG"
    )]
    op: &str,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let all = (0..=u16::MAX).map(|bits| f32::from_bits(u32::from(bits) << 16)).filter(|x| x.is_normal() || *x == 0.0);
    let inside: Box<dyn Fn(&f32) -> bool> = match op {
        "SQRT" => Box::new(|x| (0.0..3.2e32).contains(x)),
        "LOG" => Box::new(|x| *x > 0.0),
        "SQR" => Box::new(|x| x.abs() < 1.8e19),
        "EXP" => Box::new(|x| *x < 88.0),
        _ => Box::new(|_| true),
    };
    let mut values: Vec<f32> = all.filter(inside).collect();
    values.truncate(values.len() / 2 * 2);
    let flat = bf16s([values.len(), 1, 1, 1]);
    let small = match op {
        // The formula of the error function is exact to 7.5e-8, not to a part of what is left of it far out.
        "GELU_ERF" => |x: f32| 2.5e-7 * f64::from(x.abs()) + lost(x),
        // A gate is at least e^-87.
        "GELU" | "GELU_QUICK" | "SILU" => |_: f32| 2e-36,
        _ => lost,
    };
    let (errors, cycles) =
        each_error(&arch(generation), &node(op, OpParams::default(), flat, &[flat]), &[values], small);
    let worst = errors.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let (count, others) = (errors.len(), errors.iter().filter(|(_, error)| *error > 0.0).count());
    println!("{op}: {:.2} units of bf16 at {:e}, {others} of {count} differ, {cycles} cycles", worst.1, worst.0);
    assert!(worst.1 <= 1.0, "{op}: {worst:?}");
}

#[rstest]
#[case::same([10, 5, 4, 3], [10, 5, 4, 3])]
#[case::row([10, 5, 4, 3], [10, 1, 1, 1])]
#[case::scalar([10, 5, 4, 3], [1, 1, 1, 1])]
#[case::column([7, 3, 5, 2], [1, 3, 1, 2])]
#[case::period([12, 6, 4, 2], [4, 3, 2, 1])]
#[case::narrow([1, 300, 2, 1], [1, 300, 1, 1])]
#[case::narrow_rows([3, 300, 2, 1], [1, 300, 1, 1])]
#[case::one_for_each([3, 300, 2, 1], [1, 1, 2, 1])]
fn arithmetic(#[case] a: [usize; 4], #[case] b: [usize; 4], #[values("aie2", "aie2p")] generation: &str) {
    let mut random = Random(1);
    for op in ["ADD", "SUB", "MUL", "DIV"] {
        let node = node(op, OpParams::default(), f32s(a), &[f32s(a), f32s(b)]);
        let inputs = [(a, -1.0), (b, 0.1)].map(|(ne, low)| random.values(ne.iter().product(), low, 1.0));
        check(&arch(generation), &node, &inputs, 1e-12);
    }
}

#[rstest]
fn functions(#[values([128, 2, 2, 2], [5, 7, 11, 1])] ne: [usize; 4], #[values("aie2", "aie2p")] generation: &str) {
    let parameters = params(&[(0, 0.1), (1, 0.8), (2, 1.3), (3, 0.5), (4, -1e-6)]);
    let flat = f32s([ne.iter().product(), 1, 1, 1]);
    for op in ELEMENTWISE.operations.iter().filter(|op| !op.contains("GLU") && lookup(op).is_some()) {
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
        check(&arch(generation), &node(op, parameters, flat, &[flat]), &[values], 1e-9);
    }
}

#[rstest]
fn gated_units(
    #[values(1, 2)] sources: usize,
    #[values([128, 2, 2, 2], [5, 7, 11, 1])] ne: [usize; 4],
    #[values("aie2", "aie2p")] generation: &str,
) {
    let mut random = Random(3);
    for op in ["REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP"] {
        let mut wide = ne;
        wide[0] *= if sources == 1 { 2 } else { 1 };
        let node = node(op, params(&[(2, 1.702), (3, 7.0)]), f32s(ne), &vec![f32s(wide); sources]);
        let inputs: Vec<Vec<f32>> = (0..sources).map(|_| random.values(wide.iter().product(), -20.0, 20.0)).collect();
        check(&arch(generation), &node, &inputs, 1e-9);
    }
}

#[rstest]
#[case([64, 5, 4, 3])]
#[case([33, 3, 2, 1])]
#[case([3000, 2, 1, 1])]
#[case::long([4800, 5, 1, 1])]
#[case::long_with_a_rest([4999, 1, 2, 1])]
fn norms(#[case] ne: [usize; 4], #[values("aie2", "aie2p")] generation: &str) {
    let mut random = Random(4);
    for op in ["RMS_NORM", "NORM", "L2_NORM", "RMS_NORM_MUL", "NORM_MUL"] {
        let weights = [ne[0], 1, 1, 1];
        let sources = if op.ends_with("_MUL") { vec![f32s(ne), f32s(weights)] } else { vec![f32s(ne)] };
        let inputs: Vec<Vec<f32>> = sources.iter().map(|s| random.values(s.elements(), -10.0, 10.0)).collect();
        check(&arch(generation), &node(op, params(&[(0, 1e-5)]), f32s(ne), &sources), &inputs, 1e-11);
    }
}

#[rstest]
#[case([16, 3, 8, 2], 4)]
#[case::one_for_each([50, 7, 5, 1], 5)]
#[case::long([64, 48, 4, 1], 2)]
fn group_norms(#[case] ne: [usize; 4], #[case] groups: i32, #[values("aie2", "aie2p")] generation: &str) {
    let mut parameters = params(&[(1, 1e-5)]);
    parameters.0[0] = groups;
    let input = Random(4).values(ne.iter().product(), -3.0, 9.0);
    check(&arch(generation), &node("GROUP_NORM", parameters, f32s(ne), &[f32s(ne)]), &[input], 1e-11);
}

#[rstest]
fn groups_of_different_sizes_are_rejected(#[values("aie2", "aie2p")] generation: &str) {
    let mut parameters = params(&[(1, 1e-5)]);
    parameters.0[0] = 3;
    let tensor = f32s([8, 2, 5, 1]);
    let error = build(&node("GROUP_NORM", parameters, tensor, &[tensor]), &arch(generation)).unwrap_err().to_string();
    assert!(error.contains("5 channels") && error.contains("3 groups"), "{error}");
}

#[rstest]
#[case([16, 2, 4, 1], None, 0.0)]
#[case([33, 5, 2, 1], Some([33, 5, 1, 1]), 0.0)]
#[case([40, 3, 2, 2], Some([40, 8, 2, 1]), 0.0)]
#[case([40, 3, 6, 2], Some([40, 8, 2, 1]), 8.0)]
#[case::long([4608, 2, 3, 1], None, 0.0)]
#[case::long_with_a_rest([4223, 2, 1, 1], None, 0.0)]
#[case::long_with_a_mask([4608, 2, 3, 1], Some([4608, 8, 1, 1]), 0.0)]
#[case::long_with_slopes([2304, 2, 3, 1], Some([2304, 2, 1, 1]), 8.0)]
fn soft_max(
    #[case] ne: [usize; 4],
    #[case] mask: Option<[usize; 4]>,
    #[case] max_bias: f32,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let mut random = Random(5);
    let mut sources = vec![f32s(ne)];
    let mut inputs = vec![random.values(sources[0].elements(), -10.0, 10.0)];
    if let Some(mask) = mask {
        sources.push(f32s(mask));
        let mut values = random.values(sources[1].elements(), -2.0, 2.0);
        values.iter_mut().step_by(3).for_each(|value| *value = f32::NEG_INFINITY);
        inputs.push(values);
    }
    check(&arch(generation), &node("SOFT_MAX", params(&[(0, 0.7), (1, max_bias)]), f32s(ne), &sources), &inputs, 1e-11);
}

#[rstest]
#[case::alone([33, 5, 6, 2], None, DataType::F32, 0.0)]
#[case::mask([40, 3, 6, 2], Some([40, 8, 2, 1]), DataType::F32, 0.0)]
#[case::short_mask([40, 3, 6, 2], Some([40, 8, 2, 1]), DataType::BF16, 0.0)]
#[case::slopes([40, 3, 6, 2], Some([40, 8, 2, 1]), DataType::BF16, 8.0)]
fn soft_max_with_sinks(
    #[case] ne: [usize; 4],
    #[case] mask: Option<[usize; 4]>,
    #[case] dtype: DataType,
    #[case] max_bias: f32,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let mut random = Random(8);
    let (x, sinks) = (f32s(ne), f32s([ne[2], 1, 1, 1]));
    let mut inputs = vec![random.values(x.elements(), -10.0, 10.0)];
    let mask = mask.map(|mask| Tensor::contiguous(dtype, mask));
    inputs.extend(mask.map(|mask| random.values(mask.elements(), -2.0, 2.0)));
    inputs.push(random.values(ne[2], -20.0, 20.0));
    let sources = vec![Some(x), mask, Some(sinks)];
    let node = Node::new("SOFT_MAX", params(&[(0, 0.7), (1, max_bias)]), x, sources);
    check(&arch(generation), &node, &inputs, 1e-11);
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
    #[values("aie2", "aie2p")] generation: &str,
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
        assert!(build(&node, &arch(generation)).unwrap_err().to_string().contains("magnitude"));
        return;
    }
    // ggml's angles are sums of roundings, which count at positions of thousands.
    check(&arch(generation), &node, &inputs, 1e-7);
}

/// Modes in which a token has four positions.
#[rstest]
#[case::mrope(8, 128, [128, 3, 4, 1], [16, 24, 24, 0])]
#[case::part(8, 64, [80, 2, 3, 2], [8, 12, 0, 4])]
#[case::interleaved(40, 128, [128, 3, 4, 1], [24, 20, 20, 0])]
#[case::interleaved_with_a_fourth(40, 64, [64, 3, 4, 1], [8, 8, 4, 12])]
#[case::vision(24, 40, [80, 4, 3, 1], [20, 20, 0, 0])]
#[case::vision_of_three(24, 64, [128, 2, 3, 1], [10, 0, 20, 2])]
fn rotations_with_sections(
    #[case] mode: i32,
    #[case] dimensions: i32,
    #[case] ne: [usize; 4],
    #[case] sections: [i32; 4],
    #[values(false, true)] yarn: bool,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let (scale, extrapolation, magnitude) = if yarn { (0.7, 0.75, 1.4) } else { (1.0, 0.0, 1.0) };
    let mut parameters = params(&[(5, 10_000.0), (6, scale), (7, extrapolation), (8, magnitude), (9, 32.0), (10, 1.0)]);
    (parameters.0[1], parameters.0[2], parameters.0[4]) = (dimensions, mode, 512);
    parameters.0[11..15].copy_from_slice(&sections);
    let mut random = Random(6);
    let sources = [f32s(ne), Tensor::contiguous(DataType::I32, [4 * ne[2], 1, 1, 1])];
    let positions = (0..4 * ne[2]).map(|_| f32::from_bits((random.next() * 1024.0) as u32)).collect();
    let inputs = [random.values(sources[0].elements(), -1.0, 1.0), positions];
    check(&arch(generation), &node("ROPE", parameters, f32s(ne), &sources), &inputs, 1e-7);
}
