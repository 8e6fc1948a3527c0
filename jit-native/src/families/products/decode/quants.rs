//! Quants times scales.
//!
//! A quant `q` below 128 as the low bits of `0x4300` is the bf16 number `128 + q`: so a shuffle that mixes bytes with `0x43` makes
//! numbers of them. The multiplication by lane (`a[i] * b[i] + a[i + 16] * b[i + 16]`) scales two rows of eight numbers at once:
//! of four rows in a vector, the first two with the scales of these and zeros, the others with zeros and theirs. The sum that
//! it adds to takes the 128 off again, and what else a block's zero is.
//!
//! - q4_0: `d * (128 + q) - 136 * d`
//! - q4_1: `d * (128 + q) + (m - 128 * d)`
//! - q4_K: `d * (128 + q) - (c + 136 * d)` with the centre `c`, which is `m - 8 * d`; the halves of a byte are of two parts of a block with scales of their own, in
//!   turn as the quants
//! - q8_0: with the sign bit, `0x4300` plus the byte is no longer 128 more, but its low bits and its sign bit are numbers apart:
//!   `d * (128 + low) - d * (128 + sign)`
//!
//! Sums are f32 and are rounded to bf16 once, when they are stored.

use super::long_scales;
use super::vectors::{WORD_BYTES, both, constant, mode, shuffled};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::families::products::kernel::Kernel;
use crate::families::products::parameters::Parameter;
use crate::families::products::weights::{Layout, Weights};

/// Upper bytes of 128 to 255, and numbers as bf16 in both halves of a word.
const UPPER_BYTES: u32 = 0x4343_4343;
const MINUS_136: u32 = 0xC308_C308;
const MINUS_128: u32 = 0xC300_C300;
const ONE: u32 = 0x3F80_3F80;
const MINUS_ONE: u32 = 0xBF80_BF80;
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
/// Steps of 8 `k` in a block, and in two parts of a long block, whose quants are the halves of bytes.
const STEPS: usize = 4;
const LONG_STEPS: usize = 8;
/// Steps of long blocks whose registers differ: there are not enough for all.
const FEW: usize = 3;
/// Such runs of two parts in a block.
const RUNS: i64 = 4;
/// Centres of the two parts of a run, behind their scales.
const CENTRES: [i64; 2] = [long_scales::CENTRES * WORD_BYTES, long_scales::CENTRES * WORD_BYTES + 32];

/// Registers of a step: quants as they are, and as numbers.
#[derive(Clone, Copy)]
pub(super) struct Step {
    packed: Reg,
    quants: Reg,
    numbers: Reg,
}

impl Step {
    fn new(b: &mut CoreBuilder) -> Self {
        Self { packed: b.reg(Class::W), quants: b.reg(Class::X), numbers: b.reg(Class::X) }
    }

    /// Where there are few, one takes the other's place.
    pub fn in_place(b: &mut CoreBuilder) -> Self {
        let quants = b.reg(Class::X);
        Self { packed: b.reg(Class::W), quants, numbers: quants }
    }
}

/// What the body of the loop uses.
pub(super) struct Body {
    weights: Weights,
    pub lanes: Reg,
    halves: [Reg; 2],
    /// Modes that choose four of 16 rows: eight of them, then four.
    mix_32: Reg,
    mix_64: Reg,
    mix_16: Reg,
    mix_8: Reg,
    zero: Reg,
    /// Two vectors that have a half of zeros for good, for long blocks.
    kept: Option<[Reg; 2]>,
    /// Upper bytes of 128 to 255.
    pub upper: Reg,
    /// What offsets are multiplied with, or the masks of low bits and of the sign.
    factors: [Reg; 2],
}

