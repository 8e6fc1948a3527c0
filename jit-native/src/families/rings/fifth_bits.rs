//! The fifth bits of quants of q5_0, q5_1 and q5_K, which lie apart from the other four.
//!
//! Of q5_0 and q5_1 they are a word for 32 elements. Words of eight units become four masks of 64 bits, one for eight elements of each, by which
//! quants are selected that have it. A block of q5_K has a byte for every 32nd of its elements, the bits of its parts: a shift of 16-bit lanes
//! brings those of the part at hand to where they belong.

use super::kernel::{Kernel, Parameter, constant, mode};
use super::memory::PORTION;
use super::weights::Weights;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::numerics::HalfWords;

/// The fifth bit of each byte.
const BIT: u32 = 0x1010_1010;
/// Upper halves of words.
const UPPER: u32 = 0xAAAA_AAAA;
/// Bytes of the words of eight units.
pub(super) const WORD: i64 = 32;

/// Whether the fifth bits become masks.
pub(super) fn has_masks(of: Weights) -> bool {
    matches!(of, Weights::Q5_0 | Weights::Q5_1)
}

/// Makes masks of the bits of all groups of a portion, in their place. The first of two blocks begins half a word late, and once the scale
/// of the second one is gone, its bits are in the upper half of the word in the middle and, those of its upper elements, in the lower one of
/// the word behind the scales. Its quants begin with its third, so its bits do, too.
pub(super) fn masks(b: &mut CoreBuilder, k: Kernel, of: Weights) {
    let first = b.scalar(i64::from(OWN_MEMORY + PORTION.0));
    let second = b.add(first, of.group_bytes() / 2);
    let [from, to] = [k.words, k.ordered].map(|region| [first, second].map(|at| k.pointer(b, region, at)));
    let bytes = b.scalar(of.group_bytes());
    let group = k.modifier(b, bytes);
    let transpose = mode::transpose_bytes(b.isa().set());
    let transpose: Vec<Reg> = transpose.iter().map(|mode| b.scalar(*mode)).collect();
    let flip = b.scalar(mode::FLIP_16);
    let upper = b.scalar(UPPER.into());
    let shifts = [14, 0, 16].map(|bits| {
        let shift = b.reg(Class::Shift);
        b.constant_into(shift, bits);
        shift
    });
    let load = |b: &mut CoreBuilder, word: i64| {
        let vector = b.reg(Class::X);
        for (half, from) in [vector.lo(), vector.hi()].into_iter().zip(from) {
            b.load_as("vlda", half, from, Address::At(WORD * word));
        }
        vector
    };
    let store = |b: &mut CoreBuilder, word: i64, vector: Reg| {
        for (half, to) in [vector.lo(), vector.hi()].into_iter().zip(to) {
            b.store(half, to, Address::At(WORD * word));
        }
    };
    let groups = k.count(b, Parameter::Groups);
    HalfWords::within(b, |b, half_words| {
        b.name_loop(&format!("bits of {}", of.dtype()));
        b.repeat(groups, |b| {
            if of == Weights::Q5_0 {
                let (behind, middle) = (load(b, 1), load(b, 5));
                let (bits, quants) = (b.reg(Class::X), b.reg(Class::X));
                b.select_lanes(16, quants, middle, behind, upper);
                b.select_lanes(16, bits, behind, middle, upper);
                store(b, 5, quants);
                b.shuffle(bits, bits, bits, flip);
                let (wide, low, high) = (b.reg(Class::Acc1024), b.reg(Class::X), b.reg(Class::X));
                half_words.widened_unsigned(b, wide, bits, shifts[0]);
                half_words.narrowed(b, low, wide, shifts[1]);
                half_words.narrowed(b, high, wide, shifts[2]);
                b.emit("vbor", [low, low, high]);
                transpose.iter().for_each(|mode| b.shuffle(low, low, low, *mode));
                store(b, 1, low);
            }
            let word = if of == Weights::Q5_0 { 6 } else { 1 };
            let bits = load(b, word);
            transpose.iter().for_each(|mode| b.shuffle(bits, bits, bits, *mode));
            store(b, word, bits);
            from.into_iter().chain(to).for_each(|pointer| b.advance(pointer, group));
        });
    });
}

