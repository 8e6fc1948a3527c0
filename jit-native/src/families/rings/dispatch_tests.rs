//! Products on the emulated array: weights, columns and results are where they should be, and after each dispatch everything rests where
//! the load has put it.

use super::super::build;
use super::super::cases::cases;
use super::super::estimate;
use super::super::machine::machine;
use super::super::memory::CORE;
use super::super::plan::plan;
use super::super::program::programs;
use super::super::types::Types;
use super::super::weights::Weights;
use super::*;
use crate::array::testing::{Device, aie2, arch, passer, words_of};
use crate::array::{CoreCode, ElementsColumn, Flow, Tile};
use crate::codegen::{CoreProgram, LoopForm, isa_of};
use crate::families::testing::{Random, error, node};
use aie_emulator::Rules;
use aie_emulator::design::{Action, Design, Source};
use aie_hal::Arch;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Instruction, InstructionStream};
use aie_isa::{InstructionSet, Isa};
use aie_ops::fit::{self, Fit};
use aie_ops::table;
use aie_ops::{DataType, OpParams, Tensor};
use rstest::rstest;

#[path = "joined_tests.rs"]
mod joined;

const COLUMNS: u8 = 4;

/// The array with the program of the types beside a type.
fn rings(weights: Weights) -> Rings {
    rings_on(&aie2(), weights)
}

fn rings_on(arch: &Arch, weights: Weights) -> Rings {
    machine(arch, Types::default_for(weights)).unwrap().rings.clone()
}

/// Several types, batches and ends: rows that are no whole batch, cores with many rows in common and without any.
const PRODUCTS: [(Weights, usize, usize, usize); 14] = [
    (Weights::Q4_0, 576, 128, 1),
    (Weights::Q4_1, 576, 300, 1),
    (Weights::Q4_1, 768, 100, 3),
    (Weights::Q4_0, 256, 2050, 1),
    (Weights::Q4_0, 2048, 256, 2),
    (Weights::Q4K, 1024, 300, 2),
    (Weights::Q8_0, 576, 256, 1),
    (Weights::Q4K, 2048, 130, 1),
    (Weights::Q6K, 2048, 130, 1),
    (Weights::Q5_0, 320, 300, 2),
    (Weights::Q5_1, 576, 300, 1),
    (Weights::Q5_0, 2048, 150, 1),
    (Weights::Q5K, 1536, 200, 1),
    (Weights::Q6K, 1536, 300, 1),
];

/// Those of one program.
fn products(weights: Weights) -> Vec<Problem> {
    let types = Types::default_for(weights);
    let all = PRODUCTS.into_iter().filter(|(other, ..)| types.contains(*other));
    all.map(problem).collect()
}

fn problem((weights, depth, rows, columns): (Weights, usize, usize, usize)) -> Problem {
    Problem::sized(weights, depth, rows, columns).unwrap()
}

fn stream_of(rings: &Rings, problem: &Problem) -> Vec<u8> {
    stream(rings, problem, &plan(problem, rings.columns().into(), 0).unwrap()).unwrap()
}

/// The locks of all tiles that the design has.
fn locks(device: &Device) -> Vec<Vec<u32>> {
    let tiles = (0..COLUMNS).flat_map(|column| [(1, 64), (2, 16), (3, 16)].map(|(row, count)| (column, row, count)));
    tiles.map(|(column, row, count)| device.locks(Tile::new(column, row), count)).collect()
}

/// To the nearest bf16, ties to even.
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000)
}

fn run(device: &mut Device, rings: &Rings, problem: &Problem, seed: u32) -> u64 {
    run_stream(device, &stream_of(rings, problem), problem, seed)
}