/// Multiplies all quants with their scales: four rows of all blocks, then the next four.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, weights: Weights, layout: &Layout, [source, target]: [Reg; 2]) {
    let places = Places::of(layout);
    let turn = b.scalar(places.turn);
    let body = Body::new(b, weights);
    let words_at = b.add(source, i64::from(layout.words[0]) * WORD_BYTES);
    let scales_at = b.add(source, i64::from(layout.scales) * WORD_BYTES);
    body.each_four_rows(b, words_at, target, |b, words, target| {
        let [words, scales] = [words, scales_at].map(|at| k.pointer(b, k.weights, at));
        let target = k.pointer(b, k.decoded, target);
        let (step, scale_step) = (b.scalar(places.to_second), b.scalar(places.to_second_scale));
        let blocks = k.blocks(b, Parameter::Blocks, 32).at_least(if layout.is_pair() { 2 } else { 1 });
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
    });
}

/// The same for two blocks of each row, in one loop: both of four rows, then those of the next four.
pub(super) fn decode_two(
    b: &mut CoreBuilder,
    k: Kernel,
    weights: Weights,
    layout: &Layout,
    [source, target]: [Reg; 2],
) {
    let body = Body::new(b, weights);
    let places = Places::of(layout);
    let [words, scales] = [layout.words[0], layout.scales].map(|word| {
        let at = b.add(source, i64::from(word) * WORD_BYTES);
        k.pointer(b, k.weights, at)
    });
    let target = k.pointer(b, k.decoded, target);
    let in_fours = weights == Weights::Q8_0;
    let (zero, index) = (b.scalar(0), b.scalar(0));
    let [step, scale_step] = [places.to_second, places.to_second_scale].map(|bytes| b.scalar(bytes));
    // Numbers of both blocks follow one another; those of the next four rows begin a quarter behind the first ones'.
    let next_rows = b.scalar(QUARTER_BYTES - 2 * STEPS as i64 * STEP_BYTES);
    let target_step = b.scalar(0);
    b.name_loop(match weights {
        Weights::Q4_0 => "q4_0, four rows of a block in two",
        Weights::Q4_1 => "q4_1, four rows of a block in two",
        _ => "q8_0, four rows of a block in two",
    });
    b.repeat(8, |b| {
        let four = b.binary("lshl", index, -1);
        let (odd, eight) = (b.binary("and", four, 1), b.binary("lshl", four, -1));
        for (mode, [first, _], by) in
            [(body.mix_64, mode::MIX_64, odd), (body.mix_8, mode::MIX_8, odd), (body.mix_32, mode::MIX_32, eight)]
        {
            b.binary_into(mode, "add", by, first);
        }
        body.rows(b, [words, scales, target]);
        let moves = if in_fours { b.binary("and", index, 1) } else { b.binary("eq", index, 3) };
        let more = b.binary("lshl", moves, i64::from(EIGHT_BYTES.trailing_zeros()));
        let by = b.add(step, more);
        b.advance(words, by);
        b.advance(scales, scale_step);
        b.emit("sub", [step, zero, step]);
        b.emit("sub", [scale_step, zero, scale_step]);
        b.advance(target, target_step);
        b.emit("sub", [target_step, next_rows, target_step]);
        b.binary_into(index, "add", index, 1);
    });
}

/// Bytes from the first to the second block, and on to the next first one, in turn: both together are a period, or two.
struct Places {
    to_second: i64,
    to_second_scale: i64,
    turn: i64,
}

impl Places {
    fn of(layout: &Layout) -> Self {
        let period = i64::from(layout.period) * WORD_BYTES;
        if layout.is_pair() {
            let to_second = i64::from(layout.words[1] - layout.words[0]) * WORD_BYTES;
            return Self { to_second, to_second_scale: 32, turn: period };
        }
        Self { to_second: period, to_second_scale: period, turn: 2 * period }
    }
}

