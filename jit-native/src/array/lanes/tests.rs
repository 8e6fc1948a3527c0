//! Lanes on the emulator, with a program that adds integers word by word.

use super::super::testing::{Device, adder, aie2};
use super::*;

fn lanes(columns: u8) -> Lanes {
    Lanes::new(&aie2(), columns, &adder(), &[]).unwrap()
}

/// A flow of `count` tiles of `words` words of an argument from word `first` on.
fn flow(argument: u16, first: u64, words: u64, count: u32) -> Flow {
    let bytes = 4 * words;
    Flow {
        cut: (bytes as u32, 2),
        tiles: vec![(words, count)],
        regions: vec![Region::linear(argument, 4 * first, bytes * u64::from(count))],
    }
}

fn add(first: u64, words: u64, count: u32) -> Lane {
    Lane {
        parameters: vec![count, words as u32, 4 * words as u32],
        a: Some(flow(0, first, words, count)),
        b: Some(flow(1, first, words, count)),
        result: flow(2, first, words, count),
    }
}

fn operands(words: usize) -> [Vec<u32>; 3] {
    let a = (0..words as u32).map(|index| index.wrapping_mul(0x9E37_79B9)).collect();
    let b = (0..words as u32).map(|index| index ^ 0x1234_5678).collect();
    [a, b, vec![0xDEAD_BEEF; words]]
}

fn expect_sum(buffers: &[Vec<u32>; 3]) {
    let [a, b, sum] = buffers;
    let expected: Vec<u32> = a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect();
    assert_eq!(*sum, expected);
}

#[test]
fn one_configuration_adds_tensors_of_many_shapes() {
    let lanes = lanes(4);
    let mut device = Device::of(lanes.configured());
    // Words of a tile, tiles of each column.
    for (words, counts) in
        [(64, [3, 3, 3, 3]), (1, [1, 0, 2, 5]), (2048, [2, 1, 2, 3]), (16, [300, 2, 7, 1]), (64, [3, 3, 3, 3])]
    {
        let mut first = 0;
        let jobs: Vec<Lane> = counts
            .iter()
            .map(|count| {
                let lane = add(first, words, *count);
                first += words * u64::from(*count);
                if *count == 0 { Lane::default() } else { lane }
            })
            .collect();
        let mut buffers = operands(first as usize);
        device.dispatch(&lanes.dispatch(&jobs).unwrap(), &mut buffers).unwrap();
        expect_sum(&buffers);
    }
}
