//! Lanes on the emulator, with a program that adds integers word by word.

use super::super::testing::{Device, aie2, assemble};
use super::*;

/// Parameters: tiles, words of a tile, bytes between the buffers of a ring.
fn adder() -> Vec<u8> {
    let wait = "nop\n".repeat(7);
    let delay = "nop\n".repeat(5);
    assemble(&format!(
        "
        movx r0, #-1
        movx r1, #1
        movxm r20, #{a}
        movxm r21, #{b}
        movxm r22, #{result}
        .align 16
begin:  acq #{go}, r0
        movxm p0, #{parameters}
        lda r5, [p0, #0]
        lda r6, [p0, #4]
        lda r7, [p0, #8]
        {wait}
        movx r8, #0
        jz r5, #begin
        {delay}
        .align 16
tile:   acq #{a_full}, r0
        acq #{b_full}, r0
        acq #{result_empty}, r0
        add r9, r20, r8
        add r10, r21, r8
        add r11, r22, r8
        mov p1, r9
        mov p2, r10
        mov p3, r11
        add r12, r6, #0
        nop
        .align 16
word:   lda r2, [p1], #4
        lda r3, [p2], #4
        {wait}
        add r4, r2, r3
        st r4, [p3], #4
        add r12, r12, #-1
        jnz r12, #word
        {delay}
        rel #{a_empty}, r1
        rel #{b_empty}, r1
        rel #{result_full}, r1
        sub r8, r7, r8
        add r5, r5, #-1
        jnz r5, #tile
        {delay}
        j #begin
        {delay}",
        a = Lanes::A.address,
        b = Lanes::B.address,
        result = Lanes::RESULT.address,
        go = Lanes::GO,
        parameters = Lanes::PARAMETERS,
        a_full = Lanes::A.full,
        b_full = Lanes::B.full,
        result_empty = Lanes::RESULT.empty,
        a_empty = Lanes::A.empty,
        b_empty = Lanes::B.empty,
        result_full = Lanes::RESULT.full,
    ))
}

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
