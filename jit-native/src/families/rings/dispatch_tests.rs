//! Products on the emulated array, with a program that stands in for the real one: whole words of weights, columns and results are where they
//! should be, and after each dispatch everything rests where the load has put it.

use super::super::memory::CORE;
use super::super::plan::plan;
use super::super::stand_in::{expected, program};
use super::super::weights::Weights;
use super::*;
use crate::array::Tile;
use crate::array::testing::{Device, aie2};
use aie_emulator::Rules;
use aie_emulator::design::{Design, Source};
use aie_hal::format::instructions::{Instruction, InstructionStream};
use rstest::rstest;

const COLUMNS: u8 = 4;

fn rings() -> Rings {
    Rings::new(&aie2(), COLUMNS, &program(), &[], &CORE).unwrap()
}

/// Several types, batches and ends: pairs, odd batches, rows that are no whole batch, few columns of the array, two cores that overlap.
const PRODUCTS: [(Weights, usize, usize, usize); 6] = [
    (Weights::Q4_0, 576, 128, 1),
    (Weights::Q4K, 256, 300, 2),
    (Weights::Q6K, 512, 177, 1),
    (Weights::Q8_0, 192, 256, 4),
    (Weights::Q4_1, 1536, 100, 3),
    (Weights::Q4_0, 64, 2050, 1),
];

fn problem((weights, depth, rows, columns): (Weights, usize, usize, usize)) -> Problem {
    Problem::sized(weights, depth, rows, columns).unwrap()
}

fn stream_of(rings: &Rings, problem: &Problem) -> Vec<u8> {
    stream(rings, problem, &plan(problem, COLUMNS.into()).unwrap()).unwrap()
}

fn noise(words: usize, seed: u32) -> Vec<u32> {
    (0..words as u32).map(|word| (word ^ seed).wrapping_mul(2_654_435_761).rotate_left(word % 31)).collect()
}

/// The locks of all tiles that the design has.
fn locks(device: &Device) -> Vec<Vec<u32>> {
    let tiles = (0..COLUMNS).flat_map(|column| [(1, 64), (2, 16), (3, 16)].map(|(row, count)| (column, row, count)));
    tiles.map(|(column, row, count)| device.locks(Tile::new(column, row), count)).collect()
}

fn run(device: &mut Device, rings: &Rings, problem: &Problem, seed: u32) {
    let weights = noise(problem.rows * problem.row_bytes() / 4, seed);
    let columns = noise(problem.depth * problem.columns, seed + 1);
    let expected = expected(problem, &weights, &columns);
    // No byte behind the weights may be read: there is none.
    let mut buffers = [weights, columns, vec![0xAAAA_AAAA; expected.len()]];
    device.dispatch(&stream_of(rings, problem), &mut buffers).unwrap_or_else(|error| panic!("{problem:?}: {error}"));
    assert!(buffers[2] == expected, "{problem:?}");
}

/// On one load, in both orders.
#[test]
fn products_follow_each_other_on_one_load() {
    let rings = rings();
    let mut device = Device::of(rings.configured());
    let at_rest = locks(&device);
    let products = PRODUCTS.map(problem);
    for (problem, seed) in products.iter().chain(products.iter().rev()).zip(1..) {
        run(&mut device, &rings, problem, seed);
        assert_eq!(locks(&device), at_rest, "{problem:?}");
    }
}

/// Whatever goes on when.
#[rstest]
fn products_are_right_in_any_order_of_events(#[values(1, 2, 3, 4)] seed: u64) {
    let rings = rings();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), rings.configured().pdi(), rules).unwrap();
    let at_rest = locks(&device);
    for (product, data) in [1, 3, 2, 0].into_iter().zip(1..) {
        run(&mut device, &rings, &problem(PRODUCTS[product]), data);
        assert_eq!(locks(&device), at_rest);
    }
}

/// What the reader of designs says: chains end where they began, nothing is written while it is in use, tokens are waited for.
#[test]
fn designs_are_read_without_problems() {
    let rings = rings();
    for product in PRODUCTS {
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

#[rstest]
#[case::one_column(1, 53)]
#[case::four_columns(4, 53)]
fn a_product_takes_few_operations(#[case] columns: usize, #[case] expected: usize) {
    let problem = Problem::sized(Weights::Q4_0, 2048, 2048, columns).unwrap();
    assert_eq!(operations(&stream_of(&rings(), &problem)), expected);
}

/// Nothing but parameters and the shims is written.
#[test]
fn no_dispatch_touches_a_chain() {
    let rings = rings();
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
        assert!(row == 0 || (row == 2 || row == 3) && offset == 0, "{operation:?}");
    }
}
