//! What a core of AIE2P does: all in blocks of eight numbers with one exponent, of which the matrix unit multiplies eight with eight.
//!
//! Weights and columns lie alike, step by step of 8 `k`: the mantissas of all eights of rows or columns, 64 bytes each, and somewhere
//! else all exponents in the same order, eight bytes each. What arrives has 8 `k` of each column or row in turn, so that 64 numbers are 16 in each
//! quarter of an accumulator, and a conversion makes blocks of them.
//!
//! Quants come as they are on AIE2, as words of 16 rows in a vector. Unpacked, a word is 8 `k` of a row, so half a vector is a block already:
//! with the upper byte of 128 they are bf16, which are multiplied with their scales lane by lane.

use super::super::decode::align;
use super::super::decode::vectors::{WORD_BYTES, both, constant, mode, shuffled};
use super::super::kernel::Kernel;
use super::super::parameters::Parameter;
use super::super::problem::{Form, Right};
use super::super::weights::{Layout, Weights};
use super::plan::HALF;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};
use crate::numerics::block_float::{EXPONENT_BYTES, MANTISSA_BYTES, ROWS};
use crate::numerics::{Aie2p, BlockFloat, Lanes, Nibbles, Unit};

/// Rows of weights, and columns of a unit of the loop.
const GROUP: usize = 16;
/// Registers of them.
const EIGHTS: usize = GROUP / ROWS;
/// Steps of 8 `k` in what has a scale, and in a piece of columns.
pub(super) const STEPS: i64 = 4;
pub(super) const STEP_BYTES: i64 = (EIGHTS * MANTISSA_BYTES) as i64;
const STEP_EXPONENTS: i64 = (EIGHTS * EXPONENT_BYTES) as i64;
/// Sums of 8 x 8, by quarters of an accumulator.
const QUARTER_BYTES: i64 = 64;

/// Numbers from 128 on, as bf16: upper bytes, and what is taken off.
const UPPER_BYTES: u32 = 0x4343_4343;
const MINUS_136: u32 = 0xC308_C308;
const MINUS_128: u32 = 0xC300_C300;
const LOW_BITS: u32 = 0x437F_437F;
const SIGN_BIT: u32 = 0x4380_4380;
/// Of an f16 in the upper half of a word; exponents 112 and 113 in an f32, of which the latter is also 2^-14.
const SIGN: u32 = 0x8000_0000;
const MAGNITUDE: u32 = 0x7FFF_0000;
const LEAST_NORMAL: u32 = 1 << 23;
const NORMAL: u32 = 112 << 23;
const SUBNORMAL: u32 = 113 << 23;

/// What the parts of the program use.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    unit: Aie2p,
    /// Exponents, of weights and of columns.
    weights: AliasRegion,
    columns: AliasRegion,
}

