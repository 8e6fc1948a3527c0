//! Blocks of q6_K: 256 quants of six bits below zero, in 16 parts whose scales have eight.
//!
//! ```text
//!   first block   | 32 words of low bits | 16 of high bits | 4 of scales | d . |
//!   second block                                                         | . l | l l | ... | s d |
//!
//!   afterwards    | 32 words of low bits | 16 of high bits | 4 of scales | d . | 8 words of scales in bf16 | x 2
//! ```
//!
//! A pair of blocks is 105 words; the core's channel leaves 17 behind it. The second block, half a word off, is moved to where the
//! words of its half of all these 122 begin, from its end on, because what it overwrites is its own front.
//!
//! *Scales* are bytes with a sign: as with the quants of q8_0, `d * (128 + low bits) - d * (128 + sign bit)`.
//!
//! *Quants*: a word of low bits unpacks to those of `k` and `k + 64` in turn, a word of high bits to two bits of these and, above
//! them, two of `k + 32` and `k + 96`. So columns are interleaved in groups of 128. As the low bits of `0x4300`, the low bits `l`
//! are the number `128 + l`. The high bits `h` of `k` and `k + 64` make `2048 + 16 h` with `0x4500`, and those of the other two,
//! two bits further up, `512 + 16 h` with `0x4400`. A quant is `l + 16 h - 32`: scaled, both numbers' products and one of -2208 or
//! -672, which all bf16 has exactly.

use super::quants::{Body, Step};
use super::vectors::{WORD_BYTES, both, constant, load, mode, shuffled};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::families::products::kernel::Kernel;
use crate::families::products::parameters::Parameter;
use crate::families::products::weights::{Layout, Weights};

/// Words of a block up to `d`, and where its parts are.
const D: i64 = 52;
const HIGH_BITS: i64 = 32;
const PACKED_SCALES: i64 = 48;
const SCALES: i64 = 53;
/// Runs of 32 quants in a block, and steps of 8 in a run.
const RUNS: u32 = 8;
const STEPS: i64 = 4;

/// Numbers from 128 on, as bf16 in both halves of a word; and what is left of them and a byte.
const NUMBER: u32 = 0x4300_4300;
const LOW_BITS: u32 = 0x437F_437F;
const SIGN_BIT: u32 = 0x4380_4380;
/// Upper bytes of numbers of high bits, which masks turn into those of 2048 + 16 h and of 512 + 16 h.
const UPPER_BYTES: u32 = 0x4747_4747;
const HIGH_MASKS: [u32; 2] = [0x4503, 0x440C];
const MINUS_2208_672: [u32; 2] = [0xC50A, 0xC428];

/// Moves the second blocks of all pairs to their places.
pub(super) fn align(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    let period = i64::from(layout.period);
    let (last, moved) = (b.add(source, (2 * D - 2) * WORD_BYTES), b.add(source, (period + D - 2) * WORD_BYTES));
    let (from, to) = (k.pointer(b, k.weights, last), k.pointer(b, k.placed, moved));
    let [even, odd] = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let mix = mode::MIX_16.map(|mode| b.scalar(mode));
    let pairs = k.count(b, Parameter::Pairs, 1);
    b.repeat(pairs, |b| {
        let word = load(b, from, 2);
        let d = shuffled(b, word, word, odd);
        let d = shuffled(b, d, d, mix[0]);
        b.store(d, to, Address::At(2 * WORD_BYTES));
        b.name_loop("q6_K to whole words");
        b.repeat(D as u32 / 2, |b| {
            let [before, middle, after] = [0, 1, 2].map(|word| load(b, from, word));
            let (odd, even) = (shuffled(b, before, middle, odd), shuffled(b, middle, after, even));
            for (mode, word) in mix.into_iter().zip([0, WORD_BYTES]) {
                let whole = shuffled(b, odd, even, mode);
                b.store(whole, to, Address::At(word));
            }
            for pointer in [from, to] {
                b.advance(pointer, -2 * WORD_BYTES);
            }
        });
        for pointer in [from, to] {
            b.advance(pointer, (2 * period + D) * WORD_BYTES);
        }
    });
}

