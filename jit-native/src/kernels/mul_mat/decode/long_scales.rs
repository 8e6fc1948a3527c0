//! Scales and centres of blocks of 256 become bf16.
//!
//! ```text
//!   a row of q4_K     | d m | s s s s | m m m m | x x x x | 32 words of quants |
//!   behind it         | scales of parts 0 1 | of 2 3 | of 4 5 | of 6 7 | centres likewise |
//! ```
//!
//! `d` and `m` are f16. Six low bits of the bytes `s` and `m` are the scales and minimums of the first four parts; the other four
//! have their low bits in the lower and upper halves of the bytes `x`, and two on top of `s` and `m`. Words of 16 rows are a
//! vector, so all of this is done with masks, and with shifts by the way through an accumulator (`vups`, `vsrs`) of fields that are
//! masked before, so that nothing is rounded.
//!
//! A byte `s` as the low bits of `0x4300` is `128 + s` in bf16, as for quants. Every other byte of a word is one of 32 lanes; two
//! such vectors, sorted by `T16_32x2`, are two parts of all 16 rows, one in either half. Each of these twice, times `d` in two
//! halves of a vector, what bf16 holds of it and the rest, is `d * (128 + s)`; `128 * d` taken off, summed in f32 and rounded once.
//!
//! A weight is `d * s * q - m`, so a rounded `d * s` makes all weights of a part larger or smaller, which does not cancel out where
//! columns have one sign. Kept is therefore not the minimum but `m - 8 * d * s`, the centre of the part before the scale is
//! rounded: what rounding does is then in proportion to `q - 8`, and centres are small where weights are as often above zero as below.
//!
//! They lie behind the block, because a loop that overwrites what it reads could not overlap its iterations. The rests are in the
//! place of the last centres, which depend on them, so that they are read before. Masks are set anew and words loaded again: there
//! are fewer vectors than that.

use super::{WORD_BYTES, both, constant, load, mode, scales, shuffled};
use crate::core::{Address, Class, CoreBuilder, Reg};
use crate::kernels::mul_mat::parameters::Parameter;
use crate::kernels::mul_mat::program::Kernel;
use crate::kernels::mul_mat::weights::Layout;

/// Words of a block.
pub(super) const BLOCK_WORDS: i64 = 36;
/// Words of scales in front of those of centres.
pub(super) const CENTRES: i64 = 4;

/// The place of the rests of `d` and `m` until the last centres are there.
const RESTS: i64 = BLOCK_WORDS + 2 * CENTRES - 1;

/// Numbers as bf16 in both halves of a word.
const NUMBER: u32 = 0x4300_4300;
const MINUS_128: u32 = 0xC300_C300;
/// Added to bf16 numbers as integers: three more in their exponents.
const TIMES_EIGHT: u32 = 0x0180_0180;

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

/// Puts what bf16 does not hold of `d` and `m` behind all blocks.
pub(super) fn split(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    let rests = b.add(source, RESTS * WORD_BYTES);
    scales::split(b, k, layout, [source, rests]);
}

/// Puts the scales and centres of all blocks of 16 rows behind them; `d` and `m` are bf16 already, in the halves of the first
/// vector, with their rests behind the block.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    let [behind, rests] = [BLOCK_WORDS, RESTS].map(|word| b.add(source, word * WORD_BYTES));
    let [from, rests] = [source, rests].map(|at| k.pointer(b, k.weights, at));
    let to = k.pointer(b, k.placed, behind);
    let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
    let sorted = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let lanes = b.scalar(CoreBuilder::LANES_BF16.into());
    let blocks = k.count(b, Parameter::ScaleWords, 1);
    let blocks = k.short(blocks);
    b.name_loop("scales of q4_K");
    b.repeat(blocks, |b| {
        let [scale, minimum] = [0, 32].map(|at| {
            let factor = b.reg(Class::X);
            b.load(factor.lo(), from, Address::At(at));
            b.load(factor.hi(), rests, Address::At(at));
            factor
        });
        let eight = constant(b, TIMES_EIGHT);
        let scale_by_8 = both(b, "vadd.16", scale, eight);
        let minus = constant(b, MINUS_128);
        let (of_scale, of_minimum) = (b.reg(Class::Acc512), b.reg(Class::Acc512));
        b.mul_f(of_scale, minus, scale, lanes);
        b.mul_f(of_minimum, minus, minimum, lanes);
        b.msc_f(of_minimum, of_minimum, minus, scale_by_8, lanes);
        for part in 0..2 {
            let numbers = [(1, LOW_4), (2, TOP_4)].map(|(own, of_shared)| {
                let own = load(b, from, own);
                let shared = (part == 1).then(|| load(b, from, 3));
                [false, true].map(|odd| match shared {
                    None => number(b, &[(own, LOW_6)], odd),
                    Some(shared) => number(b, &[(shared, of_shared), (own, TOP_2)], odd),
                })
            });
            for (word, mode) in (0..).zip(sorted) {
                let [scales, minimums] = numbers.map(|[even, odd]| shuffled(b, even, odd, mode));
                for (half, mode) in (0..).zip(halves) {
                    let at = (2 * part + word) * WORD_BYTES + 32 * half;
                    let (twice, sum) = (shuffled(b, scales, scales, mode), b.reg(Class::Acc512));
                    b.mac_f(sum, of_scale, twice, scale, lanes);
                    b.store_as("vst.conv.bf16.fp32", sum, to, Address::At(at));
                    let centre = b.reg(Class::Acc512);
                    b.msc_f(centre, of_minimum, twice, scale_by_8, lanes);
                    let twice = shuffled(b, minimums, minimums, mode);
                    b.mac_f(centre, centre, twice, minimum, lanes);
                    b.store_as("vst.conv.bf16.fp32", centre, to, Address::At(CENTRES * WORD_BYTES + at));
                }
            }
        }
        for pointer in [from, rests, to] {
            b.advance(pointer, i64::from(layout.period) * WORD_BYTES);
        }
    });
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