impl Blocks {
    /// To be written once, where the program begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        let unit = Aie2p::new(b);
        Nibbles::begin(b);
        Self { unit, weights: b.region("exponents of weights"), columns: b.region("exponents of columns") }
    }

    /// Adds the products of a group of rows, decoded at `source`, and all columns at `columns` to the sums at `sums`. The steps of a chunk are
    /// the body of a loop over columns, so that sums are stored and loaded meanwhile.
    pub fn multiply(self, b: &mut CoreBuilder, k: Kernel, halves: usize, [source, columns, sums]: [Reg; 3]) {
        let steps = (halves * HALF / ROWS) as i64;
        let exponents = k.parameter(b, Parameter::DecodedExponents);
        let units = k.parameter(b, Parameter::Units);
        let by = [STEP_BYTES, STEP_EXPONENTS].map(|bytes| b.binary("mul", units, bytes));
        let all = by.map(|by| b.binary("mul", by, steps));
        let column_exponents = self.exponents(b, k, columns);
        let back = [0, 1].map(|part| {
            let next = b.scalar([STEP_BYTES, STEP_EXPONENTS][part]);
            b.binary("sub", next, all[part])
        });
        let [by, back] = [by, back].map(|bytes| {
            bytes.map(|bytes| {
                let modifier = b.reg(Class::Modifier);
                b.mov(modifier, bytes);
                modifier
            })
        });
        let [row_by, row_back] =
            [[STEP_BYTES, STEP_EXPONENTS], [STEP_BYTES, STEP_EXPONENTS].map(|bytes| -steps * bytes)].map(|bytes| {
                bytes.map(|bytes| {
                    let modifier = b.reg(Class::Modifier);
                    b.constant_into(modifier, bytes);
                    modifier
                })
            });
        let rows_at = [k.pointer(b, k.decoded, source), k.pointer(b, self.weights, exponents)];
        let columns_at = [k.pointer(b, k.columns, columns), k.pointer(b, self.columns, column_exponents)];
        let [from, to] = [(); 2].map(|()| k.pointer(b, k.sums, sums));
        let block_float = BlockFloat::new(b);
        let accumulators: Vec<Reg> = (0..EIGHTS * EIGHTS).map(|_| b.reg(Class::Acc2048)).collect();
        let operands = [(); 2].map(|()| [(); 2].map(|()| [(); EIGHTS].map(|()| b.reg(Class::Blocks))));
        let load = |b: &mut CoreBuilder, sum: Reg| {
            quarters(sum).into_iter().for_each(|quarter| b.load(quarter, from, Address::Then(QUARTER_BYTES)));
        };
        accumulators.iter().for_each(|sum| load(b, *sum));
        // What is loaded behind the last columns is in the core's memory, and counts for nothing.
        let units = Count::from(units).at_least(1);
        b.name_loop(&format!("prompts, 16 columns of {} elements", 8 * steps));
        b.repeat(units, |b| {
            for step in 0..steps {
                let [rows, lanes] = operands[step as usize % 2];
                BlockFloat::load(b, &rows, rows_at, row_by);
                BlockFloat::load(b, &lanes, columns_at, by);
                for (index, sum) in accumulators.iter().enumerate() {
                    block_float.multiply_add(b, *sum, rows[index % EIGHTS], lanes[index / EIGHTS]);
                    if step + 1 == steps {
                        quarters(*sum).into_iter().for_each(|part| b.store(part, to, Address::Then(QUARTER_BYTES)));
                        load(b, *sum);
                    }
                }
            }
            for (pointer, by) in rows_at.into_iter().zip(row_back).chain(columns_at.into_iter().zip(back)) {
                b.advance(pointer, by);
            }
        });
    }

    /// Where the exponents of converted columns are whose mantissas are at an address.
    fn exponents(self, b: &mut CoreBuilder, k: Kernel, columns: Reg) -> Reg {
        let [first, exponents] = [Parameter::Columns, Parameter::Exponents].map(|place| k.parameter(b, place));
        let mantissas = b.binary("sub", columns, first);
        let bytes = b.binary("lshl", mantissas, -3);
        b.add(exponents, bytes)
    }

    /// Converts a piece of columns, 32 `k` of all, from the address `source` to blocks at `target`.
    pub fn convert(self, b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
        let exponents = self.exponents(b, k, target);
        let form = k.parameter(b, Parameter::Form);
        let units = k.parameter(b, Parameter::Units);
        b.choose(form, Form::COUNT, |b, number| {
            let Form { right, interleaved } = Form::numbered(number);
            let source = k.pointer(b, k.arriving, source);
            let targets = [k.pointer(b, k.columns, target), k.pointer(b, self.columns, exponents)];
            if interleaved && right == Right::Bf16 {
                return in_turn(b, units, source, targets);
            }
            // The mem tile has put those of f32 in turn.
            let blocks = b.binary("mul", units, STEPS * EIGHTS as i64);
            let blocks = Count::from(blocks).at_least(8).multiple_of(8);
            b.name_loop(&format!("eight columns of {right:?}{}", if interleaved { ", interleaved" } else { "" }));
            b.repeat(blocks, |b| convert_block(b, right, source, targets));
        });
    }

    /// Decodes 16 rows of weights of a chunk from the address `source` to `target`.
    pub fn decode(self, b: &mut CoreBuilder, k: Kernel, number: Reg, [source, target]: [Reg; 2]) {
        let steps = k.parameter(b, Parameter::Steps);
        let exponents = k.parameter(b, Parameter::DecodedExponents);
        let types: Vec<Weights> = Weights::ALL.into_iter().take_while(|weights| weights.is_prompt()).collect();
        b.choose(number, types.len() as u32, |b, number| {
            let weights = types[number as usize];
            let Some(layout) = weights.layout() else {
                let right = if weights == Weights::F32 { Right::F32 } else { Right::Bf16 };
                let source = k.pointer(b, k.weights, source);
                let targets = [k.pointer(b, k.decoded, target), k.pointer(b, self.weights, exponents)];
                let blocks = b.binary("mul", steps, EIGHTS as i64);
                let blocks = Count::from(blocks).at_least(8).multiple_of(8);
                b.name_loop(&format!("eight rows of {}", weights.dtype()));
                return b.repeat(blocks, |b| convert_block(b, right, source, targets));
            };
            if weights.comes_in_pairs() {
                align::pairs(b, k, &layout, source, weights == Weights::Q8_0);
            }
            self.scales(b, k, source);
            self.quants(b, k, weights, &layout, source, [target, exponents]);
        });
    }

    /// Replaces the word of scales of all blocks by bf16: those in the lower halves of the words of all rows, then those in the upper ones.
    fn scales(self, b: &mut CoreBuilder, k: Kernel, source: Reg) {
        let offset = k.parameter(b, Parameter::ScalesAt);
        let at = b.add(source, offset);
        let (source, target) = (k.pointer(b, k.weights, at), k.pointer(b, k.placed, at));
        let period = k.modifier(b, Parameter::ScalesPeriod);
        let [magnitude, least, sign] = [MAGNITUDE, LEAST_NORMAL, SIGN].map(|word| constant(b, word));
        let [normal, subnormal, zero] = [NORMAL, SUBNORMAL, 0].map(|word| constant(b, word));
        let count = k.count(b, Parameter::ScaleWords, 1);
        b.name_loop("scales");
        b.repeat(count, |b| {
            let words = b.reg(Class::X);
            b.load(words, source, Address::Then(0));
            b.advance(source, period);
            let mut l = self.unit.one(b);
            let [low] = l.shift_left([words], 16);
            for (word, place) in [low, words].into_iter().zip([0, 32]) {
                let mut l = self.unit.one(b);
                let bits = l.and([word], [magnitude]);
                let mantissa = l.shift_right(bits, 3);
                let lacking = l.less(mantissa, [least]);
                let more = l.select([normal], [subnormal], lacking);
                let less = l.select([zero], [subnormal], lacking);
                let number = l.add_words(mantissa, more);
                let (number, less) = (l.float(number), l.float(less));
                let number = l.sub(number, less);
                let number = l.bits(number);
                let sign = l.and([word], [sign]);
                let number = l.or(number, sign);
                let number = l.float(number);
                let [Some(rounded), _] = l.narrow(number, number) else { return };
                b.store(rounded.lo(), target, Address::At(place));
            }
            b.advance(target, period);
        });
    }

    /// Multiplies all quants with their scales: 32 `k` of the lower eight rows, and of the upper ones.
    fn quants(
        self,
        b: &mut CoreBuilder,
        k: Kernel,
        weights: Weights,
        layout: &Layout,
        source: Reg,
        [target, exponents]: [Reg; 2],
    ) {
        let bytes = |words: u8| i64::from(words) * WORD_BYTES;
        let (period, second) = (bytes(layout.period), bytes(layout.words[1] - layout.words[0]));
        let [words, scales] = [layout.words[0], layout.scales].map(|word| b.add(source, bytes(word)));
        let upper = constant(b, UPPER_BYTES);
        let factors = match weights {
            Weights::Q4_0 => vec![constant(b, MINUS_136)],
            Weights::Q4_1 => vec![constant(b, MINUS_128)],
            _ => vec![constant(b, LOW_BITS), constant(b, SIGN_BIT)],
        };
        let lanes = self.unit.lanes();
        let mix_8 = mode::MIX_8.map(|mode| b.scalar(mode));
        let mix_32 = mode::MIX_32.map(|mode| b.scalar(mode));
        let mix_16 = b.scalar(mode::MIX_16[0]);
        let index = b.scalar(0);
        let halves = k.parameter(b, Parameter::ChunkHalves);
        let count = b.binary("mul", halves, 2 * EIGHTS as i64);
        let count = Count::from(count).at_least(4).multiple_of(4);
        b.name_loop(match weights {
            Weights::Q4_0 => "q4_0, eight rows of a block",
            Weights::Q4_1 => "q4_1, eight rows of a block",
            _ => "q8_0, eight rows of a block",
        });
        b.repeat(count, |b| {
            let eight = b.binary("and", index, 1);
            let block = b.binary("lshl", index, -1);
            let odd = b.binary("and", block, 1);
            let pair = if layout.is_pair() { b.binary("lshl", block, -1) } else { block };
            let pair = b.binary("mul", pair, period);
            // Vectors of q8_0 are eights of rows already.
            let step = b.binary("lshl", eight, if weights == Weights::Q8_0 { 6 } else { 5 });
            let mut at = b.add(words, pair);
            let mut scales_at = b.add(scales, pair);
            if layout.is_pair() {
                let by = b.binary("mul", odd, second);
                at = b.add(at, by);
                let by = b.binary("lshl", odd, 5);
                scales_at = b.add(scales_at, by);
            }
            let at = b.add(at, step);
            let (at, scales_at) = (k.pointer(b, k.weights, at), k.pointer(b, k.weights, scales_at));
            let by = b.binary("mul", block, STEPS * STEP_BYTES);
            let eights = b.binary("lshl", eight, 6);
            let to = b.add(target, by);
            let to = b.add(to, eights);
            let to = k.pointer(b, k.decoded, to);
            let by = b.binary("mul", block, STEPS * STEP_EXPONENTS);
            let eights = b.binary("lshl", eight, 3);
            let exponents_to = b.add(exponents, by);
            let exponents_to = b.add(exponents_to, eights);
            let exponents_to = k.pointer(b, self.weights, exponents_to);
            b.binary_into(index, "add", index, 1);
            // Eight bf16 of each of four rows.
            let of_rows = b.add(eight, mode::MIX_32[0]);
            let spread = |b: &mut CoreBuilder, offset: i64| {
                let packed = part(b);
                b.load(packed.lo(), scales_at, Address::At(offset));
                let words = shuffled(b, packed, packed, mix_16);
                let words = shuffled(b, words, words, of_rows);
                mix_32.map(|mode| shuffled(b, words, words, mode))
            };
            // Sums of both halves of a block, in turn in as many places as are worth it.
            let first = [(); 2].map(|()| b.reg(Class::Acc2048));
            let places =
                if weights == Weights::Q8_0 { [first, [(); 2].map(|()| b.reg(Class::Acc2048))] } else { [first; 2] };
            let least = (weights == Weights::Q4_1).then(|| spread(b, 32));
            let scale = spread(b, 0);
            let offsets = (weights != Weights::Q8_0).then(|| {
                [0, 1].map(|half| {
                    let sum = b.reg(Class::Acc2048);
                    match least {
                        None => b.mul_f(sum, factors[0], scale[half], lanes),
                        Some(least) => {
                            // Half of them count.
                            let wide = first[half];
                            [wide.lo(), wide.hi()].into_iter().for_each(|part| b.to_fp32(part, least[half]));
                            b.mac_f(sum, wide, factors[0], scale[half], lanes);
                        }
                    }
                    sum
                })
            });
            for step in 0..STEPS {
                let bytes = match weights {
                    Weights::Q8_0 => {
                        let bytes = b.reg(Class::X);
                        b.load(bytes, at, Address::At(2 * step * WORD_BYTES));
                        bytes
                    }
                    _ => {
                        let packed = part(b);
                        b.load(packed.lo(), at, Address::At(step * WORD_BYTES));
                        let nibbles = Nibbles::new(b);
                        nibbles.unpack(b, packed);
                        nibbles.bytes[0]
                    }
                };
                let numbers = mix_8.map(|mode| shuffled(b, bytes, upper, mode));
                let [all, second] = places[step as usize % 2];
                for (half, into) in [all, second].into_iter().enumerate() {
                    match offsets {
                        Some(offsets) => b.mac_f(into, offsets[half], numbers[half], scale[half], lanes),
                        None => {
                            let [low, sign] = [0, 1].map(|which| both(b, "vband", numbers[half], factors[which]));
                            b.mul_f(into, low, scale[half], lanes);
                            b.msc_f(into, into, sign, scale[half], lanes);
                        }
                    }
                }
                b.mov(all.hi(), second.lo());
                let blocks = BlockFloat::of(b, all);
                b.store(blocks.mantissas(), to, Address::At(step * STEP_BYTES));
                BlockFloat::store_exponents(b, blocks, exponents_to, STEP_EXPONENTS);
            }
        });
    }
}

