//! The product design on the emulator, with a program that adds its operands word by word: every word of the weights reaches
//! one core in the order of blocks, and comes back in the order of rows.

use super::super::testing::{ADDER_MEMORY, Device, adder, adder_for, aie2, arch};
use super::super::{Dimension, Part, Region};
use super::*;
use rstest::rstest;

/// Rows and columns of a core's tile of weights, and of a block.
const TILE: (u64, u64) = (8, 16);
const BLOCK: (u64, u64) = (4, 8);
const WORDS: u64 = TILE.0 * TILE.1;

/// A tile whose rows lie one behind the other, block by block.
fn blocks() -> [Dimension; 4] {
    let (rows, columns) = BLOCK;
    [
        Dimension::new(columns, 1),
        Dimension::new(rows, TILE.1),
        Dimension::new(TILE.1 / columns, columns),
        Dimension::new(TILE.0 / rows, rows * TILE.1),
    ]
}

fn product() -> Product {
    product_on("aie2")
}

fn product_on(name: &str) -> Product {
    Product::new(&arch(name), 4, &adder_for(name), &[], &ADDER_MEMORY, MemMemory::default()).unwrap()
}

/// What all columns do: `tiles` tiles for each core. The weights are a matrix of `TILE.1` columns, of which core after core
/// has a tile, round by round; the operand is the first argument's tile for its column.
fn stream(product: &Product, tiles: u32) -> Vec<u8> {
    let mut dispatch = product.configured().dispatch();
    let linear = |ring: Ring| Part::linear(ring.cut(4 * WORDS as u32, 2).unwrap(), WORDS);
    for (index, column) in product.columns().iter().enumerate() {
        let at = |round: u64, core: u64| 4 * WORDS * ((round * 4 + index as u64) * 4 + core);
        // The operand arrives once, in front of the weights of cores 0 and 1, and is sent once for each tile.
        dispatch.run(column.arrival[0], &[linear(column.operand.0)], 1).unwrap();
        dispatch.transfer(column.sources[0], &Region::linear(1, 4 * WORDS * index as u64, 4 * WORDS)).unwrap();
        let stays = |acquire, release| Part { acquire, release, advance: false, ..linear(column.operand.0) };
        let sends = column.operand.1;
        if tiles == 1 {
            dispatch.run(sends, &[stays(true, true)], 1).unwrap();
        } else {
            dispatch.run(sends, &[stays(true, false)], 1).unwrap();
            dispatch.run(sends, &[stays(false, false)], tiles - 2).unwrap();
            dispatch.run(sends, &[stays(false, true)], 1).unwrap();
        }
        for (half, cores) in [[0, 1], [2, 3]].into_iter().enumerate() {
            let parts = cores.map(|core| linear(column.parts[core].weights.0));
            dispatch.run(column.arrival[half], &parts, tiles).unwrap();
            let round = 4 * WORDS * 16 / 4;
            let dimensions = [Dimension::new(2 * WORDS, 1), Dimension::new(tiles.into(), round)];
            let region = Region { argument: 0, offset: at(0, 2 * half as u64), dimensions: dimensions.to_vec() };
            dispatch.transfer(column.sources[half], &region).unwrap();
        }
        for (part, core) in column.parts.iter().zip(&column.cores) {
            let mem = |ring: Ring| Part::strided(ring.cut(4 * WORDS as u32, 2).unwrap(), 0, &blocks());
            dispatch.run(part.weights.1, &[mem(part.weights.0)], tiles).unwrap();
            for (ring, channel) in [core.weights, core.operand, core.result] {
                dispatch.run(channel, &[linear(ring)], tiles).unwrap();
            }
            dispatch.run(part.result.1, &[mem(part.result.0)], tiles).unwrap();
            dispatch.start(core.tile, &[tiles, WORDS as u32, 4 * WORDS as u32]).unwrap();
        }
        let parts: Vec<Part> = column.parts.iter().map(|part| linear(part.result.0)).collect();
        dispatch.run(column.departure, &parts, tiles).unwrap();
        let dimensions = vec![Dimension::new(4 * WORDS, 1), Dimension::new(tiles.into(), WORDS * 16)];
        dispatch.transfer(column.result, &Region { argument: 2, offset: at(0, 0), dimensions }).unwrap();
    }
    dispatch.finish().unwrap()
}

#[rstest]
#[case("aie2")]
#[case("aie2p")]
fn weights_are_split_and_the_operand_is_broadcast(#[case] arch: &str) {
    let product = product_on(arch);
    let mut device = Device::of(product.configured());
    for tiles in [1, 5, 2] {
        let words = WORDS as usize * 16 * tiles;
        let weights: Vec<u32> = (0..words as u32).map(|index| index.wrapping_mul(2_654_435_761)).collect();
        let operand: Vec<u32> = (0..4 * WORDS as u32).map(|index| index * index).collect();
        let mut buffers = [weights.clone(), operand.clone(), vec![0; words]];
        device.dispatch(&stream(&product, tiles as u32), &mut buffers).unwrap();
        // The operand is in the order of blocks: word 0..8 for row 0, 8..16 for row 1 and so on.
        let expected: Vec<u32> = (0..words)
            .map(|word| {
                let (tile, at) = (word / WORDS as usize, word % WORDS as usize);
                let (row, column) = (at / 16, at % 16);
                let block = (row / 4) * 2 + column / 8;
                let in_block = (row % 4) * 8 + column % 8;
                let of_column = operand[(tile / 4 % 4) * WORDS as usize + block * 32 + in_block];
                weights[word].wrapping_add(of_column)
            })
            .collect();
        assert_eq!(buffers[2], expected, "{tiles} tiles");
    }
}

#[test]
fn every_channel_of_the_mem_tiles_is_connected() {
    let product = product();
    for column in product.columns() {
        let mem = column.departure.tile;
        let ends = product.configured().routes().flat_map(|(stream, _)| stream.to.iter().copied().chain([stream.from]));
        assert_eq!(ends.filter(|end| end.tile() == mem).count(), 12);
    }
}

#[test]
fn the_default_division_fills_the_mem_tile() {
    let MemMemory { weights, operand, result } = MemMemory::default();
    assert_eq!((4 * (weights + result) + operand) as usize, aie2().mem_tile.data_bytes);
    let larger = MemMemory { operand: operand + 64, ..MemMemory::default() };
    let error = Product::new(&aie2(), 1, &adder(), &[], &ADDER_MEMORY, larger).unwrap_err();
    assert_eq!(error.to_string(), "32768 bytes of tile (0,1): the largest free range has 32704");
}
