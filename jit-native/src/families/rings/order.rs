//! Words of sixteen things that follow each other become vectors of the same word of all of them.
//!
//! Sixteen units of `n` words are a matrix of 16 rows. To interleave the words of its first half with those of its second moves the
//! highest bit of a row's number behind all others; three times of it leave two matrices of `n` rows, of the even and of the odd units,
//! with eight words each, four times one of sixteen. That works for any number of words, and all that it loads are halves of vectors.

use super::kernel::{Kernel, MODES, shuffled};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};

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
    let (first, second) = (k.pointer(b, from_region, from), k.pointer(b, from_region, second));
    let to = k.pointer(b, to_region, to);
    let half = k.modifier(b, half);
    let mode = b.scalar(MODES.mix_32[0]);
    b.repeat(Count::from(groups).at_least(1), |b| {
        b.name_loop("words in turn");
        b.repeat(Count::from(words).at_least(4), |b| {
            let mixed = halves_in_turn(b, [first, second], mode);
            b.store(mixed, to, Address::Then(64));
        });
        b.advance(first, half);
        b.advance(second, half);
    });
}

/// The next eight words from each of two pointers, in turn.
pub(super) fn halves_in_turn(b: &mut CoreBuilder, pointers: [Reg; 2], mode: Reg) -> Reg {
    // The upper halves count for nothing.
    let [low, high] = pointers.map(|pointer| {
        let vector = b.reg(Class::X);
        b.load(vector.hi(), pointer, Address::At(0));
        b.load(vector.lo(), pointer, Address::Then(32));
        vector
    });
    shuffled(b, low, high, mode)
}
