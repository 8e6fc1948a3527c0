//! What programs need of a vector unit besides [`Lanes`]: memory, scalars, and how many vectors it takes at once.

use super::Lanes;
use crate::codegen::{Address, CoreBuilder, Reg};

/// The vector unit of a generation, with the registers that all functions of a program share.
///
/// Memory has vectors of sixteen words. Functions are written for one of them at a time or for two, which hide each other's
/// latencies or fill a wider unit.
pub trait Unit: Copy + 'static {
    /// [`Lanes::Float`] of one vector.
    type Float: Copy;
    /// [`Lanes::Word`] of one vector.
    type Word: Copy;
    /// [`Lanes::Pair`] of one vector.
    type Pair: Copy;
    /// [`Lanes::Float`] of two.
    type Floats: Copy;
    /// [`Lanes::Pair`] of two.
    type Pairs: Copy;
    /// Instructions on one vector.
    type One<'b>: Vectors<Float = Self::Float, Word = Self::Word, Pair = Self::Pair>;
    /// Instructions on two vectors.
    type Two<'b>: Vectors<Float = Self::Floats, Pair = Self::Pairs>;

    /// Whether there are registers for the constants of a long loop, so that they are made in front of it.
    const HOLDS_CONSTANTS: bool;

    /// Sets the modes that [`Lanes`] counts on, and the registers that its operations need. To be written once, where a program
    /// begins.
    fn new(builder: &mut CoreBuilder) -> Self;
    /// Writes instructions on one vector.
    fn one(self, builder: &mut CoreBuilder) -> Self::One<'_>;
    /// Writes instructions on two vectors.
    fn two(self, builder: &mut CoreBuilder) -> Self::Two<'_>;
    /// Sixteen bf16 for each half of pairs, from memory at offsets; zeros where there is none.
    fn load_pairs<const PAIRS: usize>(
        self,
        builder: &mut CoreBuilder,
        pointer: Reg,
        offsets: [[Option<i64>; 2]; PAIRS],
    ) -> [Self::Pair; PAIRS];
    /// The low halves of the words of two vectors to memory, without gaps.
    fn store_halves(self, builder: &mut CoreBuilder, words: [Self::Word; 2], pointer: Reg, address: Address);
    /// The sum of two vectors.
    fn joined(self, builder: &mut CoreBuilder, x: Self::Floats) -> Self::Float;
    /// Both halves of a pair in one register.
    fn halves(self, builder: &mut CoreBuilder, pair: Self::Pair) -> Reg;
    /// Two vectors rounded to bf16, to whose bits the low halves of the words of two others are added, in one register. Within
    /// [`HalfWords::around`](super::HalfWords::around).
    fn with_exponents(self, builder: &mut CoreBuilder, x: Self::Floats, exponents: Self::Floats) -> Reg;
    /// `sum` and products of 32 bf16 each into `sum`, whose [`Unit::joined`] is what counts.
    fn add_products(self, builder: &mut CoreBuilder, sum: Self::Floats, a: Reg, b: Reg);
}

/// [`Lanes`] of one vector or two, with their memory.
///
/// Loads and stores take the address of each vector in turn, so that [`Address::Then`] and [`Address::ThenBy`] go through
/// vectors; the others are for one vector.
pub trait Vectors: Lanes {
    /// The program.
    fn builder(&mut self) -> &mut CoreBuilder;

    /// Numbers from memory.
    fn load(&mut self, pointer: Reg, address: Address) -> Self::Float;
    /// Numbers to memory.
    fn store(&mut self, x: Self::Float, pointer: Reg, address: Address);
    /// Words from memory.
    fn load_words(&mut self, pointer: Reg, address: Address) -> Self::Word;
    /// Words to memory.
    fn store_words(&mut self, x: Self::Word, pointer: Reg, address: Address);
    /// Numbers from bf16 in memory.
    fn load_bf16(&mut self, pointer: Reg, address: Address) -> Self::Float;
    /// Numbers to bf16 in memory.
    fn store_bf16(&mut self, x: Self::Float, pointer: Reg, address: Address);

    /// The word of a scalar in all lanes.
    fn splat(&mut self, scalar: Reg) -> Self::Word;
    /// A bf16 in all lanes of each half, from scalars that have it twice.
    fn splat_pair(&mut self, low: Reg, high: Reg) -> Self::Pair;
    /// The lanes whose bits are set in a scalar.
    fn mask(&mut self, bits: Reg) -> Self::Mask;
    /// The bits of a mask of one vector in a scalar.
    fn mask_bits(&mut self, mask: Self::Mask) -> Reg;

    /// Zeros, for [`Vectors::add_into`].
    fn zeros(&mut self) -> Self::Float;
    /// `sum + x` into `sum`.
    fn add_into(&mut self, sum: Self::Float, x: Self::Float);
    /// Words of their own, for [`Vectors::set`].
    fn copy(&mut self, x: Self::Word) -> Self::Word;
    /// `x` into `target`.
    fn set(&mut self, target: Self::Word, x: Self::Word);
    /// The lanes of each vector moved down by bytes, those at the end to the other end.
    fn turned(&mut self, x: Self::Word, bytes: i64) -> Self::Word;
    /// Each vector shuffled, for modes that take one.
    fn shuffled(&mut self, x: Self::Word, mode: i64) -> Self::Word;
    /// Each of two terms of `x`, from `least` to `most`.
    fn held(&mut self, x: Self::Pair, least: Self::Pair, most: Self::Pair) -> Self::Pair;
}
