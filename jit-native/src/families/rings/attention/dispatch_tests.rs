//! Streams on the emulated array: how long they take, and what they leave behind.

use super::super::super::machine::INSTRUCTION_SETS;
use super::super::Types;
use super::super::build;
use super::super::machine;
use super::super::plan::Cut;
use super::*;
use crate::array::testing::{Device, arch};
use crate::array::{GO_LOCK, Tile};
use crate::families::attention::cases::without_sinks;
use crate::families::testing::Random;
use crate::kit::isa_for;
use aie_emulator::Rules;
use aie_emulator::design::{Design, Source};
use aie_hal::format::instructions::{Instruction, InstructionStream};
use aie_ops::fit::{self, Fit};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use rstest::rstest;

fn attention(generation: &str) -> Attention {
    machine(&arch(generation), Types::DEFAULTS[0]).unwrap().attention.clone()
}

/// A node without values, and the sizes of its arguments.
fn problem(
    generation: &str,
    elements: usize,
    tokens: usize,
    heads: usize,
    keys: usize,
    dtype: DataType,
) -> (Problem, Vec<Vec<u32>>) {
    let cache = Tensor::contiguous(dtype, [elements, keys, heads / 4, 1]);
    let q = Tensor::contiguous(DataType::F32, [elements, tokens, heads, 1]);
    let mask = Tensor::contiguous(DataType::F16, [keys, tokens, 1, 1]);
    let output = Tensor::contiguous(DataType::F32, [elements, heads, tokens, 1]);
    let mut params = OpParams::default();
    params.0[0] = 0.125f32.to_bits().cast_signed();
    let sources = [q, cache, cache, mask];
    let node = Node::new("FLASH_ATTN_EXT", params, output, sources.map(Some).to_vec());
    let buffers = sources.iter().chain([&output]).map(|tensor| vec![0; tensor.span_bytes() / 4]).collect();
    (Problem::of(&node, isa_for("", INSTRUCTION_SETS, &arch(generation)).unwrap().set()).unwrap(), buffers)
}

/// What plans are compared by is near what the emulator counts.
#[rstest]
fn cycles_are_estimated(
    #[values(64, 128)] elements: usize,
    #[values(16, 32, 64)] keys: usize,
    #[values(DataType::F16, DataType::BF16)] dtype: DataType,
    #[values((1, 1), (2, 1), (1, 2))] (units, items): (usize, usize),
    #[values("aie2", "aie2p")] generation: &str,
) {
    let (problem, mut buffers) = problem(generation, elements, units, 4 * items, 256, dtype);
    let Some(cut) = Cut::new(&problem, keys, units, items) else { return };
    let machine = attention(generation);
    let stream = stream(&machine, &problem, cut, 1).unwrap();
    let run = Device::of(machine.configured()).dispatch(&stream, &mut buffers).unwrap();
    let (found, estimated) = (run.timing.cycles, cut.cycles(&problem, 1));
    println!("{elements} elements of {dtype}, {cut:?}: {found} cycles, {estimated} estimated");
    assert!(estimated.abs_diff(found) <= found / 10, "{found} cycles, {estimated} estimated");
}

/// Pieces, blocks of items and tokens that overlap: nothing that is in use is written, and locks rest where the load has put them.
#[rstest]
#[case::one_phase(1, 3, 1)]
#[case::items_differ(1, 5, 2)]
#[case::tokens_overlap(3, 2, 1)]
#[case::pieces(2, 2, 1)]
fn streams_leave_everything_at_rest(
    #[case] tokens: usize,
    #[case] groups: usize,
    #[case] columns: usize,
    #[values("aie2", "aie2p")] generation: &str,
) {
    let (problem, mut buffers) = problem(generation, 64, tokens, 4 * groups, 330, DataType::F16);
    let whole = Cut::new(&problem, 32, tokens.min(2), groups.min(2)).unwrap();
    let cut = Cut { pieces: tokens, ..whole };
    let machine = attention(generation);
    let stream = stream(&machine, &problem, cut, columns).unwrap();
    let source = Source::parse(machine.configured().pdi(), Some(&stream)).unwrap();
    let design = Design::read(&arch(generation), &source).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
    let mut device = Device::of(machine.configured());
    let locks = |device: &Device| (0..4).map(|column| device.locks(Tile::new(column, 5), 16)).collect::<Vec<_>>();
    let at_rest = locks(&device);
    for _ in 0..2 {
        device.dispatch(&stream, &mut buffers).unwrap();
        assert_eq!(locks(&device), at_rest);
    }
}

