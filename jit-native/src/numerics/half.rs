//! f16 from f32.

use super::Lanes;

/// The nearest f16, to even between two, as the low bits of words; of a NaN another one. That of `half::f16::from_f32`.
///
/// From 2^-14 on it is the number with another bias, rounded where 13 bits are cut off. Below, f16 are multiples of 2^-24, as are f32
/// between a half and 1: a sum with a half rounds to one.
pub fn half<L: Lanes>(l: &mut L, x: L::Float) -> L::Word {
    let (bits, magnitude) = (l.bits(x), l.word(0x7FFF_FFFF));
    let size = l.and(bits, magnitude);
    let bias = l.word(0x3800_0000);
    let biased = l.sub_words(size, bias);
    let odd = l.word(0x2000);
    let odd = l.and(biased, odd);
    let odd = l.shift_right(odd, 13);
    let below_half = l.word(0xFFF);
    let rounded = l.add_words(biased, below_half);
    let rounded = l.add_words(rounded, odd);
    let kept = l.word(!0x1FFF);
    let rounded = l.and(rounded, kept);
    let normal = l.shift_right(rounded, 13);
    let one_half = l.word(0.5f32.to_bits());
    let (sum, addend) = (l.float(size), l.float(one_half));
    let sum = l.add(sum, addend);
    let sum = l.bits(sum);
    let small = l.sub_words(sum, one_half);
    let least_normal = l.word(0x3880_0000);
    let is_small = l.less(size, least_normal);
    let result = l.select(normal, small, is_small);
    // What is too large has become more than infinity.
    let infinite = l.word(0x7C00);
    let result = l.min_words(result, infinite);
    let (largest, nan) = (l.word(0x7F80_0000), l.word(0x7E00));
    let is_nan = l.less(largest, size);
    let result = l.select(result, nan, is_nan);
    let (zero, sign) = (l.word(0), l.word(0x8000));
    let is_negative = l.less(bits, zero);
    let negative = l.or(result, sign);
    l.select(result, negative, is_negative)
}
