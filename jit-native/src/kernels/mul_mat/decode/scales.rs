//! Scales of f16 become bf16, by operations on integers.
//!
//! A word of each row has two of them: scale and minimum of a block, or the scales of two blocks. With the sign apart, the bits of
//! an f16 shifted to the place of an f32's are a number with an exponent that is 112 too small, or, if the exponent is zero, a
//! fraction without the leading one: then 113 is added and 2^-14, the one that is not there, taken off.

use super::{both, constant, mode, shuffled};
use crate::core::{Address, Class, CoreBuilder, Reg};
use crate::kernels::mul_mat::parameters::Parameter;
use crate::kernels::mul_mat::program::Kernel;

const MAGNITUDE: u32 = 0x7FFF_7FFF;
const SIGN: u32 = 0x8000_8000;
const EXPONENT: u32 = 0x7C00_7C00;
/// Exponents 112 and 113 in an f32; the latter is also the number 2^-14.
const NORMAL: u32 = 112 << 23;
const SUBNORMAL: u32 = 113 << 23;
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
