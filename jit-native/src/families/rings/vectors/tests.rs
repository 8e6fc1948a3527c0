//! Vectors of a decoded token on the emulated array, beside the reference kernels.

use super::*;
use crate::array::testing::{Device, aie2, arch, bytes_of, words_of};
use crate::array::{OWN_MEMORY, Tile};
use crate::check::{Program, check};
use crate::codegen::LoopForm;
use crate::families::copies::cases::rows_to;
use crate::families::elements::cases::{f32s, norm, one, rotation};
use crate::families::elements::program::program;
use crate::families::testing::without_evidence;
use crate::kit::{Case, Exactness, Material};
use aie_emulator::Rules;
use aie_hal::ArchRegistry;
use aie_hal::format::instructions::{ArgumentPlace, InstructionStream, JoinPart, join};
use aie_isa::{InstructionSet, Isa};
use aie_ops::DataType::{self, BF16, F16, F32};
use aie_ops::Tensor;
use rstest::rstest;

/// As on an NPU, where a column costs operations.
fn costly() -> Arch {
    (*ArchRegistry::builtin().get("aie2").unwrap()).clone()
}

fn line(op: &str, elements: usize, bound: f64) -> Case {
    let ne = [elements, 1, 1, 1];
    let mut case = one(op, f32s);
    case.node.output.ne = ne;
    case.node.output = f32s(ne);
    case.node.sources.iter_mut().flatten().for_each(|source| *source = f32s(ne));
    case.exactly(Exactness::Nmse(bound))
}

fn row(op: &str, ne: [usize; 2]) -> Case {
    norm(op, [ne[0], ne[1], 1, 1]).exactly(Exactness::Nmse(1e-11))
}

/// Of one token.
fn heads(of: usize, count: usize, mode: i32, factors: bool) -> Case {
    rotation([of, count, 1, 1], [of as i32, mode], 1, factors).exactly(Exactness::Nmse(1e-7))
}

fn cache(dtype: DataType, elements: usize, places: &[u32]) -> Case {
    rows_to(dtype, elements, places.to_vec()).exactly(Exactness::Bytes)
}

/// What tokens of models have, and sizes that no model has.
fn of_models() -> Vec<Case> {
    let mut cases: Vec<Case> = [576, 1046, 2048, 8192].map(|elements| line("ADD", elements, 1e-12)).into();
    cases.extend([
        line("SUB", 33, 1e-12),
        line("MUL", 1536, 1e-12),
        line("SCALE", 2048, 1e-12),
        line("SQR", 4096, 1e-12),
    ]);
    cases.extend([1536, 8192, 14_336].map(|elements| line("SWIGLU", elements, 1e-9)));
    cases.extend(["REGLU", "GEGLU", "GEGLU_QUICK", "SWIGLU_CLAMP"].map(|op| line(op, 1536, 1e-9)));
    cases.extend(["RELU", "GELU", "GELU_QUICK", "SILU"].map(|op| line(op, 2046, 1e-9)));
    cases.extend([576, 1026, 2048, 4096].map(|elements| row("RMS_NORM_MUL", [elements, 1])));
    cases.extend([row("RMS_NORM_MUL", [2048, 4]), row("NORM_MUL", [768, 1]), row("NORM", [1024, 2])]);
    cases.extend([row("RMS_NORM", [64, 9]), row("L2_NORM", [128, 16])]);
    cases.extend([heads(64, 9, 2, false), heads(64, 3, 0, false), heads(64, 32, 0, true), heads(128, 32, 2, false)]);
    let stretched = heads(128, 8, 2, true).floats(&[(6, 0.7), (7, 0.75), (8, 1.4)]);
    cases.extend([stretched, heads(80, 5, 2, false)]);
    cases.extend([F16, BF16, F32].map(|dtype| cache(dtype, 192, &[7])));
    cases.extend([cache(F16, 512, &[3]), cache(F16, 4096, &[9, 2]), cache(F16, 66, &[1, 5, 3, 9, 10, 0, 7, 8])]);
    cases.push(cache(F32, 4096, &[10, 0, 1, 2, 5, 6, 7, 8]));
    cases
}

/// The kernel, with the stream for what is in the sources.
fn kernel(case: &Case, arch: &Arch, sources: &[Vec<u8>]) -> KernelArtifact {
    let kernel = FAMILY.kernel_of(case, arch).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
    let Some(maker) = kernel.stream_maker() else { return kernel };
    let read: Vec<&[u8]> = maker.reads().iter().map(|argument| &*sources[*argument]).collect();
    let stream = maker.make(&read).unwrap();
    kernel.with_instructions(stream).unwrap()
}

