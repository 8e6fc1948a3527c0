//! Rotations: what the core does for ROPE.
//!
//! A rotation turns pairs of elements by an angle, the position times a frequency of the pair. Frequencies are constants of the
//! node, which a dispatch writes into the core's memory: for each sixteen elements of a table four vectors of bf16 terms of the
//! frequency in quarters of a turn (`TERMS`), which keeps the angle exact to 2^-23 of a turn for all positions below 2^15. Behind them
//! (in [`super::step::Slot::Factors`]) is a word for each element that the position is multiplied with: 1, or the reciprocal
//! of a frequency factor that is an operand.
//!
//! In modes with several positions a token has four, and each element of the table its own of them: `gather` makes a table of
//! positions first, by a list of offsets that a dispatch writes. Both are in the half of the scratch tile that cosines and sines leave.
//!
//! For each position `turns` makes a table of cosines and sines, which all heads of that position use. Where the elements of a
//! pair are neighbours the table has an entry for each element; the partner of each is found by shifting the vector by a lane.

use super::functions::Function;
use super::operands::Operands;
use super::step::{Slot, VECTOR_BYTES};
use crate::array::Elements;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Lanes as _, Unit, Vectors, product, trigonometry};

/// Most elements of a table.
pub const TABLE_ELEMENTS: u32 = 512;
/// Where the core sees the factors: behind the scratch tile.
const FACTORS: u32 = Elements::OWN + 64 + Slot::VECTORS * VECTOR_BYTES + 4 * Slot::SCRATCH_WORDS;
/// Where it sees the terms of the frequencies.
const TERMS: u32 = FACTORS + 4 * TABLE_ELEMENTS;
/// Where it sees the positions of the elements: the table of cosines and sines takes half of the scratch tile.
pub const POSITIONS: u32 = Elements::OWN + 64 + Slot::VECTORS * VECTOR_BYTES + 2 * Slot::SCRATCH_WORDS;
/// Where it sees the offsets by which positions are gathered.
const GATHERED: u32 = POSITIONS + 4 * TABLE_ELEMENTS;
// What a joined stream has written there stays.
const _: () = assert!(TERMS - CoreBuilder::OWN_MEMORY == Elements::TABLE.0 && 8 * TABLE_ELEMENTS == Elements::TABLE.1);
/// Bytes of the terms of sixteen elements.
const TERMS_BYTES: u32 = 128;
/// Bytes of the cosines and sines of sixteen elements.
const TURNS_BYTES: i64 = 128;
/// Even lanes.
const EVEN: u32 = 0x5555;

/// Offsets of factors and terms in the core's data memory, for a dispatch to write them.
pub const OFFSETS: [u32; 2] = [FACTORS - CoreBuilder::OWN_MEMORY, TERMS - CoreBuilder::OWN_MEMORY];
/// Offset of the list for [`Function::Gather`], in bytes of the tile of positions.
pub const GATHERED_OFFSET: u32 = GATHERED - CoreBuilder::OWN_MEMORY;

/// The words of terms: of each sixteen elements all first terms, then all second ones.
#[must_use]
pub fn term_words(terms: &[[u16; 4]]) -> Vec<u32> {
    let mut words = Vec::new();
    for chunk in terms.chunks(16) {
        for term in 0..4 {
            for pair in 0..8 {
                let at = |lane: usize| chunk.get(lane).map_or(0, |terms| u32::from(terms[term]));
                words.push(at(2 * pair) | at(2 * pair + 1) << 16);
            }
        }
    }
    words
}

/// The words of the first source that the list of offsets names.
pub(super) fn gather(b: &mut CoreBuilder, o: &Operands) {
    let region = b.region("offsets");
    let list = b.pointer_at(region, GATHERED);
    b.repeat(o.count(Function::Gather), |b| {
        let (offset, word) = (b.reg(Class::Jump), b.reg(Class::Scalar));
        b.load(offset, list, Address::Then(4));
        b.load(word, o.first.0, Address::Index(offset));
        b.store(word, o.target.0, Address::Then(4));
    });
}