/// The same for blocks of 256, whose scales and centres lie behind them.
pub(super) fn decode_long(b: &mut CoreBuilder, k: Kernel, layout: &Layout, [source, target]: [Reg; 2]) {
    let body = Body::new(b, Weights::Q4_K);
    let words_at = b.add(source, i64::from(layout.words[0]) * WORD_BYTES);
    let scales_at = b.add(source, long_scales::BLOCK_WORDS * WORD_BYTES);
    // From one run to the next, and what there is more behind the last one of a block.
    let (steps, period) = (LONG_STEPS as i64, i64::from(layout.period));
    let step = steps * WORD_BYTES;
    let more_words = b.scalar((period - RUNS * steps) * WORD_BYTES);
    let more_scales = b.scalar((period - RUNS) * WORD_BYTES);
    let last = b.scalar(RUNS - 1);
    body.each_four_rows(b, words_at, target, |b, words, target| {
        let [words, scales] = [words, scales_at].map(|at| k.pointer(b, k.weights, at));
        let target = k.pointer(b, k.decoded, target);
        let run = b.scalar(0);
        let runs = k.count(b, Parameter::Runs, RUNS as u32);
        b.name_loop("q4_K, four rows of two parts");
        b.repeat(runs, |b| {
            let [scale, centre, other] = [(); 3].map(|()| b.reg(Class::X));
            body.scales_in_turn(b, scales, [0, 32], [scale, other]);
            body.scales_in_turn(b, scales, CENTRES, [centre, other]);
            let registers: Vec<_> = (0..FEW).map(|_| Step::in_place(b)).collect();
            body.steps(b, [words, target], [scale, other], Some(centre), registers.iter().cycle().take(LONG_STEPS));
            let ends = b.binary("geu", run, last);
            for (pointer, by, more) in [(words, step, more_words), (scales, WORD_BYTES, more_scales)] {
                let more = b.binary("mul", ends, more);
                let by = b.add(more, by);
                b.advance(pointer, by);
            }
            b.binary_into(run, "add", run, 1);
            b.binary_into(run, "and", run, last);
        });
    });
}

