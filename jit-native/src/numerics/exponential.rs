//! Exponentials, and what is made of them.
//!
//! `e^x = 2^n (1 + p)` with `n` the nearest whole number to `x log2(e)`, `r = x - n ln 2` and `p = e^r - 1`, a polynomial. The
//! nearest whole number comes from an addition of 1.5 * 2^23, which leaves no bits for fractions; its bits are the integer.

use super::product::{add_product2, both_orders, leading, polynomial, product_of, product2};
use super::quotient::{reciprocal, short_reciprocal};
use super::{Lanes, terms, three_terms};

/// 1.5 * 2^23: sums with it are whole numbers.
const WHOLE: f32 = 12_582_912.0;
const SIGN: u32 = 0x8000_0000;

/// The largest argument whose exponential is finite, and where exponentials become too small for normal numbers.
const LARGEST: f32 = 88.722_83;
const SMALLEST: f32 = -87.336_54;

/// `(e^r - 1 - r) / r^2` at the Chebyshev nodes of [-0.3475, 0.3475]; `r^2` times the error is below 8e-9.
const COEFFICIENTS: [f32; 5] = [0.001_392_637_6, 0.008_363_333_5, 0.041_666_552, 0.166_665_76, 0.5];

/// `x` as `n ln 2 + r`: the bits of `n` in units of 1 above [`WHOLE`]'s, and `p = e^r - 1`.
struct Reduced<L: Lanes> {
    power: L::Word,
    p: L::Float,
}

/// `x` within [-87.3, 88.7].
fn reduce<L: Lanes>(l: &mut L, x: L::Float) -> Reduced<L> {
    let [e0, e1, _] = three_terms(std::f32::consts::LOG2_E);
    let terms = leading(l, x);
    let (crossed, straight) = (l.pair(e1, e0), l.pair(e0, e1));
    let whole = l.constant(WHOLE);
    let scaled = l.multiply(terms, crossed);
    let scaled = l.multiply_add(scaled, terms, straight);
    let shifted = l.add(scaled, whole);
    let n = l.sub(shifted, whole);
    // n has eight bits, so that its products with the terms of ln 2 are exact.
    let [l0, l1, l2] = three_terms(std::f32::consts::LN_2);
    let n = l.narrow(n, n);
    let (first, others) = (l.pair(l0, 0), l.pair(l1, l2));
    let r = l.multiply_sub(x, n, first);
    let r = l.multiply_sub(r, n, others);
    let bits = l.bits(shifted);
    let bias = l.word(WHOLE.to_bits());
    let power = l.sub_words(bits, bias);
    // p = r + r (r q(r)).
    let r2 = both_orders(l, r);
    let q = polynomial(l, r2, &COEFFICIENTS, 2);
    let q = leading(l, q);
    let t = product2(l, q, r2);
    let t = leading(l, t);
    let p = add_product2(l, r, t, r2);
    Reduced { power, p }
}

/// `x` held within two bounds of different signs.
fn hold<L: Lanes>(l: &mut L, x: L::Float, low: f32, high: f32) -> L::Float {
    let bits = l.bits(x);
    let top = l.word(high.to_bits());
    let held = l.min_words(bits, top);
    // With the sign turned, the numbers below zero are ordered as integers.
    let (sign, bottom) = (l.word(SIGN), l.word(low.to_bits() ^ SIGN));
    let turned = l.add_words(held, sign);
    let held = l.min_words(turned, bottom);
    let held = l.add_words(held, sign);
    l.float(held)
}

/// `e^x` of any number: infinite beyond 88.72, 0 below -87.34.
pub fn exp<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let held = exp_held(l, x);
    let (x, held) = (l.bits(x), l.bits(held));
    let (most, infinite) = (l.word(LARGEST.to_bits()), l.word(f32::INFINITY.to_bits()));
    let above = l.less(most, x);
    let result = l.select(held, infinite, above);
    let result = none_below(l, x, result);
    l.float(result)
}

/// 0 where an exponential is too small for a normal number.
fn none_below<L: Lanes>(l: &mut L, x: L::Word, result: L::Word) -> L::Word {
    let (sign, least, zero) = (l.word(SIGN), l.word(SMALLEST.to_bits() ^ SIGN), l.word(0));
    let turned = l.add_words(x, sign);
    let below = l.less(least, turned);
    l.select(result, zero, below)
}