/// Runs a case, with the result in memory of its own or in the place of the first source.
fn run(device: &mut Device, arch: &Arch, case: &Case, round: u32, in_place: bool) -> u64 {
    let Material { sources, before, expected, .. } = case.material(round).unwrap();
    let kernel = kernel(case, arch, &sources);
    let mut buffers: Vec<Vec<u32>> = sources.iter().chain([&before]).map(|bytes| words_of(bytes)).collect();
    let result = if in_place { 0 } else { sources.len() };
    let each: Vec<usize> = (0..sources.len()).chain([result]).collect();
    let ran = device.dispatch_on(kernel.instructions(), &mut buffers, &each);
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", case.name()));
    case.judge(&bytes_of(&buffers[result]), &expected).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
    for (index, (before, after)) in sources.iter().zip(&buffers).enumerate() {
        assert!(index == result || words_of(before) == *after, "{}: source {index} was written", case.name());
    }
    ran.timing.cycles
}

fn locks(device: &Device) -> Vec<Vec<u32>> {
    (0..4).flat_map(|column| [2, 4].map(|row| device.locks(Tile::new(column, row), 16))).collect()
}

/// On one load, in both orders, on one column and on several, and with the result where the source was.
#[rstest]
fn operations_of_a_token_follow_each_other_on_one_load(#[values(aie2(), costly(), arch("aie2p"))] arch: Arch) {
    let mut device = Device::of(cores(&arch).unwrap().configured());
    let at_rest = locks(&device);
    let cases = of_models();
    for (case, round) in cases.iter().chain(cases.iter().rev()).zip(0..) {
        let in_place = round % 2 == 1 && !crate::families::copies::FAMILY.operations.contains(&case.node.op.as_str());
        let cycles = run(&mut device, &arch, case, round, in_place);
        println!("{}: {cycles} cycles", case.name());
        assert_eq!(locks(&device), at_rest, "{}", case.name());
    }
}

/// Whatever goes on when, and with another context that may have had the array in between.
#[rstest]
fn operations_are_right_in_any_order_of_events(#[values(1, 2, 3)] seed: u64) {
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let arch = aie2();
    let mut device = Device::load_under(&arch, cores(&arch).unwrap().configured().pdi(), rules).unwrap();
    device.harness.reload_at_random(seed);
    for (case, round) in of_models().iter().skip(seed as usize).step_by(4).zip(0..) {
        run(&mut device, &arch, case, round, false);
    }
}

/// One stream, with attention in between, in which nothing is written that is there already: parameters, frequencies, descriptors.
#[test]
fn joined_operations_find_what_is_there() {
    let arch = costly();
    let (rotation, attention) = (heads(64, 9, 2, false), &super::super::attention::FAMILY);
    let attended = attention.cases_on(&arch).swap_remove(0);
    let sum = line("ADD", 576, 1e-12);
    let cases = [&rotation, &attended, &sum, &rotation, &heads(64, 3, 2, false), &attended, &rotation, &sum, &attended];
    let (mut buffers, mut kernels) = (Vec::new(), Vec::new());
    for (case, round) in cases.into_iter().zip(0..) {
        let Material { sources, before, expected, .. } = case.material(round).unwrap();
        let kernel = if case.node.op == "FLASH_ATTN_EXT" {
            attention.kernel_of(case, &arch).unwrap()
        } else {
            kernel(case, &arch, &sources)
        };
        let first = buffers.len();
        buffers.extend(sources.iter().chain([&before]).map(|bytes| words_of(bytes)));
        let place = |argument: usize| ArgumentPlace { argument: argument as u16, offset: 0 };
        kernels.push((kernel, (first..buffers.len()).map(place).collect::<Vec<_>>(), expected));
    }
    let parts = kernels.iter().map(|(kernel, places, _)| {
        let stream = InstructionStream::parse(kernel.instructions()).unwrap();
        JoinPart { stream, places, ahead: &[], kept: kernel.kept(), constant: &[], is_replaceable: false }
    });
    let joined = join(&parts.collect::<Vec<_>>()).unwrap().bytes;
    let apart: u64 = kernels.iter().map(|(kernel, ..)| kernel.charged_operations()).sum();
    let together = InstructionStream::parse(&joined).unwrap().charged_operations();
    println!("{apart} operations, {together} of them joined");
    // Frequencies three times, and parameters of attention twice.
    assert!(apart - together >= 3 * 8 + 2 * 7, "{together} of {apart}");
    Device::of(cores(&arch).unwrap().configured()).dispatch(&joined, &mut buffers).unwrap();
    for (case, (_, places, expected)) in cases.into_iter().zip(&kernels) {
        let result = &buffers[usize::from(places[places.len() - 1].argument)];
        case.judge(&bytes_of(result), expected).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
    }
}