/// Multiplies the scales of parts with `d`, which is bf16 already.
pub(super) fn scales(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    let [d_at, from_at, to_at] = [D, PACKED_SCALES, SCALES].map(|word| b.add(source, word * WORD_BYTES));
    let (d, from, to) =
        (k.pointer(b, k.weights, d_at), k.pointer(b, k.weights, from_at), k.pointer(b, k.placed, to_at));
    let halves = [mode::LOW_HALVES, mode::HIGH_HALVES].map(|mode| b.scalar(mode));
    let sorted = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let lanes = b.scalar(CoreBuilder::LANES_BF16.into());
    let (zero, number) = (constant(b, 0), constant(b, NUMBER));
    let masks = [LOW_BITS, SIGN_BIT].map(|mask| constant(b, mask));
    let blocks = k.count(b, Parameter::ScaleWords, 1);
    b.repeat(blocks, |b| {
        let factor = b.reg(Class::X);
        for half in [factor.lo(), factor.hi()] {
            b.load(half, d, Address::At(0));
        }
        let factors = [shuffled(b, factor, zero, halves[0]), shuffled(b, zero, factor, halves[1])];
        b.name_loop("scales of q6_K");
        b.repeat(4, |b| {
            // Four bytes of each of eight rows, then their first and third, and the second and fourth, of all rows.
            let rows = [0, 32].map(|at| {
                let (packed, bytes) = (b.reg(Class::W), b.reg(Class::X));
                b.load(packed, from, Address::At(at));
                b.emit("vunpack.d16.d8", [bytes, packed]);
                bytes
            });
            let parts = sorted.map(|mode| shuffled(b, rows[0], rows[1], mode));
            for mode in sorted {
                let two = shuffled(b, parts[0], parts[1], mode);
                let two = both(b, "vbor", two, number);
                let [low, sign] = masks.map(|mask| both(b, "vband", two, mask));
                for factor in factors {
                    let sum = b.reg(Class::Acc512);
                    b.mul_f(sum, low, factor, lanes);
                    b.msc_f(sum, sum, sign, factor, lanes);
                    b.store_as("vst.conv.bf16.fp32", sum, to, Address::Then(32));
                }
            }
            b.advance(from, WORD_BYTES);
        });
        let period = i64::from(layout.period);
        for (pointer, words) in [(d, 0), (from, 4), (to, 8)] {
            b.advance(pointer, (period - words) * WORD_BYTES);
        }
    });
}

/// Multiplies all quants with their scales. Scalars are few here: numbers of 16 bits share one, and products are sums of shifts.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, [source, target]: [Reg; 2]) {
    let body = Body::new(b, Weights::Q6_K);
    let upper = constant(b, UPPER_BYTES);
    let of_high_bits = [0, 1].map(|which: usize| b.scalar((HIGH_MASKS[which] << 16 | MINUS_2208_672[which]).into()));
    body.each_four_rows(b, source, target, |b, words, target| {
        let target = k.pointer(b, k.decoded, target);
        let (run, block) = (b.scalar(0), b.scalar(0));
        let runs = k.count(b, Parameter::Blocks, 2 * RUNS);
        b.name_loop("q6_K, four rows of 32");
        b.repeat(runs, |b| {
            // Runs of a block: of k, twice 16 with those 64 further on; of k + 32 likewise; and the other 128.
            let bit = |b: &mut CoreBuilder, bit: i64, to: i64| {
                let alone = b.binary("and", run, 1 << bit);
                b.binary("lshl", alone, to - bit)
            };
            let front = b.add(words, block);
            let low = shifted(b, front, run, 8);
            let (second, last) = (bit(b, 0, 8), bit(b, 2, 9));
            let high = b.add(front, second);
            let high = b.add(high, last);
            let scales = b.add(source, block);
            let scales = shifted(b, scales, run, 5);
            let last = bit(b, 2, 7);
            let scales = b.add(scales, last);
            let [low, high, scales] = [low, high, scales].map(|at| k.pointer(b, k.weights, at));
            b.advance(high, HIGH_BITS * WORD_BYTES);
            b.advance(scales, SCALES * WORD_BYTES);
            let further = bit(b, 1, 1);
            let constants = b.select(further, of_high_bits[1], of_high_bits[0]);

            let [scale, other, mask] = [(); 3].map(|()| b.reg(Class::X));
            body.scales_in_turn(b, scales, [0, 128], [scale, other]);
            let pairs = body.of_pairs(b, scale);
            b.broadcast(16, other, constants);
            let offsets = pairs.map(|pair| body.product(b, other, pair));
            let bits = b.binary("lshl", constants, -16);
            b.broadcast(16, mask, bits);
            let registers = [(); 2].map(|()| Step::in_place(b));
            let of_high = [(); 2].map(|()| Step::in_place(b));
            for (step, (registers, of_high)) in (0..STEPS).zip(registers.iter().zip(&of_high).cycle()) {
                let low = body.quants(b, low, step, *registers, body.upper);
                let high = body.quants(b, high, step, *of_high, upper);
                b.emit("vband", [high, high, mask]);
                for (pair, (scale, offset)) in pairs.into_iter().zip(offsets).enumerate() {
                    let sum = b.reg(Class::Acc512);
                    b.mac_f(sum, offset, low, scale, body.lanes);
                    b.mac_f(sum, sum, high, scale, body.lanes);
                    Body::store(b, sum, target, pair);
                }
            }
            b.binary_into(run, "add", run, 1);
            let ends = b.binary("lshl", run, -3);
            b.binary_into(run, "and", run, i64::from(RUNS) - 1);
            // 61 words of 64 bytes.
            for (add, by) in [("add", 12), ("sub", 8), ("add", 6)] {
                let part = b.binary("lshl", ends, by);
                b.emit(add, [block, block, part]);
            }
        });
    });
}

/// A sum with a shifted number.
fn shifted(b: &mut CoreBuilder, at: Reg, number: Reg, by: i64) -> Reg {
    let shifted = b.binary("lshl", number, by);
    b.add(at, shifted)
}
