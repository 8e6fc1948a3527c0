//! Instructions on vectors of one word of each row.

use crate::codegen::{Address, Class, CoreBuilder, Reg};

/// One word of each of 16 rows.
pub(in crate::families::products) const WORD_BYTES: i64 = 64;

/// A vector with a word in all lanes.
pub(in crate::families::products) fn constant(b: &mut CoreBuilder, word: u32) -> Reg {
    let (scalar, vector) = (b.scalar(word.into()), b.reg(Class::X));
    b.broadcast(32, vector, scalar);
    vector
}

/// A word of all rows.
pub(in crate::families::products) fn load(b: &mut CoreBuilder, from: Reg, word: i64) -> Reg {
    let vector = b.reg(Class::X);
    b.load(vector, from, Address::At(word * WORD_BYTES));
    vector
}

/// A bitwise operation into a new vector.
pub(in crate::families::products) fn both(b: &mut CoreBuilder, mnemonic: &str, left: Reg, right: Reg) -> Reg {
    let target = b.reg(Class::X);
    b.emit(mnemonic, [target, left, right]);
    target
}

/// A shuffle into a new vector.
pub(in crate::families::products) fn shuffled(b: &mut CoreBuilder, low: Reg, high: Reg, mode: Reg) -> Reg {
    let target = b.reg(Class::X);
    b.shuffle(target, low, high, mode);
    target
}

/// Modes of shuffles: pairs of vectors as rows of elements, transposed; the lower or upper half of the result.
pub(in crate::families::products) mod mode {
    /// Every other element of 16 bits (`T16_32x2`).
    pub const EVEN_16: i64 = 2;
    pub const ODD_16: i64 = 3;
    /// Halves of vectors (`T256_2x2`).
    pub const LOW_HALVES: i64 = 10;
    pub const HIGH_HALVES: i64 = 11;
    /// Elements of both vectors in turn (`T64_2x8`, `T32_2x16`, `T16_2x32`, `T8_2x64`).
    pub const MIX_64: [i64; 2] = [14, 15];
    pub const MIX_32: [i64; 2] = [16, 17];
    pub const MIX_16: [i64; 2] = [18, 19];
    pub const MIX_8: [i64; 2] = [20, 21];
}
