//! Reciprocals and quotients.

use super::Lanes;
use super::product::{Terms, leading, product, split};

/// `1 / d` for `d` in [2^-126, 2^126), to about one unit in the last place; other numbers give something finite.
///
/// The difference of a constant and the bits of `d` is within 12 % of the reciprocal's. Twice `y (1 + e + e^2)` with
/// `e = 1 - d y`, whose error is `e^3`, and `y` rounded to bf16 before, so that `d y` is exact.
pub fn reciprocal<L: Lanes>(l: &mut L, d: L::Float) -> L::Float {
    let (bits, magic) = (l.bits(d), l.word(0x7ef3_11c3));
    let guess = l.sub_words(magic, bits);
    let guess = l.float(guess);
    let terms = split(l, d);
    let better = improved(l, guess, terms);
    improved(l, better, terms)
}

fn improved<L: Lanes>(l: &mut L, y: L::Float, d: Terms<L::Float>) -> L::Float {
    let [d0, d1, d2] = d.numbers();
    let (y2, one, zero) = (l.narrow(y, y), l.constant(1.0), l.constant(0.0));
    let (leading_terms, last) = (l.narrow(d0, d1), l.narrow(d2, zero));
    let e = l.multiply_sub(one, leading_terms, y2);
    let e = l.multiply_sub(e, last, y2);
    // e + e^2; its square needs one term only.
    let (e_zero, e_e) = (l.narrow(e, zero), l.narrow(e, e));
    let t = l.multiply_add(e, e_zero, e_e);
    let t = leading(l, t);
    let y = l.head(y);
    l.multiply_add(y, t, y2)
}

/// `1 / d` as [`reciprocal`], to 2^-16 only: two terms of `d`, and one of the first correction.
pub fn short_reciprocal<L: Lanes>(l: &mut L, d: L::Float) -> L::Float {
    let (bits, magic) = (l.bits(d), l.word(0x7ef3_11c3));
    let guess = l.sub_words(magic, bits);
    let guess = l.float(guess);
    let terms = leading(l, d);
    let (one, zero) = (l.constant(1.0), l.constant(0.0));
    let mut y = guess;
    for last in [false, true] {
        let y2 = l.narrow(y, y);
        let e = l.multiply_sub(one, terms, y2);
        let (e_zero, e_e) = (l.narrow(e, zero), l.narrow(e, e));
        let t = l.multiply_add(e, e_zero, e_e);
        let t = if last { leading(l, t) } else { l.narrow(t, zero) };
        let head = l.head(y);
        y = l.multiply_add(head, t, y2);
    }
    y
}

/// `x / d` to about three units in the last place; infinite, with the sign of the quotient, where `d` is zero.
pub fn quotient<L: Lanes>(l: &mut L, x: L::Float, d: L::Float) -> L::Float {
    let inverse = reciprocal(l, d);
    let q = product(l, x, inverse);
    let (x, d, q) = (l.bits(x), l.bits(d), l.bits(q));
    let (sign, magnitude) = (l.word(0x8000_0000), l.word(0x7f80_0000));
    let size = l.and(d, magnitude);
    let (x, d) = (l.and(x, sign), l.and(d, sign));
    let signs = l.add_words(x, d);
    let infinite = l.or(signs, magnitude);
    let one = l.word(1);
    let zero = l.less(size, one);
    let q = l.select(q, infinite, zero);
    l.float(q)
}
