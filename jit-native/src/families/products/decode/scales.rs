//! Scales of f16 become bf16, by operations on integers.
//!
//! A bf16 has three bits less, so scales are rounded. Those of blocks of 256 are the factor of all scales in the block, which are
//! rounded again behind them; an error that so many weights share does not cancel out where all columns have the same sign. So
//! they are split first, into two bf16 that together are exact.
//!
//! A word of each row has two of them: scale and minimum of a block, or the scales of two blocks. With the sign apart, the bits of
//! an f16 shifted to the place of an f32's are a number with an exponent that is 112 too small, or, if the exponent is zero, a
//! fraction without the leading one: then 113 is added and 2^-14, the one that is not there, taken off.

use super::vectors::{WORD_BYTES, both, constant, mode, shuffled};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::families::products::kernel::Kernel;
use crate::families::products::parameters::Parameter;
use crate::families::products::weights::Layout;

const MAGNITUDE: u32 = 0x7FFF_7FFF;
const SIGN: u32 = 0x8000_8000;
const EXPONENT: u32 = 0x7C00_7C00;
/// Exponents 112 and 113 in an f32; the latter is also the number 2^-14.
const NORMAL: u32 = 112 << 23;
const SUBNORMAL: u32 = 113 << 23;
/// Sign, exponent and as much of an f16's mantissa as a bf16 has.
const HELD: u32 = 0xFFF8_FFF8;
/// From the place of an f16's mantissa to that of an f32's.
const SHIFT: i64 = 13;

/// Replaces the word of scales of all blocks by bf16: those in the lower halves of the words of all rows, then those in the
/// upper ones.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, source: Reg) {
    let offset = k.parameter(b, Parameter::ScalesAt);
    let at = b.add(source, offset);
    let (source, target) = (k.pointer(b, k.weights, at), k.pointer(b, k.placed, at));
    let period = k.modifier(b, Parameter::ScalesPeriod);
    let [magnitude, sign, exponent] = [MAGNITUDE, SIGN, EXPONENT].map(|word| constant(b, word));
    let [normal, subnormal, zero] = [NORMAL, SUBNORMAL, 0].map(|word| constant(b, word));
    let shift = b.reg(Class::Shift);
    b.constant_into(shift, SHIFT);
    let [even, odd] = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let count = k.count(b, Parameter::ScaleWords, 1);
    b.name_loop("scales");
    b.repeat(count, |b| {
        let words = b.reg(Class::X);
        b.load(words, source, Address::At(0));
        b.advance(source, period);
        let signs = both(b, "vband", words, sign);
        let numbers = both(b, "vband", words, magnitude);
        let exponents = both(b, "vband", words, exponent);
        let lacking = b.reg(Class::Scalar);
        b.emit("veqz.16", [lacking, exponents]);
        let lacking_high = b.binary("lshl", lacking, -16);
        let wide = b.reg(Class::Acc1024);
        b.emit("vups.s32.s16", [wide, numbers, shift]);
        let rounded = b.reg(Class::X);
        let parts = [(wide.lo(), lacking, rounded.lo()), (wide.hi(), lacking_high, rounded.hi())];
        for (part, lacking, target) in parts {
            let (lanes, more, less) = (b.reg(Class::X), b.reg(Class::X), b.reg(Class::X));
            b.mov(lanes, part);
            b.select_lanes(32, more, normal, subnormal, lacking);
            b.select_lanes(32, less, zero, subnormal, lacking);
            b.emit("vadd.32", [lanes, lanes, more]);
            let (number, one) = (b.reg(Class::Acc512), b.reg(Class::Acc512));
            b.mov(number, lanes);
            b.mov(one, less);
            b.sub_f(number, number, one, k.matrix);
            b.to_bf16(target, number);
        }
        let signed = both(b, "vbor", rounded, signs);
        let (low, high) = (shuffled(b, signed, signed, even), shuffled(b, signed, signed, odd));
        b.store(low.lo(), target, Address::At(0));
        b.store(high.lo(), target, Address::At(32));
        b.advance(target, period);
    });
}

/// Leaves of the first word of all blocks what bf16 can hold, still as f16, and puts the rest as bf16 behind the block, at the word
/// `rest`: those of the lower halves of the words, then those of the upper ones.
pub(super) fn split(b: &mut CoreBuilder, k: Kernel, layout: &Layout, [source, rest]: [Reg; 2]) {
    let (source, held_to) = (k.pointer(b, k.weights, source), k.pointer(b, k.placed, source));
    let rest_to = k.pointer(b, k.placed, rest);
    let [magnitude, sign, exponent, held] = [MAGNITUDE, SIGN, EXPONENT, HELD].map(|word| constant(b, word));
    let [normal, subnormal] = [NORMAL, SUBNORMAL].map(|word| constant(b, word));
    let shift = b.reg(Class::Shift);
    b.constant_into(shift, SHIFT);
    let [even, odd] = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let count = k.count(b, Parameter::ScaleWords, 1);
    b.name_loop("rests of scales");
    b.repeat(count, |b| {
        let words = b.reg(Class::X);
        b.load(words, source, Address::At(0));
        let exponents = both(b, "vband", words, exponent);
        let lacking = b.reg(Class::Scalar);
        b.emit("veqz.16", [lacking, exponents]);
        let lacking_high = b.binary("lshl", lacking, -16);
        let held = both(b, "vband", words, held);
        b.store(held, held_to, Address::At(0));
        // Of numbers without the leading one, both lack it, so it cancels out.
        let [whole, held] = [words, held].map(|bits| {
            let numbers = both(b, "vband", bits, magnitude);
            let wide = b.reg(Class::Acc1024);
            b.emit("vups.s32.s16", [wide, numbers, shift]);
            wide
        });
        let rest = b.reg(Class::X);
        let parts = [(whole.lo(), held.lo(), lacking, rest.lo()), (whole.hi(), held.hi(), lacking_high, rest.hi())];
        for (whole, held, lacking, target) in parts {
            let more = b.reg(Class::X);
            b.select_lanes(32, more, normal, subnormal, lacking);
            let [whole, held] = [whole, held].map(|part| {
                let (lanes, number) = (b.reg(Class::X), b.reg(Class::Acc512));
                b.mov(lanes, part);
                b.emit("vadd.32", [lanes, lanes, more]);
                b.mov(number, lanes);
                number
            });
            b.sub_f(whole, whole, held, k.matrix);
            b.to_bf16(target, whole);
        }
        let signs = both(b, "vband", words, sign);
        let signed = both(b, "vbor", rest, signs);
        let (low, high) = (shuffled(b, signed, signed, even), shuffled(b, signed, signed, odd));
        b.store(low.lo(), rest_to, Address::At(0));
        b.store(high.lo(), rest_to, Address::At(32));
        for pointer in [source, held_to, rest_to] {
            b.advance(pointer, i64::from(layout.period) * WORD_BYTES);
        }
    });
}
