//! Elements on the emulator, with a program that adds integers word by word.

use super::super::testing::{Device, adder_for, arch};
use super::*;
use rstest::rstest;

fn design(name: &str, columns: u8) -> Elements {
    Elements::new(&arch(name), columns, &adder_for(name), &[]).unwrap()
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

fn add(first: u64, words: u64, count: u32) -> ElementsColumn {
    ElementsColumn {
        parameters: vec![count, words as u32, 4 * words as u32],
        a: Some(flow(0, first, words, count)),
        b: Some(flow(1, first, words, count)),
        result: flow(2, first, words, count),
        order: TileOrder::default(),
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

#[rstest]
#[case("aie2")]
#[case("aie2p")]
fn one_configuration_adds_tensors_of_many_shapes(#[case] arch: &str) {
    let design = design(arch, 4);
    let mut device = Device::of(design.configured());
    // Words of a tile, tiles of each column.
    for (words, counts) in
        [(64, [3, 3, 3, 3]), (1, [1, 0, 2, 5]), (2048, [2, 1, 2, 3]), (16, [300, 2, 7, 1]), (64, [3, 3, 3, 3])]
    {
        let mut first = 0;
        let jobs: Vec<ElementsColumn> = counts
            .iter()
            .map(|count| {
                let lane = add(first, words, *count);
                first += words * u64::from(*count);
                if *count == 0 { ElementsColumn::default() } else { lane }
            })
            .collect();
        let mut buffers = operands(first as usize);
        device.dispatch(&design.dispatch(&jobs).unwrap(), &mut buffers).unwrap();
        expect_sum(&buffers);
    }
}

#[test]
fn lanes_that_do_not_fit_are_rejected() {
    let design = design("aie2", 1);
    let message = |lane: ElementsColumn| design.dispatch(&[lane]).unwrap_err().to_string();
    let good = add(0, 64, 3);
    let longer = ElementsColumn { a: Some(Flow { cut: (0x2004, 2), ..flow(0, 0, 64, 3) }), ..good.clone() };
    assert_eq!(message(longer), "the size of a buffer is 8196: it has to be 1 to 8192");
    let shorter =
        ElementsColumn { b: Some(Flow { regions: vec![Region::linear(1, 0, 4 * 191)], ..flow(1, 0, 64, 3) }), ..good };
    let unbalanced = "MM2S 1 of tile (0,0) sends 191 words in a phase, and S2MM 1 of tile (0,2) receives 192";
    assert_eq!(message(shorter), unbalanced);
    assert_eq!(message(add(0, 64, 1025)), "S2MM 0 of tile (0,2) needs 5 tasks in one phase: it queues 4");
    let error = design.dispatch(&[add(0, 1, 1), add(0, 1, 1)]).unwrap_err();
    assert_eq!(error.to_string(), "there is no tile (1,2): the partition has 1 columns and 6 rows");
}

/// Results do not depend on the number of columns.
#[test]
fn fewer_columns_do_the_same() {
    let design = design("aie2", 2);
    let mut buffers = operands(64 * 5);
    let stream = design.dispatch(&[add(0, 64, 2), add(128, 64, 3)]).unwrap();
    Device::of(design.configured()).dispatch(&stream, &mut buffers).unwrap();
    expect_sum(&buffers);
}
