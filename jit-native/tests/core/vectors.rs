//! Vector instructions in loops: sums of integers, products of bf16.

use crate::rig::{OWN, expect, expect_on};
use aie_isa::Isa;
use aie_jit_native::codegen::{Address, Class, CoreBuilder, Reg};

const OUT: u32 = 0x400;
const A: u32 = 0x1000;
const B: u32 = 0x2000;

#[test]
fn vectors_are_added() {
    let (a, b): (Vec<u32>, Vec<u32>) = (0..256).map(|i| (i * 77, 1000 - i)).unzip();
    let expected: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
    expect(
        |b| {
            let [ra, rb, rc] = ["a", "b", "c"].map(|name| b.region(name));
            let (pa, pb) = (b.pointer_at(ra, OWN + A), b.pointer_at(rb, OWN + B));
            let pc = b.pointer_at(rc, OWN + OUT);
            b.repeat(16, |b| {
                let (x, y) = (b.reg(Class::X), b.reg(Class::X));
                b.load(x, pa, Address::Then(64));
                b.load(y, pb, Address::Then(64));
                b.emit("vadd.32", [x, x, y]);
                b.store(x, pc, Address::Then(64));
            });
        },
        &[(A, a), (B, b)],
        OUT,
        &expected,
    );
}

/// bf16 of a small integer.
fn bf16(value: i32) -> u32 {
    (value as f32).to_bits() >> 16
}

fn pack(values: &[i32]) -> Vec<u32> {
    values.as_chunks().0.iter().map(|[low, high]| bf16(*low) | bf16(*high) << 16).collect()
}

#[test]
fn matrices_are_multiplied() {
    // 4 x 64 times 64 x 4 in blocks of 8: all sums are exact.
    let k = 64;
    let value = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as i32 - 5;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for block in 0..k / 8 {
        (0..32).for_each(|e| a.push(value(e / 8, block * 8 + e % 8)));
        (0..32).for_each(|e| b.push(value(block * 8 + e / 4, e % 4 + 1)));
    }
    let expected = (0..16).map(|e| {
        let sum: i32 = (0..k).map(|k| value(e / 4, k) * value(k, e % 4 + 1)).sum();
        (sum as f32).to_bits()
    });
    // AIE2P multiplies no matrices of bf16.
    expect_on(
        Isa::aie2(),
        |b| {
            let [ra, rb, rc] = ["a", "b", "c"].map(|name| b.region(name));
            let (pa, pb) = (b.pointer_at(ra, OWN + A), b.pointer_at(rb, OWN + B));
            let pc = b.pointer_at(rc, OWN + OUT);
            let (c, acc) = (b.scalar(CoreBuilder::MATRIX_BF16.into()), b.reg(Class::Acc512));
            b.emit("vclr", [acc]);
            b.repeat(k as u32 / 8, |b| {
                let (x, y) = (b.reg(Class::X), b.reg(Class::X));
                b.load(x, pa, Address::Then(64));
                b.load(y, pb, Address::Then(64));
                b.mac_f(acc, acc, x, y, c);
            });
            b.store(acc, pc, Address::At(0));
        },
        &[(A, pack(&a)), (B, pack(&b))],
        OUT,
        &expected.collect::<Vec<_>>(),
    );
}

#[test]
fn lanes_are_converted_and_added() {
    // bf16 to fp32, plus itself, and back to bf16: exact.
    let values: Vec<i32> = (0..32).map(|i| i * 3 - 40).collect();
    let doubled: Vec<i32> = values.iter().map(|value| value * 2).collect();
    for (isa, class, configuration) in [
        (Isa::aie2(), Class::Acc512, CoreBuilder::MATRIX_BF16),
        (Isa::aie2p(), Class::Acc2048, CoreBuilder::LANES_BF16),
    ] {
        expect_on(
            isa,
            |b| {
                let (from, to) = (b.region("from"), b.region("to"));
                let (p, q) = (b.pointer_at(from, OWN + A), b.pointer_at(to, OWN + OUT));
                b.clear_vectors();
                let c = b.scalar(configuration.into());
                b.repeat(2, |b| {
                    let (x, sum) = (b.reg(class), b.reg(class));
                    b.undefined(x);
                    let lanes = |acc: Reg| if class == Class::Acc512 { acc } else { acc.lo().lo() };
                    b.load_as("vlda.conv.fp32.bf16", lanes(x), p, Address::Then(32));
                    b.add_f(sum, x, x, c);
                    b.store_as("vst.conv.bf16.fp32", lanes(sum), q, Address::Then(32));
                });
            },
            &[(A, pack(&values))],
            OUT,
            &pack(&doubled),
        );
    }
}

#[test]
fn lanes_are_compared_and_selected() {
    let a: Vec<u32> = (0..16).map(|i| i * 5).collect();
    let b: Vec<u32> = (0..16).map(|i| 40 - i).collect();
    let expected = a.iter().zip(&b).map(|(a, b)| *a.max(b));
    let mut expected: Vec<u32> = expected.collect();
    expected.extend(a.iter().zip(&b).map(|(a, b)| if a < b { *b } else { *a }));
    // The generations say differently that words have a sign.
    expect(
        |b| {
            let (from, to) = (b.region("from"), b.region("to"));
            let (p, q) = (b.pointer_at(from, OWN + A), b.pointer_at(to, OWN + OUT));
            let (x, y, z) = (b.reg(Class::X), b.reg(Class::X), b.reg(Class::X));
            let less = b.reg(Class::Scalar);
            b.load(x, p, Address::Then(64));
            b.load(y, p, Address::Then(64));
            if b.isa().name() == Isa::aie2().name() {
                b.emit("vmax_lt.s32", [z, less, x, y]);
            } else {
                let operands = [("d", z), ("cmp", less), ("s1", x), ("s2", y)];
                b.op("VMAX_LT_32_vaddSign1", &operands.map(|(name, reg)| (name, reg.into())));
            }
            b.store(z, q, Address::Then(64));
            b.select_lanes(32, z, x, y, less);
            b.store(z, q, Address::Then(64));
        },
        &[(A, a.into_iter().chain(b).collect())],
        OUT,
        &expected,
    );
}
