//! Scales and centres of blocks of 256 become bf16.
//!
//! ```text
//!   a row of q4_K     | d m | s s s s | m m m m | x x x x | 32 words of quants |
//!   behind it         | scales of parts 0 1 | of 2 3 | of 4 5 | of 6 7 | centres likewise | rests of d and m |
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
//! They lie behind the block, because a loop that overwrites what it reads could not overlap its iterations. The first loop leaves
//! scales and, in the place of their centres, what rounding took from them; of both the second one makes the centres. Masks are set
//! anew in each iteration: there are fewer vectors than masks.

use super::scales;
use super::vectors::{WORD_BYTES, both, constant, load, mode, shuffled};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::families::products::kernel::Kernel;
use crate::families::products::parameters::Parameter;
use crate::families::products::weights::Layout;

/// Words of a block.
pub(super) const BLOCK_WORDS: i64 = 36;
/// Words of scales in front of those of centres.
pub(super) const CENTRES: i64 = 4;

/// The place of the rests of `d` and `m`.
const RESTS: i64 = BLOCK_WORDS + 2 * CENTRES;

/// Numbers as bf16 in both halves of a word.
const NUMBER: u32 = 0x4300_4300;
const MINUS_128: u32 = 0xC300_C300;
const ONE: u32 = 0x3F80_3F80;
const EIGHT: u32 = 0x4100_4100;

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
    for centres in [false, true] {
        let scales = b.add(source, BLOCK_WORDS * WORD_BYTES);
        let rests = b.add(source, RESTS * WORD_BYTES);
        let [from, rests, scales_from] = [source, rests, scales].map(|at| k.pointer(b, k.weights, at));
        let to = k.pointer(b, k.placed, scales);
        let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
        let sorted = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
        let lanes = b.scalar(CoreBuilder::LANES_BF16.into());
        let rounded = constant(b, 0);
        let times = constant(b, if centres { EIGHT } else { ONE });
        let blocks = k.count(b, Parameter::ScaleWords, 1);
        let blocks = k.short(blocks);
        b.name_loop(if centres { "centres of q4_K" } else { "scales of q4_K" });
        b.repeat(blocks, |b| {
            let factor = b.reg(Class::X);
            for (half, at) in [(factor.lo(), from), (factor.hi(), rests)] {
                b.load(half, at, Address::At(if centres { 32 } else { 0 }));
            }
            let (offset, minus) = (b.reg(Class::Acc512), constant(b, MINUS_128));
            b.mul_f(offset, minus, factor, lanes);
            let (own, of_shared) = if centres { (2, TOP_4) } else { (1, LOW_4) };
            for (part, fields) in [&[(own, LOW_6)][..], &[(3, of_shared), (own, TOP_2)]].into_iter().enumerate() {
                let fields: Vec<_> = fields.iter().map(|(word, field)| (load(b, from, *word), *field)).collect();
                let numbers = [false, true].map(|odd| number(b, &fields, odd));
                for (word, mode) in sorted.into_iter().enumerate() {
                    let two = shuffled(b, numbers[0], numbers[1], mode);
                    for (half, mode) in halves.into_iter().enumerate() {
                        let at = (2 * part + word) as i64 * WORD_BYTES + 32 * half as i64;
                        let behind = Address::At(at + CENTRES * WORD_BYTES);
                        let (twice, sum) = (shuffled(b, two, two, mode), b.reg(Class::Acc512));
                        b.mac_f(sum, offset, twice, factor, lanes);
                        if centres {
                            b.load(rounded.lo(), scales_from, Address::At(at));
                            b.load(rounded.hi(), scales_from, behind);
                            b.msc_f(sum, sum, rounded, times, lanes);
                        } else {
                            b.to_bf16(rounded.lo(), sum);
                            b.store(rounded.lo(), to, Address::At(at));
                            b.msc_f(sum, sum, rounded, times, lanes);
                        }
                        b.store_as("vst.conv.bf16.fp32", sum, to, behind);
                    }
                }
            }
            for pointer in [from, rests, scales_from, to] {
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
