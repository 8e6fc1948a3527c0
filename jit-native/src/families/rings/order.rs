//! Words of sixteen things that follow each other become vectors of the same word of all of them.
//!
//! Sixteen units of `n` words are a matrix of 16 rows. To interleave the words of its first half with those of its second moves the
//! highest bit of a row's number behind all others; three times of it leave two matrices of `n` rows, of the even and of the odd units,
//! with eight words each, four times one of sixteen. That works for any number of words, and all that it loads are halves of vectors.

use super::kernel::{Kernel, MODES, constant, shuffled};
use crate::codegen::{Address, AliasRegion, CoreBuilder, Count, Reg};

/// Interleaves the halves of each of `groups` runs of `words` vectors from the address `from` to the address `to`.
pub(super) fn interleave(
    b: &mut CoreBuilder,
    k: Kernel,
    [from_region, to_region]: [AliasRegion; 2],
    [from, to]: [Reg; 2],
    [groups, words]: [Reg; 2],
) {
    let half = b.binary("lshl", words, 5);
    let second = b.add(from, half);
    let pointers = [from, second].map(|at| k.pointer(b, from_region, at));
    let to = k.pointer(b, to_region, to);
    let turns = Turns::new(b);
    let count = b.binary("mul", groups, words);
    let (left, none) = (b.add(words, 0), b.scalar(0));
    b.name_loop("words in turn");
    b.repeat(Count::from(count).at_least(4), |b| {
        let mixed = turns.next(b, pointers);
        b.store(mixed, to, Address::Then(64));
        // Behind the first half of a run there is the second one.
        b.binary_into(left, "sub", left, 1);
        let by = b.select(left, none, half);
        let by = k.modifier(b, by);
        pointers.iter().for_each(|pointer| b.advance(*pointer, by));
        let again = b.select(left, left, words);
        b.mov(left, again);
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
        Self { vectors: [(); 2].map(|()| constant(b, 0)), mode: b.scalar(MODES.mix_32[0]) }
    }

    /// The next eight words from each of two pointers.
    pub fn next(&self, b: &mut CoreBuilder, pointers: [Reg; 2]) -> Reg {
        for (vector, pointer) in self.vectors.iter().zip(pointers) {
            b.load(vector.lo(), pointer, Address::Then(32));
        }
        shuffled(b, self.vectors[0], self.vectors[1], self.mode)
    }
}