/// What is multiplied is exact, but for columns, which are rounded to bf16.
fn run_stream(device: &mut Device, stream: &[u8], problem: &Problem, seed: u32) -> u64 {
    let Problem { weights, depth, rows, columns, turns } = *problem;
    let columns = columns * turns;
    let (dtype, mut random) = (weights.dtype(), Random(seed));
    let numbers = random.values(depth * rows, -1.0, 1.0);
    let mut bytes = vec![0; rows * problem.row_bytes()];
    assert!(aie_ops::blocks::encode(dtype, &numbers, &mut bytes));
    let mut decoded = numbers;
    assert!(aie_ops::blocks::decode(dtype, &bytes, &mut decoded));
    let right = random.values(depth * columns, -1.0, 1.0);
    let product = |row: &[f32], column: &[f32]| -> f64 {
        row.iter().zip(column).map(|(a, b)| f64::from(*a) * f64::from(rounded(*b))).sum()
    };
    let expected: Vec<f32> = right
        .chunks(depth)
        .flat_map(|column| decoded.chunks(depth).map(move |row| product(row, column) as f32))
        .collect();
    // No byte behind the weights may be read: there is none.
    let right = right.iter().map(|value| value.to_bits()).collect();
    let mut buffers = [words_of(&bytes), right, vec![0xAAAA_AAAA; expected.len()]];
    let ran = device.dispatch(stream, &mut buffers);
    let ran = ran.unwrap_or_else(|error| panic!("{problem:?}: {error}"));
    let found: Vec<f32> = buffers[2].iter().map(|bits| f32::from_bits(*bits)).collect();
    let error = error(&found, &expected);
    assert!(error <= 1e-9, "{problem:?}: NMSE {error:e}");
    ran.timing.cycles
}

/// On one load, in both orders.
#[rstest]
fn products_follow_each_other_on_one_load(
    #[values(Weights::Q4_0, Weights::Q4K, Weights::Q5_0, Weights::Q5K)] weights: Weights,
) {
    let rings = rings(weights);
    let mut device = Device::of(rings.configured());
    let at_rest = locks(&device);
    let products = products(weights);
    for (problem, seed) in products.iter().chain(products.iter().rev()).zip(1..) {
        let cycles = run(&mut device, &rings, problem, seed);
        println!("{problem:?}: {cycles} cycles");
        assert_eq!(locks(&device), at_rest, "{problem:?}");
    }
}

/// The longest rows of each type, as 8B has, sums of several columns that are folded, and odd numbers of large units.
#[rstest]
#[case(Weights::Q4_0, 14_336, 1)]
#[case(Weights::Q4_1, 14_336, 1)]
#[case(Weights::Q4_1, 6144, 2)]
#[case(Weights::Q8_0, 14_336, 1)]
#[case(Weights::Q4K, 14_336, 1)]
#[case(Weights::Q4K, 6144, 2)]
#[case(Weights::Q6K, 14_336, 1)]
#[case(Weights::Q6K, 1792, 1)]
#[case(Weights::Q5_0, 14_336, 1)]
#[case(Weights::Q5_1, 14_336, 1)]
#[case(Weights::Q5K, 14_336, 1)]
#[case(Weights::Q5K, 1280, 1)]
fn long_rows_are_taken(
    #[case] weights: Weights,
    #[case] depth: usize,
    #[case] columns: usize,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let arch = arch(generation);
    let (rings, problem) = (rings_on(&arch, weights), problem((weights, depth, 80, columns)));
    let mut device = Device::of(rings.configured());
    let at_rest = locks(&device);
    let planned = plan(&problem, rings.columns().into(), 0).unwrap();
    let cycles = run_stream(&mut device, &stream(&rings, &problem, &planned).unwrap(), &problem, 1);
    let estimated = estimate::cycles(isa_of(&arch).unwrap().set(), &problem, &planned);
    println!("{weights:?} {depth} x {} on {generation}: {cycles} cycles, {estimated} estimated", problem.columns);
    assert_eq!(locks(&device), at_rest);
}

/// The types of files named Q4_K_M of models whose rows are no whole blocks of q4_K, with streams that know nothing of the set.
#[test]
fn streams_do_not_depend_on_other_types() {
    let types = Types::with(&[Weights::Q5_0, Weights::Q8_0, Weights::Q4K, Weights::Q6K]);
    let all = machine(&aie2(), types).unwrap().rings.clone();
    let mut device = Device::of(all.configured());
    let sizes = [(Weights::Q5_0, 576), (Weights::Q8_0, 576), (Weights::Q4K, 1536), (Weights::Q6K, 1536)];
    for ((weights, depth), seed) in sizes.into_iter().zip(1..) {
        let problem = problem((weights, depth, 192, 1));
        let stream = stream_of(&rings(weights), &problem);
        assert_eq!(stream, stream_of(&all, &problem));
        let cycles = run_stream(&mut device, &stream, &problem, seed);
        let alone = run_stream(&mut Device::of(rings(weights).configured()), &stream, &problem, seed);
        println!("{weights:?}: {cycles} cycles in a set of four, {alone} in the default one");
    }
}

