//! The program that makes f16 and bf16 of f32: two words become one.
//!
//! There is no instruction for f16. The bits are moved by integers, as in software elsewhere: a normal result is the number with
//! another bias, rounded to nearest even where 13 bits are cut off; a subnormal one is the mantissa shifted by as much as the
//! exponent is too small. Results are those of the `half` crate, bit by bit, infinities and NaN included. bf16 is the upper half,
//! rounded. A pair takes some 80 cycles, which is enough for the rows of a decoded token (192 elements in 5 us).
//!
//! Parameters, in words: tiles; words made of a tile; words made of the last tile; which type ([`F16`], [`BF16`]).

use crate::array::Passes;
use crate::codegen::{Address, Build, Class, CoreBuilder, CoreError, CoreProgram, Count, LoopForm, Reg, Scheduling};
use aie_isa::Isa;

/// f16.
pub const F16: u32 = 0;
/// bf16.
pub const BF16: u32 = 1;
const FORMATS: u32 = 2;

/// The program of a generation.
///
/// # Errors
/// [`CoreError`], when it does not fit.
pub fn program(isa: &'static Isa, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    let (parameters, input, output) = (b.region("parameters"), b.region("input"), b.region("output"));
    let minus_one = b.scalar(-1);
    b.forever(|b| {
        b.acquire(Passes::GO, minus_one);
        let block = b.pointer_at(parameters, Passes::PARAMETERS);
        let [tiles, words, last, format] = [0, 4, 8, 12].map(|offset| {
            let word = b.reg(Class::Scalar);
            b.load(word, block, Address::At(offset));
            word
        });
        let sum = |place: u32, stride: u32| i64::from(2 * place + stride);
        let from_sum = b.scalar(sum(Passes::INPUT.address, Passes::INPUT_STRIDE));
        let to_sum = b.scalar(sum(Passes::RESULT.address, Passes::RESULT_STRIDE));
        let (from, to) = (b.scalar(Passes::INPUT.address.into()), b.scalar(Passes::RESULT.address.into()));
        let left = b.reg(Class::Scalar);
        b.mov(left, tiles);
        b.repeat(Count::from(tiles).at_least(1), |b| {
            b.binary_into(left, "sub", left, 1);
            let count = b.select(left, words, last);
            b.acquire(Passes::INPUT.full, minus_one);
            b.acquire(Passes::RESULT.empty, minus_one);
            let (source, target) = (b.pointer(input), b.pointer(output));
            b.mov(source, from);
            b.mov(target, to);
            b.choose(format, FORMATS, |b, format| {
                b.name_loop(if format == F16 { "f16" } else { "bf16" });
                b.repeat(Count::from(count).at_least(1), |b| {
                    let [low, high] = [(); 2].map(|()| {
                        let word = b.reg(Class::Scalar);
                        b.load(word, source, Address::Then(4));
                        word
                    });
                    let [low, high] = [low, high].map(|x| if format == F16 { half(b, x) } else { brain(b, x) });
                    let high = shifted(b, high, 16);
                    let word = b.binary("or", low, high);
                    b.store(word, target, Address::Then(4));
                });
            });
            b.release(Passes::INPUT.empty, 1);
            b.release(Passes::RESULT.full, 1);
            b.binary_into(from, "sub", from_sum, from);
            b.binary_into(to, "sub", to_sum, to);
        });
    });
    b.finish_with(Build { scheduling: Scheduling::Straight, loops })
}

/// Bits shifted to the left; to the right by a negative number, with zeros.
fn shifted(b: &mut CoreBuilder, x: Reg, by: i64) -> Reg {
    b.binary("lshl", x, by)
}

fn masked(b: &mut CoreBuilder, x: Reg, mask: i64) -> Reg {
    b.binary("and", x, mask)
}

/// `if_true` where `a < b` as unsigned numbers.
fn where_below(b: &mut CoreBuilder, a: Reg, limit: Reg, if_true: Reg, if_false: Reg) -> Reg {
    let below = b.binary("ltu", a, limit);
    b.select(below, if_true, if_false)
}

/// The f16 of an f32, both as bits.
fn half(b: &mut CoreBuilder, x: Reg) -> Reg {
    let sign = shifted(b, x, -16);
    let sign = masked(b, sign, 0x8000);
    let size = masked(b, x, 0x7FFF_FFFF);
    let top = shifted(b, size, -13);
    // 2^-14 and more: the bias becomes 15, and thirteen bits are rounded to nearest, to even between two.
    let odd = masked(b, top, 1);
    let normal = b.add(size, odd);
    let normal = b.binary("sub", normal, 0x3800_0000 - 0xFFF);
    let normal = shifted(b, normal, -13);
    // Less: units of 2^-24. From a shift of 25 on nothing is left.
    let exponent = shifted(b, size, -23);
    let bias = b.scalar(126);
    let shift = b.binary("sub", bias, exponent);
    let most = b.scalar(25);
    let shift = where_below(b, shift, most, shift, most);
    let one = b.scalar(1);
    let unit = shifted(b, one, 23);
    let mantissa = masked(b, size, 0x7F_FFFF);
    let mantissa = b.binary("or", mantissa, unit);
    let zero = b.scalar(0);
    let down = b.binary("sub", zero, shift);
    let odd = b.binary("lshl", mantissa, down);
    let odd = masked(b, odd, 1);
    let before = b.binary("sub", shift, one);
    let below_half = b.binary("lshl", one, before);
    let below_half = b.binary("sub", below_half, one);
    let small = b.add(mantissa, below_half);
    let small = b.add(small, odd);
    let small = b.binary("lshl", small, down);
    let least = b.scalar(0x3880_0000);
    let result = where_below(b, size, least, small, normal);
    // What is too large has become more than infinity.
    let infinite = b.scalar(0x7C00);
    let result = where_below(b, infinite, result, infinite, result);
    let nan = masked(b, top, 0x3FF);
    let nan = b.binary("or", nan, 0x7E00);
    let largest = b.scalar(0x7F80_0000);
    let result = where_below(b, largest, size, nan, result);
    b.binary("or", result, sign)
}

/// The bf16 of an f32, both as bits.
fn brain(b: &mut CoreBuilder, x: Reg) -> Reg {
    let upper = shifted(b, x, -16);
    let odd = masked(b, upper, 1);
    let rounded = b.binary("add", x, 0x7FFF);
    let rounded = b.add(rounded, odd);
    let rounded = shifted(b, rounded, -16);
    let nan = b.binary("or", upper, 0x40);
    let size = masked(b, x, 0x7FFF_FFFF);
    let largest = b.scalar(0x7F80_0000);
    where_below(b, largest, size, nan, rounded)
}
