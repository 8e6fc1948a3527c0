//! Words of sixteen things that follow each other become vectors of the same word of all of them.
//!
//! Sixteen units of `n` words are a matrix of 16 rows. To interleave the words of its first half with those of its second moves the
//! highest bit of a row's number behind all others; three times of it leave two matrices of `n` rows, of the even and of the odd units,
//! with eight words each, four times one of sixteen. That works for any number of words, and all that it loads are halves of vectors.

use super::kernel::{Kernel, OfType, constant, mode, shuffled, turns};
use super::memory::{PORTION, SPARE};
use super::parameters::Parameter;
use super::six_bits;
use super::weights::Weights;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, AliasRegion, CoreBuilder, Count, Reg};

/// Words of a unit that fit an iteration.
const MOST_WORDS: usize = 9;
/// Words of a unit at least.
const LEAST_WORDS: u32 = 5;

/// Puts the words of a portion at the address `source` in order, into their place.
pub(super) fn portion(b: &mut CoreBuilder, k: Kernel, source: Reg) {
    // A loop for each type is faster than one for all, where there is room for it.
    let has_room = k.all.len() <= 3;
    let way = |of: Weights| (of == Weights::Q6K || has_room && of.unit_words() <= MOST_WORDS).then_some(of);
    k.choose_way(b, way, |b, of| {
        let place = if of == Some(Weights::Q6K) { six_bits::WORDS } else { PORTION };
        let (from, to) = (b.add(source, 0), k.address(b, place));
        let both = b.scalar(i64::from(2 * OWN_MEMORY + place.0 + SPARE.0));
        let groups = k.parameter(b, Parameter::Groups);
        b.repeat(3, |b| {
            match of {
                Some(Weights::Q6K) => six_bits::words(b, k, [from, to]),
                Some(of) => short(b, k, of, [from, to], Count::from(groups).at_least(1)),
                None => long(b, k, [from, to], groups),
            }
            b.mov(from, to);
            b.emit("sub", [to, both, to]);
        });
    });
}

/// Interleaves the halves of each group, a group at once.
fn short(b: &mut CoreBuilder, k: Kernel, of: Weights, [from, to]: [Reg; 2], groups: Count) {
    let half = of.group_bytes() / 2;
    let second = b.add(from, half);
    let pointers = [from, second].map(|at| k.pointer(b, k.words, at));
    let to = k.pointer(b, k.ordered, to);
    let turns = [(); 2].map(|()| Turns::new(b));
    b.name_loop(&format!("words of {} in turn", of.dtype()));
    b.repeat(groups, |b| {
        let words = of.unit_words();
        for (word, turns) in (1..=words).zip(turns.iter().cycle()) {
            // Behind the last one there is the other half.
            let behind = if word == words { half } else { 0 };
            let mixed = turns.next(b, pointers, [Address::Then(32 + behind); 2]);
            b.store(mixed, to, Address::Then(64));
        }
    });
}

/// Interleaves the halves of each group, a vector at once.
fn long(b: &mut CoreBuilder, k: Kernel, [from, to]: [Reg; 2], groups: Reg) {
    let bytes = k.of_type(b, OfType::Group);
    let (half, words, none) = (b.binary("lshl", bytes, -1), b.binary("lshl", bytes, -6), b.scalar(0));
    let second = b.binary("add", from, half);
    let pointers = [from, second].map(|at| k.pointer(b, k.words, at));
    let to = k.pointer(b, k.ordered, to);
    let (step, last) = (b.scalar(32), b.add(half, 32));
    let by = pointers.map(|_| turns(b, [words, none], [step, last]));
    let turns = Turns::new(b);
    let count = b.binary("mul", groups, words);
    b.name_loop("words in turn");
    b.repeat(Count::from(count).at_least(LEAST_WORDS), |b| {
        let mixed = turns.next(b, pointers, by.map(Address::Then2D));
        b.store(mixed, to, Address::Then(64));
    });
}

/// Interleaves the halves of `words` vectors from the address `from` to the address `to`.
pub(super) fn interleave(
    b: &mut CoreBuilder,
    k: Kernel,
    [from_region, to_region]: [AliasRegion; 2],
    [from, to]: [Reg; 2],
    words: Reg,
) {
    let half = b.binary("lshl", words, 5);
    let second = b.add(from, half);
    let pointers = [from, second].map(|at| k.pointer(b, from_region, at));
    let to = k.pointer(b, to_region, to);
    let turns = Turns::new(b);
    b.name_loop("sums in turn");
    b.repeat(Count::from(words).at_least(4), |b| {
        let mixed = turns.next(b, pointers, [Address::Then(32); 2]);
        b.store(mixed, to, Address::Then(64));
    });
}

/// Takes words from two pointers in turn.
pub(super) struct Turns {
    /// Of which the upper halves count for nothing.
    vectors: [Reg; 2],
    mode: Reg,
}

impl Turns {
    pub fn new(b: &mut CoreBuilder) -> Self {
        Self { vectors: [(); 2].map(|()| constant(b, 0)), mode: b.scalar(mode::MIX_32[0]) }
    }

    /// The next eight words from each of two pointers, which then move as the addresses say. Both are in one bank, and there are as many stores
    /// as loads: two loads at once would take longer than one after the other.
    pub fn next(&self, b: &mut CoreBuilder, pointers: [Reg; 2], addresses: [Address; 2]) -> Reg {
        for ((vector, pointer), address) in self.vectors.iter().zip(pointers).zip(addresses) {
            b.load_as("vlda", vector.lo(), pointer, address);
        }
        shuffled(b, self.vectors[0], self.vectors[1], self.mode)
    }
}
