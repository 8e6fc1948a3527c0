//! Scales and minimums of blocks of 256 become bf16.
//!
//! ```text
//!   a row of q4_K     | d m | s s s s | m m m m | x x x x | 32 words of quants |
//!   behind it         | scales of parts 0 1 | of 2 3 | of 4 5 | of 6 7 | minimums likewise |
//! ```
//!
//! `d` and `m` are f16. Six low bits of the bytes `s` and `m` are the scales and minimums of the first four parts; the other four
//! have their low bits in the lower and upper halves of the bytes `x`, and two on top of `s` and `m`. Words of 16 rows are a
//! vector, so all of this is done with masks, and with shifts by the way through an accumulator (`vups`, `vsrs`) of fields that are
//! masked before, so that nothing is rounded.
//!
//! A byte `s` as the low bits of `0x4300` is `128 + s` in bf16, as for quants. Every other byte of a word is one of 32 lanes; two
//! such vectors, sorted by `T16_32x2`, are two parts of all 16 rows, one in either half: `d * (128 + s) - 128 * d`, summed in f32
//! and rounded once. They lie behind the block, because a loop that overwrites what it reads could not overlap its iterations.
//! Masks are set anew in each iteration: there are fewer vectors than masks.

use super::{WORD_BYTES, both, constant, load, mode, shuffled};
use crate::core::{Address, Class, CoreBuilder, Reg};
use crate::kernels::mul_mat::parameters::Parameter;
use crate::kernels::mul_mat::program::Kernel;
use crate::kernels::mul_mat::weights::Layout;

/// Words of a block.
pub(super) const BLOCK_WORDS: i64 = 36;
/// Words of scales in front of those of minimums.
pub(super) const MINIMUMS: i64 = 4;

/// Numbers as bf16 in both halves of a word.
const NUMBER: u32 = 0x4300_4300;
const MINUS_128: u32 = 0xC300_C300;

/// Bits of a byte, and the bit that they have to begin at.
#[derive(Clone, Copy)]
struct Field {
    bits: u8,
    to: u8,
}

impl Field {
    /// The field of every other byte, from the second on with `odd`, as lanes of 16 bits.
    fn mask(self, odd: bool) -> u32 {
        u32::from(self.bits) * if odd { 0x0100_0100 } else { 0x0001_0001 }
    }

    /// By how much it is shifted to the right.
    fn shift(self, odd: bool) -> i64 {
        i64::from(self.bits.trailing_zeros()) - i64::from(self.to) + if odd { 8 } else { 0 }
    }
}

const LOW_6: Field = Field { bits: 0x3F, to: 0 };
const TOP_2: Field = Field { bits: 0xC0, to: 4 };
const LOW_4: Field = Field { bits: 0x0F, to: 0 };
const TOP_4: Field = Field { bits: 0xF0, to: 0 };

/// Puts the scales and minimums of all blocks of 16 rows behind them; `d` and `m` are bf16 already, in the halves of the first
/// vector.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    for minimums in [false, true] {
        let target = b.add(source, (BLOCK_WORDS + if minimums { MINIMUMS } else { 0 }) * WORD_BYTES);
        let (from, to) = (k.pointer(b, k.weights, source), k.pointer(b, k.placed, target));
        let zero = constant(b, 0);
        let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
        let sorted = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
        let lanes = b.scalar(CoreBuilder::LANES_BF16.into());
        let blocks = k.count(b, Parameter::ScaleWords, 1);
        let blocks = k.short(blocks);
        b.name_loop(if minimums { "minimums of q4_K" } else { "scales of q4_K" });
        b.repeat(blocks, |b| {
            let factor = b.reg(Class::X);
            for half in [factor.lo(), factor.hi()] {
                b.load(half, from, Address::At(if minimums { 32 } else { 0 }));
            }
            let factors = [shuffled(b, factor, zero, halves[0]), shuffled(b, zero, factor, halves[1])];
            let (offset, minus) = (b.reg(Class::Acc512), constant(b, MINUS_128));
            b.mul_f(offset, minus, factors[0], lanes);
            let (own, shared) = (load(b, from, if minimums { 2 } else { 1 }), load(b, from, 3));
            let of_shared = if minimums { TOP_4 } else { LOW_4 };
            for (part, fields) in [&[(own, LOW_6)][..], &[(shared, of_shared), (own, TOP_2)]].into_iter().enumerate() {
                let numbers = [false, true].map(|odd| number(b, fields, odd));
                for (word, mode) in sorted.into_iter().enumerate() {
                    let two = shuffled(b, numbers[0], numbers[1], mode);
                    for (half, factor) in factors.into_iter().enumerate() {
                        let sum = b.reg(Class::Acc512);
                        b.mac_f(sum, offset, two, factor, lanes);
                        let at = (2 * part + word) as i64 * WORD_BYTES + 32 * half as i64;
                        b.store_as("vst.conv.bf16.fp32", sum, to, Address::At(at));
                    }
                }
            }
            for pointer in [from, to] {
                b.advance(pointer, i64::from(layout.period) * WORD_BYTES);
            }
        });
    }
}

/// 128 plus what fields of every other byte make together.
fn number(b: &mut CoreBuilder, fields: &[(Reg, Field)], odd: bool) -> Reg {
    let number = constant(b, NUMBER);
    fields.iter().fold(number, |sum, (source, field)| {
        let mask = constant(b, field.mask(odd));
        let bits = both(b, "vband", *source, mask);
        let bits = match field.shift(odd) {
            0 => bits,
            shift => shifted(b, bits, shift),
        };
        both(b, "vbor", sum, bits)
    })
}

/// Lanes of 16 bits shifted to the right, of which the bits that are lost are zero.
fn shifted(b: &mut CoreBuilder, source: Reg, bits: i64) -> Reg {
    let [none, shift] = [0, bits].map(|bits| {
        let shift = b.reg(Class::Shift);
        b.constant_into(shift, bits);
        shift
    });
    let (wide, target) = (b.reg(Class::Acc1024), b.reg(Class::X));
    b.emit("vups.s32.d16", [wide, source, none]);
    b.emit("vsrs.d16.s32", [target, wide, shift]);
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of packed scales, by ggml's layout: what a lane of 16 bits holds after mask and shift.
    #[test]
    fn fields_of_bytes() {
        let lane = |word: u32, field: Field, odd: bool| (word & field.mask(odd) & 0xFFFF) >> field.shift(odd);
        // Bytes 0xA7 and 0x6C.
        let word = 0x6CA7;
        assert_eq!((lane(word, LOW_6, false), lane(word, LOW_6, true)), (0x27, 0x2C));
        assert_eq!((lane(word, TOP_2, false), lane(word, TOP_2, true)), (0b10 << 4, 0b01 << 4));
        assert_eq!((lane(word, LOW_4, false), lane(word, LOW_4, true)), (0x7, 0xC));
        assert_eq!((lane(word, TOP_4, false), lane(word, TOP_4, true)), (0xA, 0x6));
    }
}
