//! Pairs of f16 become f32, as two bf16 each.
//!
//! With the sign apart, the bits of an f16 shifted to the place of an f32's are a number with an exponent that is 112 too small, or, if the
//! exponent is zero, a fraction without the leading one: then 113 is added and 2^-14, the one that is not there, taken off.

use super::kernel::{constant, mode, shuffled};
use crate::codegen::{Class, CoreBuilder, Reg};
use crate::numerics::Sixteen;
use aie_isa::InstructionSet;

/// Exponents 112 and 113 in an f32; the latter is also the number 2^-14.
const NORMAL: u32 = 112 << 23;
const SUBNORMAL: u32 = 113 << 23;

/// Of sixteen words with two f16 each, both halves.
pub(super) enum Halves {
    Together(Together),
    Apart(Apart),
}

impl Halves {
    /// To be written where a loop that decodes them begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        match b.isa().set() {
            InstructionSet::Aie2 => Self::Together(Together::new(b)),
            InstructionSet::Aie2p => Self::Apart(Apart::new(b)),
        }
    }

    /// The low halves as two bf16, and the high ones.
    pub fn of(&self, b: &mut CoreBuilder, words: Reg) -> [Reg; 2] {
        match self {
            Self::Together(halves) => halves.of(b, words),
            Self::Apart(halves) => halves.of(b, words),
        }
    }
}

/// 32 at once, by lanes of 16 bits that become 32.
pub(super) struct Together {
    magnitude: Reg,
    exponent: Reg,
    normal: Reg,
    subnormal: Reg,
    zero: Reg,
    shift: Reg,
    parts: [Reg; 2],
    addition: Reg,
    integers: Reg,
}

impl Together {
    const MAGNITUDE: u32 = 0x7FFF_7FFF;
    const EXPONENT: u32 = 0x7C00_7C00;
    /// From the place of an f16's mantissa to that of an f32's.
    const SHIFT: i64 = 13;

    fn new(b: &mut CoreBuilder) -> Self {
        let [magnitude, exponent] = [Self::MAGNITUDE, Self::EXPONENT].map(|word| constant(b, word));
        let [normal, subnormal, zero] = [NORMAL, SUBNORMAL, 0].map(|word| constant(b, word));
        let shift = b.reg(Class::Shift);
        b.constant_into(shift, Self::SHIFT);
        let parts = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
        let (addition, integers) = (b.scalar(CoreBuilder::MATRIX_BF16.into()), b.scalar(0));
        Self { magnitude, exponent, normal, subnormal, zero, shift, parts, addition, integers }
    }

    fn of(&self, b: &mut CoreBuilder, scales: Reg) -> [Reg; 2] {
        let [exponents, numbers, sign] = [(); 3].map(|()| b.reg(Class::X));
        let lacking = b.reg(Class::Scalar);
        b.emit("vband", [exponents, scales, self.exponent]);
        b.emit("veqz.16", [lacking, exponents]);
        let lacking_high = b.binary("lshl", lacking, -16);
        b.emit("vband", [numbers, scales, self.magnitude]);
        b.emit("vsub.16", [sign, scales, numbers]);
        let (wide, more, less) = (b.reg(Class::Acc1024), b.reg(Class::Acc1024), b.reg(Class::Acc1024));
        b.emit("vups.s32.s16", [wide, numbers, self.shift]);
        for (lacking, more, less) in [(lacking, more.lo(), less.lo()), (lacking_high, more.hi(), less.hi())] {
            for (into, otherwise) in [(more, self.normal), (less, self.zero)] {
                let words = b.reg(Class::X);
                b.select_lanes(32, words, otherwise, self.subnormal, lacking);
                b.mov(into, words);
            }
        }
        b.emit("vadd", [wide, wide, more, self.integers]);
        let (held, rest) = (b.reg(Class::X), b.reg(Class::X));
        for (number, less, held, rest) in
            [(wide.lo(), less.lo(), held.lo(), rest.lo()), (wide.hi(), less.hi(), held.hi(), rest.hi())]
        {
            let near = b.reg(Class::Acc512);
            b.sub_f(number, number, less, self.addition);
            b.to_bf16(held, number);
            b.to_fp32(near, held);
            b.sub_f(number, number, near, self.addition);
            b.to_bf16(rest, number);
        }
        for vector in [held, rest] {
            // What is left may have another sign than the number: adding the highest bit changes it.
            b.emit("vadd.16", [vector, vector, sign]);
        }
        self.parts.map(|mode| shuffled(b, held, rest, mode))
    }
}

/// One half after the other, by words.
pub(super) struct Apart {
    unit: Sixteen,
    magnitude: Reg,
    normal: Reg,
    subnormal: Reg,
}

impl Apart {
    const SIGN: u32 = 0x8000_0000;
    /// The lowest number whose exponent is not zero.
    const LEAST_NORMAL: u32 = 1 << 23;

    fn new(b: &mut CoreBuilder) -> Self {
        let [magnitude, normal, subnormal] = [0x7FFF_0000, NORMAL, SUBNORMAL].map(|word| constant(b, word));
        Self { unit: Sixteen::new(b), magnitude, normal, subnormal }
    }

    fn of(&self, b: &mut CoreBuilder, scales: Reg) -> [Reg; 2] {
        let mut l = self.unit.one(b);
        let low = l.shift_left(scales, 16);
        [low, scales].map(|word| {
            let magnitude = l.and(word, self.magnitude);
            let mantissa = l.shift_right(magnitude, 3);
            let least = l.word(Self::LEAST_NORMAL);
            let lacking = l.less(mantissa, least);
            let more = l.select(self.normal, self.subnormal, lacking);
            let zero = l.word(0);
            let less = l.select(zero, self.subnormal, lacking);
            let number = l.add_words(mantissa, more);
            let number = l.sub(number, less);
            let number = l.bits(number);
            let sign = l.word(Self::SIGN);
            let sign = l.and(word, sign);
            let number = l.or(number, sign);
            l.two_terms(number)
        })
    }
}
