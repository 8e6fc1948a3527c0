//! The logarithm.

use super::product::{add_product2, both_orders, leading, polynomial, product2};
use super::{Lanes, three_terms};

/// 2/3, from which mantissas go to 4/3.
const FROM: u32 = 0x3f2a_aaab;
/// 1.5 * 2^23, whose bits plus a whole number are the bits of their sum.
const WHOLE: f32 = 12_582_912.0;

/// `ln x` of positive normal numbers.
///
/// `x = 2^n (1 + f)` with `f` in [-1/3, 1/3), and `ln(1 + f) = f - f^2/2 + f^3 q(f)`.
pub fn log<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let (bits, from, exponent_bits) = (l.bits(x), l.word(FROM), l.word(0xff80_0000));
    let above = l.sub_words(bits, from);
    let exponent = l.and(above, exponent_bits);
    let n = l.shift_right(exponent, 23);
    let mantissa = l.sub_words(bits, exponent);
    let (mantissa, one) = (l.float(mantissa), l.constant(1.0));
    let f = l.sub(mantissa, one);
    let (whole_bits, whole) = (l.word(WHOLE.to_bits()), l.constant(WHOLE));
    let n = l.add_words(n, whole_bits);
    let n = l.float(n);
    let n = l.sub(n, whole);
    let n = l.narrow(n, n);
    let f2 = both_orders(l, f);
    let q = polynomial(l, f2, &COEFFICIENTS, 2);
    let q = leading(l, q);
    let t = product2(l, q, f2);
    let minus_half = l.constant(-0.5);
    let t = l.add(t, minus_half);
    let t = leading(l, t);
    let t = product2(l, t, f2);
    let t = leading(l, t);
    let [l0, l1, l2] = three_terms(std::f32::consts::LN_2);
    let (first, others) = (l.pair(l0, 0), l.pair(l1, l2));
    let small = add_product2(l, f, t, f2);
    let sum = l.multiply_add(small, n, others);
    l.multiply_add(sum, n, first)
}

/// `(ln(1 + f) - f + f^2 / 2) / f^3` at the Chebyshev nodes of [-1/3, 1/3]; the error of the logarithm is below 2e-8 of it.
const COEFFICIENTS: [f32; 8] =
    [-0.121_255_81, 0.134_257_5, -0.123_461_9, 0.141_183_1, -0.166_701_4, 0.200_037_8, -0.249_999_88, 0.333_333_2];
