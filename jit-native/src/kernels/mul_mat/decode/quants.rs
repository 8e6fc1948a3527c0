//! Quants times scales.
//!
//! A quant `q` below 128 as the low bits of `0x4300` is the bf16 number `128 + q`: so a shuffle that mixes bytes with `0x43` makes
//! numbers of them. The multiplication by lane (`a[i] * b[i] + a[i + 16] * b[i + 16]`) scales two rows of eight numbers at once:
//! of four rows in a vector, the first two with the scales of these and zeros, the others with zeros and theirs. The sum that
//! it adds to takes the 128 off again, and what else a block's zero is.
//!
//! - q4_0: `d * (128 + q) - 136 * d`
//! - q4_1: `d * (128 + q) + (m - 128 * d)`
//! - q8_0: with the sign bit, `0x4300` plus the byte is no longer 128 more, but its low bits and its sign bit are numbers apart:
//!   `d * (128 + low) - d * (128 + sign)`
//!
//! Sums are f32 and are rounded to bf16 once, when they are stored.

use super::{WORD_BYTES, constant, mode, shuffled};
use crate::core::{Address, Class, CoreBuilder, Reg};
use crate::kernels::mul_mat::parameters::Parameter;
use crate::kernels::mul_mat::program::Kernel;
use crate::kernels::mul_mat::weights::Weights;

/// Where the parts of blocks are, in words of a row.
pub(super) struct Layout {
    /// First words of quants of the first and second block of a pair; the same twice if there are no pairs.
    pub words: [u8; 2],
    /// The word with scales: in the first half of the 16 rows' words those of the first block, in the second half those of the
    /// second, or minimums.
    pub scales: u8,
    /// From one pair, or block, to the next.
    pub period: u8,
}

impl Layout {
    /// Whether blocks come in pairs.
    pub fn is_pair(&self) -> bool {
        self.words[0] != self.words[1]
    }
}

/// Upper bytes of 128 to 255, and numbers as bf16 in both halves of a word.
const UPPER_BYTES: u32 = 0x4343_4343;
const MINUS_136: u32 = 0xC308_C308;
const MINUS_128: u32 = 0xC300_C300;
const ONE: u32 = 0x3F80_3F80;
const NUMBER: u32 = 0x4300_4300;
const LOW_BITS: u32 = 0x437F_437F;
const SIGN_BIT: u32 = 0x4380_4380;
/// Decoded blocks: 16 rows x 8 `k`, 4 rows x 8 `k`, 2 rows x 8 `k`.
const STEP_BYTES: i64 = 256;
const QUARTER_BYTES: i64 = 64;
const PAIR_BYTES: i64 = 32;
/// Words of four bits of eight rows, and two words of bytes of four rows.
const EIGHT_BYTES: i64 = 32;
const FOUR_BYTES: i64 = 32;
/// Steps of 8 `k` in a block.
const STEPS: i64 = 4;

/// What the body of the loop uses.
struct Body {
    weights: Weights,
    lanes: Reg,
    halves: [Reg; 2],
    /// Modes that choose four of 16 rows: eight of them, then four.
    mix_32: Reg,
    mix_64: Reg,
    mix_16: Reg,
    mix_8: Reg,
    zero: Reg,
    /// Upper bytes of 128 to 255.
    upper: Reg,
    /// What offsets are multiplied with, or the masks of low bits and of the sign.
    factors: [Reg; 2],
}

/// Multiplies all quants with their scales: four rows of all blocks, then the next four.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, weights: Weights, layout: &Layout, [source, target]: [Reg; 2]) {
    let body = Body::new(b, weights);
    let words_at = b.add(source, i64::from(layout.words[0]) * WORD_BYTES);
    let scales_at = b.add(source, i64::from(layout.scales) * WORD_BYTES);
    let target_at = b.reg(Class::Scalar);
    b.mov(target_at, target);
    let period = i64::from(layout.period) * WORD_BYTES;
    // From the first to the second block, and on to the next first one, in turn: both together are a period.
    let (to_second, to_second_scale) = if layout.is_pair() {
        (i64::from(layout.words[1] - layout.words[0]) * WORD_BYTES, 32)
    } else {
        (period, period)
    };
    let turn = b.scalar(if layout.is_pair() { period } else { 2 * period });
    b.repeat(2, |b| {
        b.repeat(2, |b| {
            let words = k.pointer(b, k.weights, words_at);
            let scales = k.pointer(b, k.weights, scales_at);
            let target = k.pointer(b, k.decoded, target_at);
            let (step, scale_step) = (b.scalar(to_second), b.scalar(to_second_scale));
            let blocks = k.count(b, Parameter::Blocks, 1);
            b.name_loop(match weights {
                Weights::Q4_0 => "q4_0, four rows of a block",
                Weights::Q4_1 => "q4_1, four rows of a block",
                _ => "q8_0, four rows of a block",
            });
            b.repeat(blocks, |b| {
                body.rows(b, [words, scales, target]);
                b.advance(words, step);
                b.advance(scales, scale_step);
                b.emit("sub", [step, turn, step]);
                b.emit("sub", [scale_step, turn, scale_step]);
            });
            body.next_four(b);
            if weights == Weights::Q8_0 {
                b.binary_into(words_at, "add", words_at, FOUR_BYTES);
            }
            b.binary_into(target_at, "add", target_at, QUARTER_BYTES);
        });
        body.next_eight(b);
        if weights != Weights::Q8_0 {
            b.binary_into(words_at, "add", words_at, EIGHT_BYTES);
        }
    });
}

