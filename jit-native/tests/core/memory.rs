//! Loads and stores: addresses, regions, constants.

use crate::rig::{OWN, expect};
use aie_jit_native::codegen::{Address, Class};

const OUT: u32 = 0x400;
const IN: u32 = 0x800;

fn words(count: u32) -> Vec<u32> {
    (0..count).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x5a5a).collect()
}

#[test]
fn vectors_are_copied_by_all_addresses() {
    let input = words(48);
    let mut expected = input[..8].to_vec();
    expected.extend(&input[16..32]);
    expected.extend(&input[8..16]);
    expect(
        |b| {
            let (from, to) = (b.region("from"), b.region("to"));
            let (p, q) = (b.pointer_at(from, OWN + IN), b.pointer_at(to, OWN + OUT));
            let (w, x, v) = (b.reg(Class::W), b.reg(Class::X), b.reg(Class::W));
            b.load(w, p, Address::Then(64));
            let back = b.reg(Class::Modifier);
            b.constant_into(back, -32);
            b.load(x, p, Address::ThenBy(back));
            let nothing = b.reg(Class::Jump);
            b.constant_into(nothing, 0);
            b.load(v, p, Address::Index(nothing));
            b.store(w, q, Address::Then(32));
            b.store(x, q, Address::At(0));
            b.store(v, q, Address::At(64));
        },
        &[(IN, input)],
        OUT,
        &expected,
    );
}

#[test]
fn two_dimensions_walk_rows() {
    // Words 0, 2, 4 of rows of 8 words.
    let input = words(32);
    let expected: Vec<u32> = (0..12).map(|i| input[8 * (i / 3) + 2 * (i % 3)]).collect();
    expect(
        |b| {
            let (from, to) = (b.region("from"), b.region("to"));
            let (p, q) = (b.pointer_at(from, OWN + IN), b.pointer_at(to, OWN + OUT));
            let d = b.reg(Class::Dimensions2);
            b.constant_into(d.jump(), 8);
            b.constant_into(d.size(), 2);
            b.constant_into(d.counter(), 0);
            b.constant_into(d.modifier(), 32 - 2 * 8);
            b.repeat(12, |b| {
                let r = b.reg(Class::Scalar);
                b.load(r, p, Address::Then2D(d));
                b.store(r, q, Address::Then(4));
            });
        },
        &[(IN, input)],
        OUT,
        &expected,
    );
}

#[test]
fn a_region_keeps_its_order() {
    // Each iteration reads what the one before has stored.
    expect(
        |b| {
            let region = b.region("memory");
            let (p, q) = (b.pointer_at(region, OWN + OUT), b.pointer_at(region, OWN + OUT + 4));
            let one = b.scalar(1);
            b.store(one, p, Address::At(0));
            b.repeat(9, |b| {
                let r = b.reg(Class::Scalar);
                b.load(r, p, Address::Then(4));
                let doubled = b.add(r, r);
                b.store(doubled, q, Address::Then(4));
            });
        },
        &[],
        OUT,
        &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    );
}

#[test]
fn parts_of_words_are_stored_one_after_the_other() {
    expect(
        |b| {
            let region = b.region("memory");
            let p = b.pointer_at(region, OWN + OUT);
            for number in 0..4 {
                let r = b.scalar(0x30 + number);
                b.store_as("st.s8", r, p, Address::Then(1));
            }
            let (r, q) = (b.reg(Class::Scalar), b.pointer_at(region, OWN + OUT));
            b.load_as("lda.u16", r, q, Address::Then(2));
            b.store(r, q, Address::At(2));
        },
        &[],
        OUT,
        &[0x3332_3130, 0x3130],
    );
}

#[test]
fn constants_are_in_data_memory() {
    expect(
        |b| {
            let bytes: Vec<u8> = (1..=32).collect();
            b.constant(&[9], 1);
            let offset = b.constant(&bytes, 32);
            assert_eq!(offset % 32, 0);
            let (from, to) = (b.region("constants"), b.region("to"));
            let (p, q) = (b.pointer_at(from, OWN + offset), b.pointer_at(to, OWN + OUT));
            let w = b.reg(Class::W);
            b.load(w, p, Address::At(0));
            b.store(w, q, Address::At(0));
        },
        &[],
        OUT,
        &[0x0403_0201, 0x0807_0605],
    );
}