/// From the same sources, without matrices.
#[rstest]
#[case(Weights::Q8_0, 576, 256, 1)]
#[case(Weights::Q4_0, 576, 128, 1)]
#[case(Weights::Q4_1, 768, 100, 3)]
#[case(Weights::Q4K, 1024, 300, 2)]
#[case(Weights::Q6K, 1024, 256, 2)]
#[case(Weights::Q5_0, 320, 300, 2)]
#[case(Weights::Q5_1, 576, 300, 1)]
#[case(Weights::Q5K, 1536, 200, 1)]
fn products_are_right_on_aie2p(
    #[case] weights: Weights,
    #[case] depth: usize,
    #[case] rows: usize,
    #[case] columns: usize,
) {
    let rings = rings_on(&arch("aie2p"), weights);
    let problem = problem((weights, depth, rows, columns));
    let mut device = Device::of(rings.configured());
    let at_rest = locks(&device);
    for (turns, seed) in [(1, 1), (2, 2)] {
        let problem = Problem { turns, ..problem };
        let cycles = run(&mut device, &rings, &problem, seed);
        let planned = plan(&problem, rings.columns().into(), 0).unwrap();
        let estimated = estimate::cycles(InstructionSet::Aie2p, &problem, &planned);
        println!("{problem:?}: {cycles} cycles, {estimated} estimated");
        assert_eq!(locks(&device), at_rest, "{problem:?}");
    }
}

/// Whatever goes on when.
#[rstest]
fn products_are_right_in_any_order_of_events(
    #[values(1, 2, 3, 4)] seed: u64,
    #[values(Weights::Q4_0, Weights::Q4K)] weights: Weights,
) {
    let rings = rings(weights);
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), rings.configured().pdi(), rules).unwrap();
    let at_rest = locks(&device);
    // Another context may have had the array in between.
    device.harness.reload_at_random(seed);
    for (product, data) in products(weights).iter().rev().take(3).zip(1..) {
        run(&mut device, &rings, product, data);
        assert_eq!(locks(&device), at_rest);
    }
}

/// On one configuration with cores for vectors, over shared channels, whatever goes on when.
#[rstest]
fn products_and_vectors_take_turns(#[values(1, 2, 3)] seed: u64) {
    let weights = Weights::Q4_0;
    let programs = programs(Isa::aie2(), Types::default_for(weights), LoopForm::of(&aie2())).unwrap();
    let data = |program: &CoreProgram| -> Vec<(u32, Vec<u8>)> {
        program.data.iter().map(|section| (section.offset, section.bytes.clone())).collect()
    };
    let [lower, upper] = programs.each_ref().map(data);
    let products_code =
        [CoreCode { program: &programs[0].code, data: &lower }, CoreCode { program: &programs[1].code, data: &upper }];
    let passer = passer();
    let vectors_code = CoreCode { program: &passer, data: &[] };
    let rings = Rings::new(&aie2(), COLUMNS, (products_code, &CORE), Some(vectors_code), None).unwrap();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), rings.configured().pdi(), rules).unwrap();
    let at_rest = locks(&device);
    device.harness.reload_at_random(seed);
    for (product, data) in products(weights).iter().take(3).zip(1..) {
        run(&mut device, &rings, product, data);
        let (each, count) = (20 * u64::from(data), 5);
        let part = each * count;
        let column = |column: u64| {
            let flow = |argument| Flow {
                tiles: vec![(each, count as u32)],
                regions: vec![Region::linear(argument, 4 * part * column, 4 * part)],
                ..Flow::default()
            };
            ElementsColumn { a: Some(flow(0)), result: flow(1), ..ElementsColumn::default() }
        };
        let columns: Vec<ElementsColumn> = (0..COLUMNS.into()).map(column).collect();
        let stream = rings.vectors().unwrap().dispatch(&columns).unwrap();
        let all = (part * u64::from(COLUMNS)) as u32;
        let a: Vec<u32> = (0..all).map(|word| word * 3).collect();
        let mut buffers = [a.clone(), vec![0; all as usize]];
        device.dispatch(&stream, &mut buffers).unwrap();
        assert_eq!(buffers[1], a);
        assert_eq!(locks(&device), at_rest);
        for stream in [stream, stream_of(&rings, product)] {
            let source = Source::parse(rings.configured().pdi(), Some(&stream)).unwrap();
            let design = Design::read(&aie2(), &source).unwrap();
            assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
        }
    }
}