/// What a loop of products keeps for them.
#[derive(Clone, Copy)]
pub(super) enum FifthBits {
    None,
    /// The bit itself, and masks in turn.
    Masks {
        bit: Reg,
        masks: [Reg; 2],
    },
    /// Words of bits of even and odd units, which begin again with each run.
    Shifted {
        words: [Reg; 2],
        half_words: HalfWords,
        bit: Reg,
        wide: Reg,
        /// To the left, and then back by the number of the part, for both parts of a run.
        shifts: [Reg; 3],
        part: Reg,
    },
}

impl FifthBits {
    pub fn new(b: &mut CoreBuilder, k: Kernel, of: Weights) -> Self {
        if has_masks(of) {
            return Self::Masks { bit: constant(b, BIT), masks: [(); 2].map(|()| b.reg(Class::Pair)) };
        }
        if of != Weights::Q5K {
            return Self::None;
        }
        let at = b.scalar(i64::from(OWN_MEMORY + PORTION.0) + WORD * Weights::BITS_OF_Q5K as i64);
        let second = b.add(at, of.group_bytes() / 2);
        let words = [at, second].map(|at| k.pointer(b, k.words, at));
        let shifts = [4, 0, 1].map(|bits| {
            let shift = b.reg(Class::Shift);
            b.constant_into(shift, bits);
            shift
        });
        let half_words = HalfWords::new(b);
        Self::Shifted {
            words,
            half_words,
            bit: constant(b, BIT),
            wide: b.reg(Class::Acc1024),
            shifts,
            part: b.scalar(0),
        }
    }

    /// Puts the bits of eight elements into quants by their mask, of which those of a part are `behind` bytes in front of a pointer.
    pub fn select(self, b: &mut CoreBuilder, [quants, more]: [Reg; 2], words: Reg, behind: i64, number: usize) {
        let Self::Masks { bit, masks } = self else { return };
        let (mask, at) = (masks[number / 2], 8 * number as i64 - behind);
        for (half, at) in [(mask.lo(), at), (mask.hi(), at + 4)] {
            b.load(half, words, Address::At(at));
        }
        b.emit("vbor", [more, quants, bit]);
        b.select_lanes(8, quants, quants, more, mask);
    }

    /// Whatever a loop does with them.
    pub fn unrounded(self, b: &mut CoreBuilder, body: impl FnOnce(&mut CoreBuilder)) {
        match self {
            Self::Shifted { .. } => HalfWords::within(b, |b, _| body(b)),
            _ => body(b),
        }
    }

    /// The next eight bytes of bits of the even or the odd units.
    pub fn load(self, b: &mut CoreBuilder, parity: usize, vectors: [Reg; 2], mode: Reg) {
        let Self::Shifted { words, half_words, wide, shifts, .. } = self else { return };
        for vector in vectors {
            b.load(vector.lo(), words[parity], Address::Then(WORD));
        }
        b.shuffle(vectors[1], vectors[0], vectors[1], mode);
        half_words.widened(b, wide, vectors[1], shifts[0]);
    }

    /// Puts the bits of the first or second part of a run into quants.
    pub fn put(self, b: &mut CoreBuilder, half: usize, quants: Reg, bits: Reg) {
        let Self::Shifted { half_words, bit, wide, shifts, .. } = self else { return };
        half_words.narrowed(b, bits, wide, shifts[1 + half]);
        b.emit("vband", [bits, bits, bit]);
        b.emit("vbor", [quants, quants, bits]);
    }

    /// Once more through the bits.
    pub fn again(self, b: &mut CoreBuilder) {
        let Self::Shifted { words, .. } = self else { return };
        words.into_iter().for_each(|words| b.advance(words, -8 * WORD));
    }

    /// To the next run.
    pub fn next(self, b: &mut CoreBuilder) {
        let Self::Shifted { shifts, part, .. } = self else { return };
        self.again(b);
        b.binary_into(part, "add", part, 2);
        let second = b.add(part, 1);
        b.mov(shifts[1], part);
        b.mov(shifts[2], second);
    }
}
