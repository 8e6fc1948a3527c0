//! Sines and cosines.

use super::product::{both_orders, leading, polynomial, product2, split};
use super::{Lanes, terms};

const WHOLE: f32 = 12_582_912.0;

/// Quarters of a turn in a radian.
pub const QUARTERS_PER_RADIAN: f64 = std::f64::consts::FRAC_2_PI;

/// The fraction of an angle in quarters of a turn, within [-0.5, 0.5], and the number of quarters modulo 4.
pub struct Angle<L: Lanes> {
    fraction: L::Float,
    quarters: L::Word,
}

/// `x * factor`, in quarters of a turn, with the four terms `f` of the factor as the pairs `f0, 0`, `f1, f0`, `f2, f0` and `f1, f3`. The
/// whole quarters are taken away before the smaller products are added, so that little is lost of the fraction as long as the angle
/// has less than 2^15 quarters.
pub fn angle<L: Lanes>(l: &mut L, x: L::Float, factor: [L::Pair; 4]) -> Angle<L> {
    let [x0, x1, x2] = split(l, x).numbers();
    let whole = l.constant(WHOLE);
    let zero = l.constant(0.0);
    let [first, second, third, fourth] = factor;
    let alone = l.narrow(x0, zero);
    let bias = l.word(WHOLE.to_bits());
    // x0 f0, exactly.
    let mut fraction = l.multiply(alone, first);
    let shifted = l.add(fraction, whole);
    let n = l.sub(shifted, whole);
    fraction = l.sub(fraction, n);
    let bits = l.bits(shifted);
    let mut quarters = l.sub_words(bits, bias);
    // x0 f1 + x1 f0, then the rest.
    let leading_terms = l.narrow(x0, x1);
    let crossed = l.multiply_add(fraction, leading_terms, second);
    let ends = l.narrow(x0, x2);
    let sum = l.multiply_add(crossed, ends, third);
    let last = l.narrow(x1, x0);
    let sum = l.multiply_add(sum, last, fourth);
    let shifted = l.add(sum, whole);
    let n = l.sub(shifted, whole);
    fraction = l.sub(sum, n);
    let bits = l.bits(shifted);
    let more = l.sub_words(bits, bias);
    quarters = l.add_words(quarters, more);
    Angle { fraction, quarters }
}

/// The terms of a constant factor as [`angle`] wants them.
pub fn factor<L: Lanes>(l: &mut L, x: f64) -> [L::Pair; 4] {
    let [f0, f1, f2, f3] = terms(x);
    [l.pair(f0, 0), l.pair(f1, f0), l.pair(f2, f0), l.pair(f1, f3)]
}

/// `sin(pi/2 r) / r` and `cos(pi/2 r)` in powers of `r^2` up to 1/4, at the Chebyshev nodes; errors below 6e-8 and 7e-9.
const SINE: [f32; 4] = [-0.004_602_149, 0.079_680_22, -0.645_963_5, 1.570_796_4];
const COSINE: [f32; 5] = [0.000_903_628_07, -0.020_860_07, 0.253_669_2, -1.233_700_5, 1.0];

impl<L: Lanes> Angle<L> {
    /// Adds whole quarters of a turn.
    pub fn turn(&mut self, l: &mut L, quarters: L::Word) {
        self.quarters = l.add_words(self.quarters, quarters);
    }
}

/// Sine and cosine of the fraction of an angle, without its whole quarters.
fn of_fraction<L: Lanes>(l: &mut L, fraction: L::Float) -> (L::Word, L::Word) {
    let r = both_orders(l, fraction);
    let square = product2(l, r[0], r);
    let square = both_orders(l, square);
    // sin(pi/2 r) = r s(r^2), cos(pi/2 r) = c(r^2).
    let s = polynomial(l, square, &SINE, 0);
    let s = leading(l, s);
    let sine = product2(l, s, r);
    let cosine = polynomial(l, square, &COSINE, 0);
    (l.bits(sine), l.bits(cosine))
}

/// What an odd number of quarters exchanges, with the sign that the second bit gives.
fn turned<L: Lanes>(l: &mut L, quarters: L::Word, even: L::Word, odd: L::Word) -> L::Float {
    let (one, two) = (l.word(1), l.word(2));
    let low = l.and(quarters, one);
    let is_even = l.less(low, one);
    let chosen = l.select(odd, even, is_even);
    let sign = l.and(quarters, two);
    let sign = l.shift_left(sign, 30);
    let result = l.add_words(chosen, sign);
    l.float(result)
}

/// The sine of an angle.
pub fn sine<L: Lanes>(l: &mut L, angle: &Angle<L>) -> L::Float {
    let (s, c) = of_fraction(l, angle.fraction);
    turned(l, angle.quarters, s, c)
}

/// Sine and cosine of an angle.
pub fn sine_and_cosine<L: Lanes>(l: &mut L, angle: &Angle<L>) -> (L::Float, L::Float) {
    let (s, c) = of_fraction(l, angle.fraction);
    let sine = turned(l, angle.quarters, s, c);
    let one = l.word(1);
    let next = l.add_words(angle.quarters, one);
    (sine, turned(l, next, s, c))
}

/// Sine and cosine of radians.
pub fn of_radians<L: Lanes>(l: &mut L, x: L::Float) -> (L::Float, L::Float) {
    let factor = factor(l, QUARTERS_PER_RADIAN);
    let angle = angle(l, x, factor);
    sine_and_cosine(l, &angle)
}