/// Jobs, of which more are sent than a channel queues: each comes with the operand again.
#[test]
fn jobs_follow_each_other() {
    let problem = problem((Weights::Q4_1, 576, 740, 2));
    let planned = plan(&problem, COLUMNS.into(), 5).unwrap();
    assert_eq!(planned.jobs, [0, 128, 256, 384, 512, 612]);
    let rings = rings(problem.weights);
    let stream = stream(&rings, &problem, &planned).unwrap();
    let mut device = Device::of(rings.configured());
    let at_rest = locks(&device);
    for seed in [1, 2] {
        run_stream(&mut device, &stream, &problem, seed);
        assert_eq!(locks(&device), at_rest);
    }
    let source = Source::parse(rings.configured().pdi(), Some(&stream)).unwrap();
    let design = Design::read(&aie2(), &source).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
}

/// The kernel of a node, as a store gets it: nothing is read or written beside its arguments.
#[test]
fn kernels_fit_their_nodes() {
    let operation = table::lookup("MUL_MAT").unwrap();
    for case in cases(&aie2()) {
        let kernel = build(&case.node, &aie2()).unwrap();
        assert_eq!(fit::check(operation, &case.node, &kernel), Ok(Fit::Fits), "{}", case.name());
    }
}

/// What the reader of designs says: chains end where they began, nothing is written while it is in use, tokens are waited for.
#[test]
fn designs_are_read_without_problems() {
    for product in PRODUCTS {
        let rings = rings(product.0);
        let stream = stream_of(&rings, &problem(product));
        let source = Source::parse(rings.configured().pdi(), Some(&stream)).unwrap();
        let design = Design::read(&aie2(), &source).unwrap();
        assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]), "{product:?}");
    }
}

/// A block write counts once for every eight words.
fn operations(stream: &[u8]) -> usize {
    let cost = |operation: Instruction<'_>| match operation {
        Instruction::BlockWrite { data, .. } => data.len().div_ceil(8),
        _ => 1,
    };
    InstructionStream::parse(stream).unwrap().operations().map(cost).sum()
}

/// For each column of the array parameters and weights, for all of them an operand, a result and a wait.
#[rstest]
#[case::one_column("aie2", 2048, 1, 23)]
#[case::four_columns("aie2", 2048, 4, 23)]
#[case::rows_in_common("aie2", 576, 1, 23)]
#[case::eight("aie2p", 2048, 1, 39)]
fn a_product_takes_few_operations(
    #[case] generation: &str,
    #[case] rows: usize,
    #[case] columns: usize,
    #[case] expected: usize,
) {
    let problem = Problem::sized(Weights::Q4_0, 2048, rows, columns).unwrap();
    let rings = rings_on(&arch(generation), problem.weights);
    assert_eq!(operations(&stream_of(&rings, &problem)), expected);
}

/// What the number of columns is chosen by is within a tenth of what the emulator counts, for one column of the operand.
#[rstest]
#[case(Weights::Q4_1, 192, 576)]
#[case(Weights::Q4_1, 576, 576)]
#[case(Weights::Q4_1, 576, 1536)]
#[case(Weights::Q4_0, 512, 1024)]
#[case(Weights::Q8_0, 192, 576)]
#[case(Weights::Q8_0, 512, 1024)]
#[case(Weights::Q4K, 256, 2048)]
#[case(Weights::Q6K, 256, 2048)]
#[case(Weights::Q6K, 192, 1536)]
#[case(Weights::Q5_0, 576, 576)]
#[case(Weights::Q5_0, 512, 1024)]
#[case(Weights::Q5_1, 576, 576)]
#[case(Weights::Q5K, 256, 2048)]
fn times_are_estimated(
    #[case] weights: Weights,
    #[case] rows: usize,
    #[case] depth: usize,
    #[values(0, 1)] more: usize,
) {
    expect_estimate(&aie2(), problem((weights, depth, rows, 1)), more);
}

