//! Square roots.

use super::Lanes;
use super::product::{both_orders, leading, product, product2, split};

/// `1 / sqrt(x)` for numbers in [2^-126, 2^108), to about two units in the last place. Beyond, the second term of the square of the
/// result is too small for a normal number.
///
/// Half the bits of `x` below a constant are within 3.5 % of it. Twice `y (1 + e/2 + 3/8 e^2)` with `e = 1 - x y^2`.
pub fn reciprocal_root<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let (bits, even) = (l.bits(x), l.word(!1));
    let bits = l.and(bits, even);
    let half = l.shift_right(bits, 1);
    let magic = l.word(0x5f37_59df);
    let mut y = l.sub_words(magic, half);
    let terms = split(l, x);
    for _ in 0..2 {
        let guess = l.float(y);
        let [x0, x1, x2] = terms.numbers();
        let (y2, zero, one) = (l.narrow(guess, guess), l.constant(0.0), l.constant(1.0));
        let y_zero = l.narrow(guess, zero);
        // Of a bf16 the square has 16 bits: two terms.
        let square = l.multiply(y2, y_zero);
        let first = l.head(square);
        let rest = l.sub(square, first);
        let (straight, crossed, single) = (l.narrow(square, rest), l.narrow(rest, square), l.narrow(square, zero));
        let (leading_terms, last) = (l.narrow(x0, x1), l.narrow(x2, zero));
        let e = l.multiply_sub(one, leading_terms, straight);
        let e = l.multiply_sub(e, leading_terms, crossed);
        let e = l.multiply_sub(e, last, single);
        // e/2 + 3/8 e^2.
        let three_eighths = l.pair(0x3ec0, 0);
        let e_e = l.narrow(e, e);
        let curve = l.multiply(e_e, three_eighths);
        let half = l.constant(0.5);
        let slope = l.add(curve, half);
        let slope = leading(l, slope);
        let e = both_orders(l, e);
        let t = product2(l, slope, e);
        let t = leading(l, t);
        let guess = l.head(guess);
        let better = l.multiply_add(guess, t, y2);
        y = l.bits(better);
    }
    l.float(y)
}

/// `sqrt(x)` for numbers in [0, 2^108), to about three units in the last place.
pub fn root<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let inverse = reciprocal_root(l, x);
    let result = product(l, x, inverse);
    let (bits, result) = (l.bits(x), l.bits(result));
    let (normal, zero) = (l.word(0x0080_0000), l.word(0));
    let none = l.less(bits, normal);
    let result = l.select(result, zero, none);
    l.float(result)
}
