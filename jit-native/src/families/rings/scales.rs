//! Scales become bf16: each the two that together are exact, or one twice where one is.
//!
//! A word of each unit has two f16: scale and minimum of a block, or the scales of two blocks. With the sign apart, the bits of an f16
//! shifted to the place of an f32's are a number with an exponent that is 112 too small, or, if the exponent is zero, a fraction
//! without the leading one: then 113 is added and 2^-14, the one that is not there, taken off.

use super::fifth_bits;
use super::kernel::{Kernel, OfType, Parameter, constant, mode, shuffled};
use super::memory::{FACTORS, PART_FACTORS, PORTION};
use super::six_bits;
use super::units::UPPER_BYTES;
use super::weights::Weights;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder};
use crate::numerics::{Aie2, Lanes, Unit};

const MAGNITUDE: u32 = 0x7FFF_7FFF;
const EXPONENT: u32 = 0x7C00_7C00;
/// Exponents 112 and 113 in an f32; the latter is also the number 2^-14.
const NORMAL: u32 = 112 << 23;
const SUBNORMAL: u32 = 113 << 23;
/// From the place of an f16's mantissa to that of an f32's.
const SHIFT: i64 = 13;

/// The factors of all groups of a portion. Of two blocks, the first of which begins half a word early, the word in the middle becomes
/// the quants that are left of it; of others it stays what it is.
pub(super) fn portion(b: &mut CoreBuilder, k: Kernel) {
    let has_parts = k.all.iter().any(Weights::has_part_factors);
    if has_parts {
        let way = |of: Weights| (of.has_part_factors(), of == Weights::Q6K);
        k.choose_way(b, way, |b, way| match way {
            (true, false) => packed_scales(b, k),
            (true, true) => six_bits::scales(b, k),
            _ => {}
        });
    }
    let (at, bytes) = (b.scalar(i64::from(OWN_MEMORY + PORTION.0)), k.of_type(b, OfType::Group));
    let half = b.binary("lshl", bytes, -1);
    let second = b.binary("add", at, half);
    let words = [at, second].map(|at| k.pointer(b, k.words, at));
    let to = b.pointer_at(k.factors, OWN_MEMORY + FACTORS.0);
    let middle = k.of_type(b, OfType::Middle);
    let middle = [at, second].map(|at| {
        let at = b.binary("add", at, middle);
        k.pointer(b, k.ordered, at)
    });
    let group = k.modifier(b, bytes);
    let [magnitude, exponent] = [MAGNITUDE, EXPONENT].map(|word| constant(b, word));
    let [normal, subnormal, zero] = [NORMAL, SUBNORMAL, 0].map(|word| constant(b, word));
    let shift = b.reg(Class::Shift);
    b.constant_into(shift, SHIFT);
    let [even, odd] = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let lanes = k.of_type(b, OfType::Exchanged);
    let (addition, integers) = (b.scalar(CoreBuilder::MATRIX_BF16.into()), b.scalar(0));
    let groups = if has_parts {
        // Mostly one.
        k.count(b, Parameter::Groups)
    } else {
        // What is behind the last group is scaled without any use.
        let groups = k.parameter(b, Parameter::Groups);
        k.count_three(b, groups)
    };
    b.name_loop("scales");
    b.repeat(groups, |b| {
        let (scales, last, ends) = (b.reg(Class::X), b.reg(Class::X), b.reg(Class::X));
        for (half, at) in [scales.lo(), scales.hi()].into_iter().zip(words) {
            b.load_as("vlda", half, at, Address::ThenBy(group));
        }
        for (half, at) in [last.lo(), last.hi()].into_iter().zip(middle) {
            b.load_as("vlda", half, at, Address::At(0));
        }
        b.select_lanes(16, ends, last, scales, lanes);
        b.select_lanes(16, scales, scales, last, lanes);
        for (half, at) in [ends.lo(), ends.hi()].into_iter().zip(middle) {
            b.store(half, at, Address::ThenBy(group));
        }
        let [exponents, numbers, sign] = [(); 3].map(|()| b.reg(Class::X));
        let lacking = b.reg(Class::Scalar);
        b.emit("vband", [exponents, scales, exponent]);
        b.emit("veqz.16", [lacking, exponents]);
        let lacking_high = b.binary("lshl", lacking, -16);
        b.emit("vband", [numbers, scales, magnitude]);
        b.emit("vsub.16", [sign, scales, numbers]);
        let (wide, more, less) = (b.reg(Class::Acc1024), b.reg(Class::Acc1024), b.reg(Class::Acc1024));
        b.emit("vups.s32.s16", [wide, numbers, shift]);
        for (lacking, more, less) in [(lacking, more.lo(), less.lo()), (lacking_high, more.hi(), less.hi())] {
            for (into, otherwise) in [(more, normal), (less, zero)] {
                let words = b.reg(Class::X);
                b.select_lanes(32, words, otherwise, subnormal, lacking);
                b.mov(into, words);
            }
        }
        b.emit("vadd", [wide, wide, more, integers]);
        let (held, rest) = (b.reg(Class::X), b.reg(Class::X));
        for (number, less, held, rest) in
            [(wide.lo(), less.lo(), held.lo(), rest.lo()), (wide.hi(), less.hi(), held.hi(), rest.hi())]
        {
            let near = b.reg(Class::Acc512);
            b.sub_f(number, number, less, addition);
            b.to_bf16(held, number);
            b.to_fp32(near, held);
            b.sub_f(number, number, near, addition);
            b.to_bf16(rest, number);
        }
        for vector in [held, rest] {
            // What is left may have another sign than the number: adding the highest bit changes it.
            b.emit("vadd.16", [vector, vector, sign]);
        }
        for mode in [even, odd] {
            let pair = shuffled(b, held, rest, mode);
            b.store(pair, to, Address::Then(64));
        }
    });
    if k.all.iter().any(fifth_bits::has_masks) {
        k.choose(b, |b, of| {
            if fifth_bits::has_masks(of) {
                fifth_bits::masks(b, k, of)
            }
        });
    }
}