/// A vector of which the lower half is written, and the rest never matters.
fn part(b: &mut CoreBuilder) -> Reg {
    let vector = b.reg(Class::X);
    b.undefined(vector);
    vector
}

fn quarters(sum: Reg) -> [Reg; 4] {
    [sum.lo().lo(), sum.lo().hi(), sum.hi().lo(), sum.hi().hi()]
}

/// Converts 64 numbers, which lie as a block wants them.
fn convert_block(b: &mut CoreBuilder, right: Right, source: Reg, targets: [Reg; 2]) {
    let numbers = b.reg(Class::Acc2048);
    match right {
        Right::F32 => quarters(numbers).into_iter().for_each(|quarter| b.load(quarter, source, Address::Then(64))),
        _ => [numbers.lo(), numbers.hi()].into_iter().for_each(|half| {
            let vector = b.reg(Class::X);
            b.load(vector, source, Address::Then(64));
            b.to_fp32(half, vector);
        }),
    }
    store_block(b, numbers, targets);
}

fn store_block(b: &mut CoreBuilder, numbers: Reg, [target, exponents]: [Reg; 2]) {
    let blocks = BlockFloat::of(b, numbers);
    b.store(blocks.mantissas(), target, Address::Then(MANTISSA_BYTES as i64));
    BlockFloat::store_exponents(b, blocks, exponents, EXPONENT_BYTES as i64);
}

/// Columns of bf16, of which four `k` of all columns are followed by those that they take turns with.
fn in_turn(b: &mut CoreBuilder, units: Reg, source: Reg, targets: [Reg; 2]) {
    let bytes = b.binary("mul", units, STEP_BYTES);
    let far = b.reg(Class::Jump);
    b.mov(far, bytes);
    let skip = b.reg(Class::Modifier);
    b.mov(skip, bytes);
    let modes = mode::MIX_16.map(|mode| b.scalar(mode));
    let eights = b.binary("mul", units, EIGHTS as i64);
    b.repeat(STEPS as u32, |b| {
        let eights = Count::from(eights).at_least(2).multiple_of(2);
        b.name_loop("eight columns of Bf16, interleaved");
        b.repeat(eights, |b| {
            let [near, other] = [(); 2].map(|()| b.reg(Class::X));
            b.load(other, source, Address::Index(far));
            b.load(near, source, Address::Then(64));
            let numbers = b.reg(Class::Acc2048);
            for (half, mode) in [numbers.lo(), numbers.hi()].into_iter().zip(modes) {
                let vector = shuffled(b, near, other, mode);
                b.to_fp32(half, vector);
            }
            store_block(b, numbers, targets);
        });
        b.advance(source, skip);
    });
}