/// On eight columns, too.
#[rstest]
#[case(Weights::Q4_1, 576, 576)]
#[case(Weights::Q4_1, 576, 1536)]
#[case(Weights::Q4_0, 512, 1024)]
#[case(Weights::Q8_0, 512, 1024)]
#[case(Weights::Q4K, 256, 2048)]
#[case(Weights::Q6K, 256, 2048)]
#[case(Weights::Q5_0, 512, 1024)]
#[case(Weights::Q5_1, 576, 576)]
#[case(Weights::Q5K, 256, 2048)]
fn times_are_estimated_on_aie2p(#[case] weights: Weights, #[case] rows: usize, #[case] depth: usize) {
    expect_estimate(&arch("aie2p"), problem((weights, depth, rows, 1)), 0);
}

fn expect_estimate(arch: &Arch, problem: Problem, more: usize) {
    let (rings, Problem { weights, depth, rows, .. }) = (rings_on(arch, problem.weights), problem);
    let Ok(planned) = plan(&problem, rings.columns().into(), more) else { return };
    let found =
        run_stream(&mut Device::of(rings.configured()), &stream(&rings, &problem, &planned).unwrap(), &problem, 1);
    let set = isa_of(arch).unwrap().set();
    let estimated = estimate::cycles(set, &problem, &planned);
    println!(
        "ESTIMATE {weights:?} {rows} x {depth} in {} jobs on {}: {estimated} for {found}, {:.3}",
        planned.jobs.len(),
        arch.name,
        estimated as f64 / found as f64
    );
    assert!(10 * estimated.abs_diff(found) <= found, "{estimated} for {found} cycles");
}

/// Where operations cost something, results of several columns, with rows in common, are not written in a task for each batch.
#[rstest]
#[case(576, 1, 1)]
#[case(32_000, 3, 1)]
#[case(32_003, 1, 1)]
#[case(32_003, 3, 2)]
fn jobs_are_chosen_by_costs(#[case] rows: usize, #[case] columns: usize, #[case] jobs: usize) {
    let arch = aie_hal::ArchRegistry::builtin().get("aie2").unwrap();
    let sources = [(DataType::Q4_1, [576, rows, 1, 1]), (DataType::F32, [576, columns, 1, 1])];
    let sources = sources.map(|(dtype, ne)| Tensor::contiguous(dtype, ne));
    let output = Tensor::contiguous(DataType::F32, [rows, columns, 1, 1]);
    let kernel = build(&node("MUL_MAT", OpParams::default(), output, &sources), &arch).unwrap();
    let source = Source::parse(kernel.pdi(), Some(kernel.instructions())).unwrap();
    let stream = Design::read(&arch, &source).unwrap().stream.unwrap();
    let starts = stream.actions().filter(|action| {
        matches!(action, Action::Start { tile, channel, .. }
            if tile.key() == (1, 0) && channel.direction == Direction::MemoryToStream)
    });
    assert_eq!(starts.count(), jobs);
}

/// Nothing but parameters and the shims is written.
#[test]
fn no_dispatch_touches_a_chain() {
    let rings = rings(Weights::Q4_1);
    let stream = stream_of(&rings, &problem(PRODUCTS[1]));
    for operation in InstructionStream::parse(&stream).unwrap().operations() {
        let address = match operation {
            Instruction::BlockWrite { address, .. } => u64::from(address),
            Instruction::Write { address, .. } | Instruction::MaskWrite { address, .. } => address,
            Instruction::AddressPatch { register, .. } => register,
            Instruction::Sync { .. } => continue,
            other => panic!("{other:?}"),
        };
        let (_, row, offset) = aie_hal::format::tile_location(address as u32);
        assert!(row == 0 || row == 2 && offset == 0, "{operation:?}");
    }
}