/// On one column or on all, whatever they are asked for.
#[test]
fn all_cases_are_taken() {
    let cases = FAMILY.cases_on(&costly());
    let pdis: Vec<_> = cases.iter().map(|case| *FAMILY.kernel_of(case, &costly()).unwrap().digest()).collect();
    assert!(pdis.iter().all(|digest| *digest == pdis[0]));
}

/// All ways through the program, with the memory of its own tile alone.
#[rstest]
fn the_checker_accepts_the_program(
    #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
    #[values(Isa::aie2(), Isa::aie2p())] isa: &'static Isa,
) {
    let program = program(isa, Repertoire::Token, loops).unwrap();
    if isa.set() == InstructionSet::Aie2p {
        assert_eq!(without_evidence(&program.code), [""; 0]);
    }
    let own = OWN_MEMORY..OWN_MEMORY + 0x1_0000;
    let report = check(&Program::new(isa, &program.code).with_data(vec![own]));
    let rejections: Vec<String> = report.rejections().map(ToString::to_string).collect();
    assert!(rejections.is_empty(), "{}", rejections.join("\n"));
    println!("{} bytes, {} bundles", report.bytes, report.bundles);
    assert!(report.bytes <= 16 * 1024);
}

/// Operations of the stream, a block write once for every eight words.
#[rstest]
#[case::sum(line("ADD", 576, 0.0), 11)]
#[case::long_sum(line("ADD", 8192, 0.0), 44)]
#[case::norm(row("RMS_NORM_MUL", [576, 1]), 13)]
#[case::long_norm(row("RMS_NORM_MUL", [2048, 1]), 13)]
#[case::gate(line("SWIGLU", 1536, 0.0), 24)]
#[case::rotation(heads(64, 9, 2, false), 22)]
#[case::long_rotation(heads(64, 32, 0, false), 29)]
#[case::row(cache(F16, 192, &[7]), 8)]
#[case::long_row(cache(F16, 512, &[7]), 8)]
fn a_dispatch_takes_few_operations(#[case] case: Case, #[case] expected: u64) {
    let Material { sources, .. } = case.material(0).unwrap();
    assert_eq!(kernel(&case, &costly(), &sources).charged_operations(), expected, "{}", case.name());
}

fn rejection(case: &Case) -> String {
    FAMILY.kernel_of(case, &costly()).unwrap_err().to_string()
}

/// What the families for all sizes are for.
#[test]
fn what_is_large_is_left_to_others() {
    let rows = |op: &str, ne: [usize; 2]| rejection(&row(op, ne));
    assert!(rows("RMS_NORM_MUL", [8192, 1]).contains("rows of more than 4096 elements"));
    assert!(rows("RMS_NORM_MUL", [576, 512]).contains("128 tiles of 576 elements of the first operand"));
    let sum = rejection(&line("ADD", 576 * 512, 0.0));
    assert!(sum.contains("1 tiles of 73728 elements of the first operand"), "{sum}");
    let short = Tensor::contiguous(BF16, [576, 1, 1, 1]);
    assert!(rejection(&Case::new("ADD", short, &[short, short])).contains("only f32"));
    let many = rejection(&cache(F16, 4096, &[1; 9]));
    assert!(many.contains("at most 16384 words"), "{many}");
    let line = f32s([40_000, 1, 1, 1]);
    assert!(rejection(&Case::new("CONT", line, &[line])).contains("40000 words; at most 32768"));
}

#[test]
fn indices_out_of_range_are_errors() {
    let kernel = FAMILY.kernel_of(&cache(F16, 64, &[1, 2]), &costly()).unwrap();
    let maker = kernel.stream_maker().unwrap();
    assert_eq!(maker.reads(), [1]);
    let of = |rows: [u64; 2]| maker.make(&[&rows.map(u64::to_le_bytes).concat()]);
    assert!(of([10, 0]).is_ok());
    let error = of([10, 11]).unwrap_err().to_string();
    assert!(error.contains("row 11 of 11"), "{error}");
    assert!(of([u64::MAX, 0]).is_err() && maker.make(&[]).is_err());
}
