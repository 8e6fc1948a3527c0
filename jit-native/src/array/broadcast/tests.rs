//! The design on the emulator, with a program that adds its operands word by word: each core gets the weights of its row and the operand of its
//! column.

use super::super::testing::{ADDER_MEMORY, Device, adder, aie2};
use super::super::{Dimension, Part, Region};
use super::*;

const WORDS: u64 = 64;

#[test]
fn every_core_gets_its_row_and_its_column() {
    let broadcast = Broadcast::new(&aie2(), 4, &adder(), &ADDER_MEMORY).unwrap();
    assert_eq!((broadcast.columns().len(), broadcast.rows()), (4, 4));
    let tiles = 3u64;
    let part = |ring: Ring| Part::linear(Ring { capacity: ring.capacity.max(512), ..ring }.cut(256, 2).unwrap(), WORDS);
    let mut dispatch = broadcast.configured().dispatch();
    for (number, column) in broadcast.columns().iter().enumerate() {
        // Rings of the mem tile, one behind the other.
        let of_mem = |index: u32, ring: Ring| {
            Part::linear(Ring { address: 512 * index, stride: 256, capacity: 512, ..ring }, WORDS)
        };
        let flows = [(0, column.weights_from, column.weights), (1, column.operand_from, column.operand)];
        for (argument, [from, to], (ring, sends)) in flows {
            let region = Region::linear(argument, number as u64 * tiles * 4 * WORDS, tiles * 4 * WORDS);
            dispatch.transfer(from, &region).unwrap();
            for channel in [to, sends] {
                dispatch.run(channel, &[of_mem(argument.into(), ring)], tiles as u32).unwrap();
            }
        }
        let mut results = Vec::new();
        for (index, (core, (ring, arrival))) in (2..).zip(column.cores.iter().zip(&column.results)) {
            for (ring, channel) in [core.weights, core.operand, core.result] {
                dispatch.run(channel, &[part(ring)], tiles as u32).unwrap();
            }
            dispatch.run(*arrival, &[of_mem(index, *ring)], tiles as u32).unwrap();
            results.push(of_mem(index, *ring));
            dispatch.start(core.tile, &[tiles as u32, WORDS as u32, 256]).unwrap();
        }
        for (half, [from, to]) in column.departures.iter().enumerate() {
            let cores = column.departing(half);
            let first = ((number as u64 * tiles * 4) + cores.start as u64) * WORDS;
            let dimensions = vec![Dimension::new(WORDS * cores.len() as u64, 1), Dimension::new(tiles, 4 * WORDS)];
            dispatch.run(*from, &results[cores], tiles as u32).unwrap();
            dispatch.transfer(*to, &Region { argument: 2, offset: 4 * first, dimensions }).unwrap();
        }
    }
    let stream = dispatch.finish().unwrap();
    let mut device = Device::of(broadcast.configured());
    let count = (4 * tiles * WORDS) as u32;
    let mut buffers = [(0..count).collect(), (0..count).map(|word| word << 16).collect(), vec![0; 4 * count as usize]];
    device.dispatch(&stream, &mut buffers).unwrap();
    let [weights, operand, result] = &buffers;
    let mut at = 0;
    for column in 0..4 {
        for tile in 0..tiles as usize {
            for row in 0..4 {
                for word in 0..WORDS as usize {
                    let of = |number: usize| (number * tiles as usize + tile) * WORDS as usize + word;
                    assert_eq!(result[at], weights[of(row)] + operand[of(column)], "{column} {tile} {row} {word}");
                    at += 1;
                }
            }
        }
    }
}

#[test]
fn fewer_columns_have_fewer_rows() {
    for columns in 1..4 {
        let broadcast = Broadcast::new(&aie2(), columns, &adder(), &ADDER_MEMORY).unwrap();
        assert_eq!(broadcast.rows(), usize::from(columns));
    }
}
