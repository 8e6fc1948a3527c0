//! Functions of f32 on a vector unit that multiplies bf16.
//!
//! AIE2 adds and subtracts sixteen f32 at a time, but multiplies bf16 only, two products a lane and instruction, which are summed
//! in f32. An f32 is the exact sum of three bf16 (3 x 8 bits), so a product of f32 is a sum of products of such terms: three
//! instructions with six products give it to about two units in the last place, two with four products to 2^-17. What needs
//! powers of two (exponentials, reciprocals, roots) works on the bits of a number with integer additions, and comparisons are
//! those of integers, for which the order of positive floats is the same.
//!
//! AIE2P multiplies more lanes at a time, but one product a lane.
//!
//! The functions are written against [`Lanes`], the operations of the vector unit that they use. For each generation an
//! implementation of it emits instructions ([`Unit`]); another, in the tests, computes what those of AIE2 compute, so that the
//! errors of every function are measured over all 65,536 bf16 inputs without an array.
//!
//! Numbers: sixteen lanes; f32 with exponent 0 counts as zero. Infinities and NaN must not reach a product, because the vector
//! unit makes NaN of both; functions that can meet an infinity clamp their argument first and select the result.

mod aie2;
mod aie2p;
pub mod block_float;
pub mod exponential;
pub mod half;
mod half_words;
mod heads;
pub mod logarithm;
mod nibbles;
pub mod product;
pub mod quotient;
pub mod root;
mod sixteen;
mod tiles;
pub mod trigonometry;
mod twins;
mod unit;
mod unit_program;

pub use aie2::{Aie2, Emission};
pub use aie2p::Aie2p;
pub use block_float::BlockFloat;
pub use half_words::HalfWords;
pub use heads::{Heads, Keys, Mask, Queries, Values};
pub use nibbles::Nibbles;
pub use sixteen::Sixteen;
pub use tiles::{Arrangement, Sums, Tiles};
pub use twins::Twins;
pub use unit::{Unit, Vectors};
pub use unit_program::{UnitProgram, written_for};

#[cfg(test)]
pub mod model;
#[cfg(test)]
mod tests;

/// Sixteen lanes of a vector unit.
///
/// Rounding to bf16 is to nearest even (crRnd 12), integers wrap (crSat 0).
pub trait Lanes {
    /// Sixteen f32, in a 512-bit accumulator.
    type Float: Copy;
    /// Sixteen words of 32 bits, in a vector register.
    type Word: Copy;
    /// Twice sixteen bf16, in a vector register.
    type Pair: Copy;
    /// A bit for each lane, in a scalar register.
    type Mask: Copy;

    /// The same word in all lanes.
    fn word(&mut self, word: u32) -> Self::Word;
    /// The same bf16 in all lanes of a half.
    fn pair(&mut self, low: u16, high: u16) -> Self::Pair;
    /// The bits of numbers. A move.
    fn bits(&mut self, x: Self::Float) -> Self::Word;
    /// The numbers of bits. A move.
    fn float(&mut self, x: Self::Word) -> Self::Float;

    /// `a + b`.
    fn add(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a - b`.
    fn sub(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// Both rounded to bf16.
    fn narrow(&mut self, low: Self::Float, high: Self::Float) -> Self::Pair;
    /// The nearest bf16 and the nearest bf16 of what that leaves: together to 2^-18 of the number.
    fn two_terms(&mut self, x: Self::Float) -> Self::Pair {
        let first = self.head(x);
        let rest = self.sub(x, first);
        self.narrow(x, rest)
    }
    /// The three bf16 whose sum is the number, as pairs of the first and second, and of the first and third.
    fn three_terms(&mut self, x: Self::Float) -> [Self::Pair; 2] {
        let first = self.head(x);
        let rest = self.sub(x, first);
        let second = self.head(rest);
        let last = self.sub(rest, second);
        [self.narrow(x, rest), self.narrow(x, last)]
    }
    /// Three numbers whose roundings to bf16 are the [three terms](Lanes::three_terms).
    fn split(&mut self, x: Self::Float) -> [Self::Float; 3] {
        let first = self.head(x);
        let rest = self.sub(x, first);
        let second = self.head(rest);
        [x, rest, self.sub(rest, second)]
    }
    /// The halves exchanged.
    fn swapped(&mut self, x: Self::Pair) -> Self::Pair;
    /// The nearest bf16, as f32.
    fn head(&mut self, x: Self::Float) -> Self::Float;
    /// `a.low * b.low + a.high * b.high`.
    fn multiply(&mut self, a: Self::Pair, b: Self::Pair) -> Self::Float;
    /// `sum + a.low * b.low + a.high * b.high`.
    fn multiply_add(&mut self, sum: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float;
    /// `sum - a.low * b.low - a.high * b.high`.
    fn multiply_sub(&mut self, sum: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float;

    /// `a + b`, wrapping.
    fn add_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a - b`, wrapping.
    fn sub_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Bit by bit.
    fn and(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Bit by bit.
    fn or(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `x * 2^by`, wrapping.
    fn shift_left(&mut self, x: Self::Word, by: u32) -> Self::Word;
    /// `x / 2^by` of signed words whose low `by` bits are zero; otherwise rounded in whatever way.
    fn shift_right(&mut self, x: Self::Word, by: u32) -> Self::Word;
    /// Where `a < b`, as signed words.
    fn less(&mut self, a: Self::Word, b: Self::Word) -> Self::Mask;
    /// `b` where the mask is set, `a` elsewhere.
    fn select(&mut self, a: Self::Word, b: Self::Word, mask: Self::Mask) -> Self::Word;
    /// The larger, as signed words.
    fn max_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// The smaller, as signed words.
    fn min_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// The same number in all lanes.
    fn constant(&mut self, x: f32) -> Self::Float {
        let word = self.word(x.to_bits());
        self.float(word)
    }
}

/// The `N` bf16 whose sum is nearest to `x`, largest first. Three give every f32 exactly. `x` must be finite and well within the
/// range of f32.
#[must_use]
pub fn terms<const N: usize>(x: f64) -> [u16; N] {
    let mut rest = x;
    std::array::from_fn(|_| {
        let bits = (rest as f32).to_bits();
        let term = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
        rest -= f64::from(f32::from_bits(u32::from(term) << 16));
        term
    })
}

/// The three bf16 whose sum is `x`.
#[must_use]
pub fn three_terms(x: f32) -> [u16; 3] {
    terms(x.into())
}