impl Body {
    fn new(b: &mut CoreBuilder, weights: Weights) -> Self {
        let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
        let factors = match weights {
            Weights::Q4_0 => [constant(b, MINUS_136); 2],
            Weights::Q4_1 => {
                let (one, minus) = (constant(b, ONE), constant(b, MINUS_128));
                [shuffled(b, one, minus, halves[0]); 2]
            }
            _ => [LOW_BITS, SIGN_BIT].map(|mask| constant(b, mask)),
        };
        Self {
            weights,
            lanes: b.scalar(CoreBuilder::LANES_BF16.into()),
            halves,
            mix_64: b.scalar(mode::MIX_64[0]),
            mix_32: b.scalar(mode::MIX_32[0]),
            mix_16: b.scalar(mode::MIX_16[0]),
            mix_8: b.scalar(mode::MIX_8[0]),
            upper: constant(b, if weights == Weights::Q8_0 { NUMBER } else { UPPER_BYTES }),
            zero: constant(b, 0),
            factors,
        }
    }

    /// The other four rows of eight.
    fn next_four(&self, b: &mut CoreBuilder) {
        for (mode, [first, second]) in [(self.mix_64, mode::MIX_64), (self.mix_8, mode::MIX_8)] {
            let both = b.scalar(first + second);
            b.emit("sub", [mode, both, mode]);
        }
    }

    /// The other eight rows.
    fn next_eight(&self, b: &mut CoreBuilder) {
        let both = b.scalar(mode::MIX_32[0] + mode::MIX_32[1]);
        b.emit("sub", [self.mix_32, both, self.mix_32]);
    }

    /// The scales of four rows, each eight times.
    fn scales(&self, b: &mut CoreBuilder, scales: Reg, offset: i64) -> Reg {
        let all = b.reg(Class::X);
        b.load(all.lo(), scales, Address::At(offset));
        b.load(all.hi(), scales, Address::At(offset));
        let twice = shuffled(b, all, all, self.mix_16);
        let four_times = shuffled(b, twice, twice, self.mix_32);
        shuffled(b, four_times, four_times, self.mix_64)
    }

    /// Four rows of a block.
    fn rows(&self, b: &mut CoreBuilder, [words, scales, target]: [Reg; 3]) {
        let scale = self.scales(b, scales, 0);
        let minimum = (self.weights == Weights::Q4_1).then(|| self.scales(b, scales, 32));
        let of_pairs = [(scale, self.zero, self.halves[0]), (self.zero, scale, self.halves[1])];
        let of_pairs = of_pairs.map(|(low, high, mode)| shuffled(b, low, high, mode));
        let offsets = [0, 1].map(|pair: usize| match (self.weights, minimum) {
            (Weights::Q4_0, _) => Some(self.product(b, self.factors[0], of_pairs[pair])),
            (_, Some(minimum)) => {
                let both = shuffled(b, minimum, scale, self.halves[pair]);
                Some(self.product(b, self.factors[0], both))
            }
            _ => None,
        });
        for step in 0..STEPS {
            let (number, sign) = self.numbers(b, words, step);
            for (pair, (scale, offset)) in of_pairs.into_iter().zip(offsets).enumerate() {
                let sum = b.reg(Class::Acc512);
                match offset {
                    Some(offset) => b.mac_f(sum, offset, number, scale, self.lanes),
                    None => b.mul_f(sum, number, scale, self.lanes),
                }
                if let Some(sign) = sign {
                    b.msc_f(sum, sum, sign, scale, self.lanes);
                }
                let by = if pair == 0 { PAIR_BYTES } else { STEP_BYTES - PAIR_BYTES };
                b.store_as("vst.conv.bf16.fp32", sum, target, Address::Then(by));
            }
        }
    }

    fn product(&self, b: &mut CoreBuilder, left: Reg, right: Reg) -> Reg {
        let target = b.reg(Class::Acc512);
        b.mul_f(target, left, right, self.lanes);
        target
    }

    /// 128 plus the quants of four rows and eight `k`; for bytes, 128 plus their low bits and 128 plus the sign's.
    fn numbers(&self, b: &mut CoreBuilder, words: Reg, step: i64) -> (Reg, Option<Reg>) {
        let (packed, quants) = (b.reg(Class::W), b.reg(Class::X));
        if self.weights == Weights::Q8_0 {
            // Eight bytes of each row in two words, those of eight rows in a vector.
            b.load(packed, words, Address::At(2 * step * WORD_BYTES));
            b.emit("vunpack.d16.d8", [quants, packed]);
            b.emit("vbor", [quants, quants, self.upper]);
            let [low, sign] = self.factors.map(|mask| {
                let part = b.reg(Class::X);
                b.emit("vband", [part, quants, mask]);
                part
            });
            return (low, Some(sign));
        }
        b.load(packed, words, Address::At(step * WORD_BYTES));
        b.emit("vunpack.d8.d4", [quants, packed]);
        (shuffled(b, quants, self.upper, self.mix_8), None)
    }
}
