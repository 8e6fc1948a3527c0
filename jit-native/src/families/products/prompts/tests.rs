//! The family on the emulator: results, cycles and operations.

use super::cases::product;
use super::matrix::Matrix;
use super::*;
use crate::array::testing::{Device, bytes_of, words_of};
use aie_emulator::Rules;
use aie_hal::ArchRegistry;
use aie_hal::format::instructions::InstructionStream;
use aie_ops::DataType;
use rstest::rstest;

/// Builds and runs a product; gives its cycles and operations.
fn run(generation: &str, weights: DataType, columns: DataType, [m, n, k]: [usize; 3]) -> (u64, u64) {
    let arch = ArchRegistry::builtin().get(generation).unwrap();
    let case = product(weights, columns, [m, n, k]);
    let problem = Problem::of(&case.node).unwrap();
    let (machine, planned) = made(&problem, &arch).unwrap().unwrap();
    println!("{weights} {m} x {n} x {k}: {} cycles are expected", planned.cycles);
    let kernel = artifact(&problem, &machine, planned.stream).unwrap();
    let material = case.material(0).unwrap();
    let words = |bytes: &Vec<u8>| {
        let mut bytes = bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        words_of(&bytes)
    };
    let mut buffers: Vec<Vec<u32>> = material.sources.iter().chain([&material.before]).map(words).collect();
    let mut device = Device::load_on(&arch, kernel.pdi()).unwrap();
    let mut cycles = 0;
    for _ in 0..2 {
        let run = device.dispatch(kernel.instructions(), &mut buffers).unwrap();
        cycles = run.timing.cycles;
        let found = bytes_of(&buffers[2]);
        case.judge(&found[..material.expected.len()], &material.expected).unwrap();
    }
    let operations = InstructionStream::parse(kernel.instructions()).unwrap().charged_operations();
    (cycles, operations)
}

#[rstest]
#[case::bf16(DataType::BF16, DataType::BF16, [64, 64, 64])]
#[case::bf16_f32(DataType::BF16, DataType::F32, [256, 256, 256])]
#[case::q4_0(DataType::Q4_0, DataType::F32, [256, 256, 256])]
#[case::f32(DataType::F32, DataType::BF16, [128, 256, 64])]
#[case::tails(DataType::Q4_1, DataType::F32, [300, 150, 192])]
#[case::tails_of_q8_0(DataType::Q8_0, DataType::F32, [65, 130, 128])]
fn products_are_right(
    #[values("aie2", "aie2p")] generation: &str,
    #[case] weights: DataType,
    #[case] columns: DataType,
    #[case] shape: [usize; 3],
) {
    let (cycles, operations) = run(generation, weights, columns, shape);
    println!("{generation} {weights} {columns} {shape:?}: {cycles} cycles, {operations} operations");
}

/// Columns of bf16 of blocks, which no node has yet, give what the same numbers in f32 give.
#[rstest]
fn columns_of_bf16_are_the_same(
    #[values("aie2", "aie2p")] generation: &str,
    #[values(DataType::Q4_0, DataType::Q8_0)] weights: DataType,
) {
    let arch = ArchRegistry::builtin().get(generation).unwrap();
    let case = product(weights, DataType::F32, [256, 256, 128]);
    let material = case.material(0).unwrap();
    let upper: Vec<u32> = words_of(&material.sources[1]).into_iter().map(|word| word & 0xFFFF_0000).collect();
    let halves = upper.as_chunks().0.iter().map(|[low, high]| low >> 16 | high).collect();
    let results = [(DataType::F32, upper), (DataType::BF16, halves)].map(|(dtype, columns)| {
        let problem = Problem::of(&product(weights, dtype, [256, 256, 128]).node).unwrap();
        let (machine, planned) = made(&problem, &arch).unwrap().unwrap();
        let kernel = artifact(&problem, &machine, planned.stream).unwrap();
        let mut buffers = [words_of(&material.sources[0]), columns, vec![0; 256 * 256]];
        Device::load_on(&arch, kernel.pdi()).unwrap().dispatch(kernel.instructions(), &mut buffers).unwrap();
        buffers[2].clone()
    });
    assert!(results[0] == results[1]);
}

/// In other orders of events, and with the PDI loaded again at random in between.
#[rstest]
fn products_are_right_in_any_order(#[values("aie2", "aie2p")] generation: &str, #[values(1, 2, 3, 4)] seed: u64) {
    let arch = ArchRegistry::builtin().get(generation).unwrap();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device: Option<Device> = None;
    for (weights, shape) in [(DataType::Q4_0, [64, 128, 128]), (DataType::BF16, [64, 144, 64])] {
        let case = product(weights, DataType::F32, shape);
        let problem = Problem::of(&case.node).unwrap();
        let (machine, planned) = made(&problem, &arch).unwrap().unwrap();
        let kernel = artifact(&problem, &machine, planned.stream).unwrap();
        let device = device.get_or_insert_with(|| {
            let mut device = Device::load_under(&arch, kernel.pdi(), rules).unwrap();
            device.harness.reload_at_random(seed);
            device
        });
        let material = case.material(seed as u32).unwrap();
        let mut buffers: Vec<Vec<u32>> =
            material.sources.iter().chain([&material.before]).map(|bytes| words_of(bytes)).collect();
        device.dispatch(kernel.instructions(), &mut buffers).unwrap();
        case.judge(&bytes_of(&buffers[2]), &material.expected).unwrap();
    }
}