/// A phase of one item writes parameters, descriptors, tasks and the go lock: rings have the locks that are configured.
/// One wait is for one column or for all of them.
#[rstest]
#[case("aie2", 3 * 33)]
#[case("aie2p", 3 * 32 + 1)]
fn no_lock_is_set_for_one_item(#[case] generation: &str, #[case] operations: u64) {
    let (problem, _) = problem(generation, 64, 1, 12, 1024, DataType::F16);
    let machine = attention(generation);
    let cut = Cut::new(&problem, 64, 1, 1).unwrap();
    let stream = stream(&machine, &problem, cut, 3).unwrap();
    let writes = InstructionStream::parse(&stream).unwrap().operations().filter_map(|operation| match operation {
        Instruction::Write { address, .. } => Some(aie_hal::format::tile_location(address as u32)),
        _ => None,
    });
    let locks: Vec<_> = writes.filter(|(_, row, offset)| *row == 5 && (0x1_F000..0x1_F100).contains(offset)).collect();
    assert_eq!(locks, [0, 1, 2].map(|column| (column, 5, 0x1_F000 + 0x10 * u32::from(GO_LOCK))));
    assert_eq!(InstructionStream::parse(&stream).unwrap().charged_operations(), operations);
}

/// Whatever goes on when, and whether the array was loaded again in between.
#[rstest]
fn results_do_not_depend_on_the_order_of_events(#[values("aie2", "aie2p")] generation: &str) {
    let (problem, mut before) = problem(generation, 64, 2, 12, 330, DataType::F16);
    let mut random = Random(5);
    let halves = before.len() - 1;
    for (index, buffer) in before[..halves].iter_mut().enumerate() {
        // Queries, then pairs of f16 from 2^-7 to 2.
        let mut next = |low, high| random.values(1, low, high)[0];
        buffer.fill_with(|| match index {
            0 => next(-2.0, 2.0).to_bits(),
            _ => (next(0.0, 65_535.0) as u32) << 16 & 0x9FFF_0000 | 0x2000_0000 | 0x2000 | next(0.0, 8191.0) as u32,
        });
    }
    let machine = attention(generation);
    let cut = Cut { pieces: 2, ..Cut::new(&problem, 32, 2, 2).unwrap() };
    let stream = stream(&machine, &problem, cut, 2).unwrap();
    let mut expected = before.clone();
    Device::of(machine.configured()).dispatch(&stream, &mut expected).unwrap();
    assert_ne!(expected, before);
    for seed in 1..=4 {
        let mut rules = Rules::default();
        rules.interleaving = Some(seed);
        let mut device = Device::load_under(&arch(generation), machine.configured().pdi(), rules).unwrap();
        device.harness.reload_at_random(seed);
        for _ in 0..2 {
            let mut found = before.clone();
            device.dispatch(&stream, &mut found).unwrap();
            assert!(found == expected, "seed {seed}");
        }
    }
}

/// Nothing is read or written beside a node's arguments.
#[rstest]
fn kernels_fit_their_nodes(#[values("aie2", "aie2p")] generation: &str) {
    let operation = table::lookup("FLASH_ATTN_EXT").unwrap();
    for case in without_sinks() {
        let kernel = build(&case.node, &arch(generation)).unwrap();
        assert_eq!(fit::check(operation, &case.node, &kernel), Ok(Fit::Fits), "{}", case.name());
    }
}

#[test]
fn offsets_that_are_equally_far_apart_are_one_dimension() {
    let found = |offsets: &[usize]| -> Vec<(u64, u64, u64)> {
        progressions(offsets).into_iter().map(|(first, items)| (first, items.size, items.step)).collect()
    };
    assert_eq!(found(&[64]), [(64, 1, 0)]);
    assert_eq!(found(&[0, 256, 512]), [(0, 3, 64)]);
    assert_eq!(found(&[0, 0, 256, 256]), [(0, 2, 0), (256, 2, 0)]);
    assert_eq!(found(&[512, 0]), [(512, 1, 0), (0, 1, 0)]);
}