/// `e^x` of a number held within [-87.33, 88.72] first, so that the result is normal and finite.
pub fn exp_held<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let x = hold(l, x, SMALLEST, LARGEST);
    let Reduced { power, p } = reduce(l, x);
    let one = l.constant(1.0);
    let mantissa = l.add(p, one);
    let mantissa = l.bits(mantissa);
    let exponent = l.shift_left(power, 23);
    let result = l.add_words(mantissa, exponent);
    l.float(result)
}

/// `(2^f - 1) / f` at the Chebyshev nodes of [-0.5, 0.5]; the error of `2^f` is below 2e-4.
const BINARY_COEFFICIENTS: [f32; 3] = [0.055_754_65, 0.242_035_33, std::f32::consts::LN_2];

/// `e^-x` of a number from 0 on, exact enough to be rounded to bf16: to 2^-9; about 1.6e-38 beyond 87.
///
/// A third of the instructions of [`exp`].
pub fn exp_of_negative_coarse<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let (bits, most) = (l.bits(x), l.word((-SMALLEST).to_bits()));
    let held = l.min_words(bits, most);
    let held = l.float(held);
    let x = leading(l, held);
    let Binary { shifted, mantissa, .. } = BinaryOf::of(None, l, x);
    // The lowest bits of the sum are n.
    let (mantissa, n) = (l.bits(mantissa), l.bits(shifted));
    let exponent = l.shift_left(n, 23);
    let result = l.add_words(mantissa, exponent);
    l.float(result)
}

/// `e^-x` as `2^n` times a mantissa between 0.7 and 1.42.
#[derive(Clone, Copy, Debug)]
pub struct Binary<F> {
    /// The whole number `n`, and the same plus 1.5 * 2^23, of whose bits it is the lowest ones.
    pub n: F,
    shifted: F,
    /// To 2^-9.
    pub mantissa: F,
}

/// What [`BinaryOf::of`] needs in registers: a loop has it made in front.
#[derive(Clone, Copy, Debug)]
pub struct BinaryOf<F, P> {
    whole: F,
    square: F,
    linear: F,
    one: F,
    zero: F,
    crossed: P,
    straight: P,
    cubic: P,
}

impl<F: Copy, P: Copy> BinaryOf<F, P> {
    /// The constants.
    pub fn new<L: Lanes<Float = F, Pair = P>>(l: &mut L) -> Self {
        let [e0, e1] = terms(std::f64::consts::LOG2_E);
        let [cubic, square, linear] = BINARY_COEFFICIENTS;
        let [cubic] = terms(cubic.into());
        Self {
            whole: l.constant(WHOLE),
            square: l.constant(square),
            linear: l.constant(linear),
            one: l.constant(1.0),
            zero: l.constant(0.0),
            crossed: l.pair(e1, e0),
            straight: l.pair(e0, e1),
            cubic: l.pair(cubic, 0),
        }
    }

    /// `e^-x` of a number in two terms, with the constants, or with those that are made where they are used, of which few are there at a time.
    pub fn of<L: Lanes<Float = F, Pair = P>>(constants: Option<Self>, l: &mut L, x: P) -> Binary<F> {
        // What is made and not used is left out of programs.
        let constants = |l: &mut L| constants.unwrap_or_else(|| Self::new(l));
        // x log2(e) = n - f, n whole.
        let crossed = constants(l).crossed;
        let scaled = l.multiply(x, crossed);
        let straight = constants(l).straight;
        let scaled = l.multiply_add(scaled, x, straight);
        let whole = constants(l).whole;
        let shifted = l.sub(whole, scaled);
        let n = l.sub(shifted, whole);
        let f = l.add(n, scaled);
        let f = leading(l, f);
        // 1 - f q(-f): the signs of odd powers are those of the products.
        let Self { square, cubic, .. } = constants(l);
        let q = l.multiply_sub(square, cubic, f);
        let zero = constants(l).zero;
        let q = l.narrow(q, zero);
        let linear = constants(l).linear;
        let q = l.multiply_sub(linear, q, f);
        let q = l.narrow(q, q);
        let one = constants(l).one;
        let mantissa = l.multiply_sub(one, q, f);
        Binary { n, shifted, mantissa }
    }
}