impl Body {
    pub fn new(b: &mut CoreBuilder, weights: Weights) -> Self {
        let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
        let factors = match weights {
            Weights::Q4_0 => [constant(b, MINUS_136); 2],
            Weights::Q4_1 => {
                let (one, minus) = (constant(b, ONE), constant(b, MINUS_128));
                [shuffled(b, one, minus, halves[0]); 2]
            }
            Weights::Q4_K => {
                let (one, minus) = (constant(b, MINUS_ONE), constant(b, MINUS_136));
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
            kept: matches!(weights, Weights::Q4_K | Weights::Q6_K).then(|| [(); 2].map(|()| constant(b, 0))),
            factors,
        }
    }

    /// Runs `body` for each four of 16 rows, with the addresses of their first words and of their first decoded ones.
    pub fn each_four_rows(
        &self,
        b: &mut CoreBuilder,
        words: Reg,
        target: Reg,
        body: impl FnOnce(&mut CoreBuilder, Reg, Reg),
    ) {
        let [words, target] = [words, target].map(|at| b.add(at, 0));
        let in_fours = self.weights == Weights::Q8_0;
        b.repeat(2, |b| {
            b.repeat(2, |b| {
                body(b, words, target);
                self.next_four(b);
                if in_fours {
                    b.binary_into(words, "add", words, FOUR_BYTES);
                }
                b.binary_into(target, "add", target, QUARTER_BYTES);
            });
            self.next_eight(b);
            if !in_fours {
                b.binary_into(words, "add", words, EIGHT_BYTES);
            }
        });
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

    /// The scales of four rows in two parts, each four times in turn, into the first of two vectors.
    pub fn scales_in_turn(&self, b: &mut CoreBuilder, scales: Reg, parts: [i64; 2], [target, other]: [Reg; 2]) {
        for (all, part) in [target, other].into_iter().zip(parts) {
            b.load(all.lo(), scales, Address::At(part));
            b.load(all.hi(), scales, Address::At(part));
        }
        b.shuffle(target, target, other, self.mix_16);
        b.shuffle(target, target, target, self.mix_32);
        b.shuffle(target, target, target, self.mix_64);
    }

    /// Four rows of a block.
    fn rows(&self, b: &mut CoreBuilder, [words, scales, target]: [Reg; 3]) {
        let scale = self.scales(b, scales, 0);
        let minimum = (self.weights == Weights::Q4_1).then(|| self.scales(b, scales, 32));
        let (other, registers) = (b.reg(Class::X), [(); STEPS].map(|()| Step::new(b)));
        self.steps(b, [words, target], [scale, other], minimum, &registers);
    }

    /// Steps of four rows that have the same scales and minimums; the second vector beside the scales is for what comes between.
    fn steps<'s>(
        &self,
        b: &mut CoreBuilder,
        [words, target]: [Reg; 2],
        [scale, other]: [Reg; 2],
        minimum: Option<Reg>,
        steps: impl IntoIterator<Item = &'s Step>,
    ) {
        let of_pairs = self.of_pairs(b, scale);
        let offsets = [0, 1].map(|pair: usize| match (self.weights, minimum) {
            (Weights::Q4_0, _) => Some(self.product(b, self.factors[0], of_pairs[pair])),
            (_, Some(minimum)) => {
                b.shuffle(other, minimum, scale, self.halves[pair]);
                Some(self.product(b, self.factors[0], other))
            }
            _ => None,
        });
        for (step, registers) in (0..).zip(steps) {
            let (number, sign) = self.numbers(b, words, step, *registers);
            for (pair, (scale, offset)) in of_pairs.into_iter().zip(offsets).enumerate() {
                let sum = b.reg(Class::Acc512);
                match offset {
                    Some(offset) => b.mac_f(sum, offset, number, scale, self.lanes),
                    None => b.mul_f(sum, number, scale, self.lanes),
                }
                if let Some(sign) = sign {
                    b.msc_f(sum, sum, sign, scale, self.lanes);
                }
                Self::store(b, sum, target, pair);
            }
        }
    }

    /// Scales of the first two of four rows with zeros for the others, and the other way round.
    pub fn of_pairs(&self, b: &mut CoreBuilder, scale: Reg) -> [Reg; 2] {
        if let Some([first, second]) = self.kept {
            b.mov(first.lo(), scale.lo());
            b.mov(second.hi(), scale.hi());
            return [first, second];
        }
        let pairs = [(scale, self.zero, self.halves[0]), (self.zero, scale, self.halves[1])];
        pairs.map(|(low, high, mode)| shuffled(b, low, high, mode))
    }

    /// Stores eight numbers of two rows.
    pub fn store(b: &mut CoreBuilder, sum: Reg, target: Reg, pair: usize) {
        let by = if pair == 0 { PAIR_BYTES } else { STEP_BYTES - PAIR_BYTES };
        b.store_as("vst.conv.bf16.fp32", sum, target, Address::Then(by));
    }

    pub fn product(&self, b: &mut CoreBuilder, left: Reg, right: Reg) -> Reg {
        let target = b.reg(Class::Acc512);
        b.mul_f(target, left, right, self.lanes);
        target
    }

    /// 128 plus the quants of four rows and eight `k`; for bytes, 128 plus their low bits and 128 plus the sign's.
    fn numbers(&self, b: &mut CoreBuilder, words: Reg, step: i64, registers: Step) -> (Reg, Option<Reg>) {
        if self.weights != Weights::Q8_0 {
            return (self.quants(b, words, step, registers, self.upper), None);
        }
        // Eight bytes of each row in two words, those of eight rows in a vector.
        let Step { packed, quants, .. } = registers;
        b.load(packed, words, Address::At(2 * step * WORD_BYTES));
        b.emit("vunpack.d16.d8", [quants, packed]);
        b.emit("vbor", [quants, quants, self.upper]);
        let [low, sign] = self.factors.map(|mask| both(b, "vband", quants, mask));
        (low, Some(sign))
    }

    /// Numbers of four rows and eight halves of bytes, with these as their low bits.
    pub fn quants(&self, b: &mut CoreBuilder, words: Reg, step: i64, registers: Step, upper: Reg) -> Reg {
        let Step { packed, quants, numbers } = registers;
        b.load(packed, words, Address::At(step * WORD_BYTES));
        b.emit("vunpack.d8.d4", [quants, packed]);
        b.shuffle(numbers, quants, upper, self.mix_8);
        numbers
    }
}