/// A table of cosines and sines, sixteen of each in turn, for the positions that the first source has.
pub(super) fn turns<U: Unit>(b: &mut CoreBuilder, unit: U, o: &Operands) {
    let region = b.region("frequencies");
    let (factors, terms) = (b.pointer_at(region, FACTORS), b.pointer_at(region, TERMS));
    // The bits of 1.5 * 2^23 plus a whole number are those of their sum.
    let whole = unit.one(b).word(12_582_912f32.to_bits());
    b.repeat(o.count(Function::Turns), |b| {
        let x = {
            let mut l = unit.one(b);
            let position = l.load(o.first.0, Address::ThenBy(o.first.1));
            let position = l.bits(position);
            let position = l.add_words(position, whole);
            let (position, whole_number) = (l.float(position), l.float(whole));
            let position = l.sub(position, whole_number);
            let factor = l.load(factors, Address::Then(VECTOR_BYTES.into()));
            product::product(&mut l, position, factor)
        };
        // Pairs of terms: f0 and none, f1 and f0, f2 and f0, f1 and f3.
        let pairs = [[Some(0), None], [Some(32), Some(0)], [Some(64), Some(0)], [Some(32), Some(96)]];
        let pairs = unit.load_pairs(b, terms, pairs);
        b.advance(terms, TERMS_BYTES);
        let mut l = unit.one(b);
        let angle = trigonometry::angle(&mut l, x, pairs);
        let (sine, cosine) = trigonometry::sine_and_cosine(&mut l, &angle);
        l.store(cosine, o.target.0, Address::Then(TURNS_BYTES / 2));
        l.store(sine, o.target.0, Address::Then(TURNS_BYTES / 2));
    });
}

/// Loads the next cosine and sine of a table.
fn next_turn<L: Vectors>(l: &mut L, table: Reg) -> (L::Float, L::Float) {
    let cosine = l.load(table, Address::Then(TURNS_BYTES / 2));
    (cosine, l.load(table, Address::Then(TURNS_BYTES / 2)))
}

/// `x * cosine + partner * sine`.
fn turned<L: Vectors>(l: &mut L, x: L::Float, partner: L::Float, (cosine, sine): (L::Float, L::Float)) -> L::Float {
    let first = product::product(l, x, cosine);
    let second = product::product(l, partner, sine);
    l.add(first, second)
}

/// For each of `c0` heads, `c1` bytes apart, does `body` with pointers to the head's first source, table and target.
fn heads(b: &mut CoreBuilder, o: &Operands, body: impl FnOnce(&mut CoreBuilder, [Reg; 3])) {
    let [count, distance, ..] = o.constants;
    // Where heads begin is kept in scalars: there are eight pointers only.
    let starts = [o.first.0, o.second.0, o.target.0].map(|pointer| {
        let start = b.reg(Class::Scalar);
        b.mov(start, pointer);
        start
    });
    let regions = ["heads", "turns", "turned heads"].map(|name| b.region(name));
    b.repeat(Count::from(count).at_least(1), |b| {
        let pointers = [0, 1, 2].map(|index| {
            let pointer = b.pointer(regions[index]);
            b.mov(pointer, starts[index]);
            pointer
        });
        body(b, pointers);
        b.binary_into(starts[0], "add", starts[0], distance);
        b.binary_into(starts[2], "add", starts[2], distance);
    });
}

/// Turns pairs of neighbours: even elements become `x cos - y sin`, odd ones `y cos + x sin`.
pub(super) fn rotate_pairs<U: Unit>(b: &mut CoreBuilder, unit: U, o: &Operands) {
    heads(b, o, |b, [first, table, target]| {
        b.name_loop("RotatePairs");
        b.repeat(o.count(Function::RotatePairs), |b| {
            let mut l = unit.one(b);
            let x = l.load(first, Address::Then(VECTOR_BYTES.into()));
            let (cosine, sine) = next_turn(&mut l, table);
            let bits = l.bits(x);
            let (next, previous) = (l.turned(bits, 4), l.turned(bits, 60));
            let even = l.builder().scalar(EVEN.into());
            let even = l.mask(even);
            let partner = l.select(previous, next, even);
            let (sine, sign) = (l.bits(sine), l.word(0x8000_0000));
            let negative = l.add_words(sine, sign);
            let sine = l.select(sine, negative, even);
            let (partner, sine) = (l.float(partner), l.float(sine));
            let y = turned(&mut l, x, partner, (cosine, sine));
            l.store(y, target, Address::Then(VECTOR_BYTES.into()));
        });
    });
}

/// Turns one half: its elements times the cosine plus those `c2` bytes further times the sine, whose sign `c3` is added to.
pub(super) fn rotate_halves<U: Unit>(b: &mut CoreBuilder, unit: U, o: &Operands) {
    let [_, _, apart, sign] = o.constants;
    let distance = b.reg(Class::Modifier);
    b.mov(distance, apart);
    heads(b, o, |b, [first, table, target]| {
        let other = b.reg(Class::Pointer);
        b.mov(other, first);
        b.advance(other, distance);
        b.name_loop("RotateHalves");
        b.repeat(o.count(Function::RotateHalves), |b| {
            let mut l = unit.one(b);
            let x = l.load(first, Address::Then(VECTOR_BYTES.into()));
            let partner = l.load(other, Address::Then(VECTOR_BYTES.into()));
            let (cosine, sine) = next_turn(&mut l, table);
            let (sine, sign) = (l.bits(sine), l.splat(sign));
            let sine = l.add_words(sine, sign);
            let sine = l.float(sine);
            let y = turned(&mut l, x, partner, (cosine, sine));
            l.store(y, target, Address::Then(VECTOR_BYTES.into()));
        });
    });
}