/// The scale and the minimum of each of eight parts of q4_K and q5_K. Six low bits of the first four bytes are scales, of the next four
/// minimums; the other four parts have four bits in the last four bytes, and two on top of the first. They become
/// bytes below those of 128.
fn packed_scales(b: &mut CoreBuilder, k: Kernel) {
    let at = b.scalar(i64::from(OWN_MEMORY + PORTION.0) + 32);
    let bytes = k.of_type(b, OfType::Group);
    let half = b.binary("lshl", bytes, -1);
    let second = b.binary("add", at, half);
    let words = [at, second].map(|at| k.pointer(b, k.words, at));
    let words = [(); 3].map(|()| {
        let word = b.reg(Class::X);
        for (half, at) in [word.lo(), word.hi()].into_iter().zip(words) {
            b.load(half, at, Address::Then(32));
        }
        word
    });
    let unit = Aie2::new(b);
    let mut l = unit.one(b);
    let packed = [0, 1].map(|part| {
        [0, 1].map(|which: usize| {
            if part == 0 {
                let mask = l.word(0x3F3F_3F3F);
                return l.and(words[which], mask);
            }
            let top = l.word(0xC0C0_C0C0);
            let top = l.and(words[which], top);
            let top = l.shift_right(top, 2);
            let two = l.word(0x3030_3030);
            let top = l.and(top, two);
            let low = l.word(0x0F0F_0F0F);
            let low = if which == 0 {
                l.and(words[2], low)
            } else {
                let high = l.word(0xF0F0_F0F0);
                let high = l.and(words[2], high);
                let high = l.shift_right(high, 4);
                l.and(high, low)
            };
            l.or(top, low)
        })
    });
    // A byte of sixteen units, of two parts at once.
    let upper = constant(b, UPPER_BYTES);
    let (bytes, pairs) = (b.scalar(mode::BYTES_OF_16), mode::MIX_8.map(|mode| b.scalar(mode)));
    for (number, words) in (0..).zip(packed.as_flattened()) {
        let (part, which) = (number / 2, number % 2);
        let words = shuffled(b, *words, *words, bytes);
        for (pair, mode) in (0..).zip(pairs) {
            let at = OWN_MEMORY + PART_FACTORS.0 + 128 * (2 * part + pair) + 64 * which;
            let (factors, to) = (shuffled(b, words, upper, mode), b.pointer_at(k.factors, at));
            b.store(factors, to, Address::At(0));
        }
    }
}