/// `e^x - 1`, with small results as exact as large ones, for x up to 87; larger ones give about e^87.
pub fn expm1_held<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let x = hold(l, x, -80.0, 87.0);
    let Reduced { power, p } = reduce(l, x);
    let exponent = l.shift_left(power, 23);
    // 2^n and 2^n p; p = 0 must stay 0.
    let one = l.word(1f32.to_bits());
    let unit = l.add_words(one, exponent);
    let bits = l.bits(p);
    let moved = l.add_words(bits, exponent);
    let magnitude = l.word(!SIGN);
    let size = l.and(bits, magnitude);
    // Below 2^-40 the result is x itself to the last bit, and the exponent must not wrap around.
    let tiny = l.word(0x2b80_0000);
    let small = l.less(size, tiny);
    let moved = l.select(moved, bits, small);
    let (unit, moved, one) = (l.float(unit), l.float(moved), l.constant(1.0));
    let rest = l.sub(unit, one);
    l.add(rest, moved)
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let (bits, sign) = (l.bits(x), l.word(SIGN));
    let negative = l.add_words(bits, sign);
    // e^87 is the largest whose reciprocal is a normal number.
    let least = l.word(87f32.to_bits());
    let negative = l.min_words(negative, least);
    let negative = l.float(negative);
    let e = exp_held(l, negative);
    let one = l.constant(1.0);
    let e = l.add(e, one);
    reciprocal(l, e)
}

/// `(2^f - 1) / f` at the Chebyshev nodes of [-0.505, 0.505]; `f` times the error is below 2^-17 of `2^f`.
const POWERS: [f32; 4] = [0.009_657_487, 0.055_845_02, 0.240_225_25, 0.693_136_3];

/// `y / (1 + e^-x)` to 2^-16 of `y`: what gates and activations take, whose results are rounded to bf16 by the next product.
///
/// As [`sigmoid`], with two terms of each number at most, and powers of two instead of `e`.
pub fn gated<L: Lanes>(l: &mut L, x: L::Float, y: L::Float) -> L::Float {
    let x = hold(l, x, -87.0, 87.0);
    let [e0, e1, _] = three_terms(-std::f32::consts::LOG2_E);
    let x = leading(l, x);
    let (crossed, straight) = (l.pair(e1, e0), l.pair(e0, e1));
    let scaled = l.multiply(x, crossed);
    let scaled = l.multiply_add(scaled, x, straight);
    let whole = l.constant(WHOLE);
    let shifted = l.add(scaled, whole);
    let n = l.sub(shifted, whole);
    let f = l.sub(scaled, n);
    let (bits, bias) = (l.bits(shifted), l.word(WHOLE.to_bits()));
    let power = l.sub_words(bits, bias);
    let exponent = l.shift_left(power, 23);
    // 2^f by Horner's rule.
    let f = both_orders(l, f);
    let [highest, ..] = three_terms(POWERS[0]);
    let (highest, next) = (l.pair(highest, highest), l.constant(POWERS[1]));
    let sum = l.multiply_add(next, f[0], highest);
    let (sum, next) = (l.narrow(sum, sum), l.constant(POWERS[2]));
    let mut sum = l.multiply_add(next, sum, f[0]);
    let one = l.constant(1.0);
    let next = l.constant(POWERS[3]);
    for next in [next, one] {
        let terms = leading(l, sum);
        sum = add_product2(l, next, terms, f);
    }
    let mantissa = l.bits(sum);
    let e = l.add_words(mantissa, exponent);
    let e = l.float(e);
    let divisor = l.add(e, one);
    let share = short_reciprocal(l, divisor);
    let (share, y) = (leading(l, share), both_orders(l, y));
    product2(l, share, y)
}

/// The normal distribution below `-z` is `e^(-z^2/2)` times this of `1 / (1 + ERF_SLOPE z)`, by Abramowitz and Stegun 7.1.26, to
/// 7.5e-8.
pub fn normal_tail<L: Lanes>(l: &mut L, t: L::Float) -> L::Float {
    // The terms are larger than their sum, so that all products are whole ones.
    let t = l.three_terms(t);
    let mut sum = l.constant(TAIL[0]);
    for coefficient in &TAIL[1..] {
        let terms = l.three_terms(sum);
        let product = product_of(l, terms, t);
        let next = l.constant(*coefficient);
        sum = l.add(product, next);
    }
    let terms = l.three_terms(sum);
    product_of(l, terms, t)
}

/// The argument of [`normal_tail`], and halves of the formula's coefficients.
pub const ERF_SLOPE: f32 = 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2;
const TAIL: [f32; 5] = [0.530_702_7, -0.726_576, 0.710_706_9, -0.142_248_36, 0.127_414_8];