/// For `docs/native-prompts.md`.
#[rstest]
#[ignore = "takes minutes without optimisation"]
fn cycles_of_large_products(
    #[values([576, 512, 1536], [1536, 512, 576], [2048, 512, 2048])] shape: [usize; 3],
    #[values(DataType::Q4_0, DataType::BF16)] weights: DataType,
) {
    let (cycles, operations) = run("aie2p", weights, DataType::F32, shape);
    println!("{weights} {shape:?}: {cycles} cycles, {operations} operations");
}

/// What keeps a product from the family.
#[rstest]
#[case::types(DataType::Q4_K, [512, 512, 512], "weights of q4_K; possible: bf16, f32, q4_0, q4_1, q8_0")]
#[case::long(DataType::Q4_0, [512, 512, 96], "multiples of")]
#[case::odd(DataType::Q4_0, [512, 512, 32], "multiples of")]
#[case::few(DataType::BF16, [512, 8, 512], "512 rows and 8 columns; possible: 16 of each")]
#[case::slower(DataType::Q4_0, [576, 128, 576], "by the family of all products")]
fn others_are_refused(#[case] weights: DataType, #[case] shape: [usize; 3], #[case] message: &str) {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let error = build(&product(weights, DataType::F32, shape).node, &arch).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

/// Products of models' prompts are taken: cycles and operations are fewer.
#[rstest]
#[case::small_model([576, 512, 576])]
#[case::long_rows([576, 512, 1536])]
#[case::many_rows([1536, 512, 576])]
#[case::model_of_1b([2048, 512, 2048])]
fn prompts_are_taken(#[values(DataType::BF16, DataType::Q4_0)] weights: DataType, #[case] shape: [usize; 3]) {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let node = product(weights, DataType::F32, shape).node;
    let [own, other] = [FAMILY, super::super::FAMILY].map(|family| {
        let kernel = (family.build)(&node, &arch).unwrap();
        InstructionStream::parse(kernel.instructions()).unwrap().charged_operations()
    });
    assert!(own < other, "{own} operations instead of {other}");
    println!("{weights} {shape:?}: {own} operations instead of {other}");
}

/// On the other generation others have few columns, and none has many.
#[rstest]
#[case::blocks(DataType::Q4_0, [576, 512, 576], Ok(()))]
#[case::many_rows(DataType::Q8_0, [2048, 256, 512], Ok(()))]
#[case::without_blocks(DataType::BF16, [576, 16, 576], Ok(()))]
#[case::few(DataType::Q4_0, [128, 16, 512], Err("by the family of a decoded token"))]
#[case::types(DataType::Q4_K, [512, 512, 512], Err("weights of q4_K; possible: bf16, f32, q4_0, q4_1, q8_0"))]
fn prompts_of_aie2p_are_taken(
    #[case] weights: DataType,
    #[case] shape: [usize; 3],
    #[case] expected: Result<(), &str>,
) {
    let arch = ArchRegistry::builtin().get("aie2p").unwrap();
    let node = product(weights, DataType::F32, shape).node;
    let built = build(&node, &arch).map_err(|error| error.to_string());
    match expected {
        Ok(()) => assert_eq!(built.map(|_| ()), Ok(())),
        Err(message) => assert!(built.as_ref().is_err_and(|error| error.contains(message)), "{built:?}"),
    }
}

/// Tiles go over all rows and columns, none beyond the last.
#[rstest]
fn phases_cover_the_result(
    #[values(16, 100, 576, 2048, 2049)] rows: usize,
    #[values(16, 33, 512, 700)] columns: usize,
    #[values((Matrix::Floats, [4, 4]), (Matrix::Blocks, [8, 4]))] (matrix, cores): (Matrix, [usize; 2]),
) {
    let node = product(DataType::Q4_0, DataType::F32, [rows, columns, 576]).node;
    let problem = Problem::of(&node).unwrap();
    let phases = plan::phases(&problem, matrix, cores).unwrap();
    let mut covered = vec![false; rows * columns];
    let starts = |side: &plan::Side| -> Vec<usize> {
        let of_pass = |pass: usize| (0..side.cores).map(move |core| side.start(core) + pass * side.step());
        (0..side.passes).flat_map(of_pass).collect()
    };
    for phase in &phases {
        for row in starts(&phase.rows).into_iter().flat_map(|first| first..first + phase.rows.tile) {
            for column in starts(&phase.columns).into_iter().flat_map(|first| first..first + phase.columns.tile) {
                covered[column * rows + row] = true;
            }
        }
    }
    assert!(covered.iter().all(|covered| *covered));
}
