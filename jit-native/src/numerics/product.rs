//! Products of f32, and polynomials.

use super::{Lanes, three_terms};

/// A number as three terms: itself (of which rounding gives the first), what the first leaves, and what the second leaves of that.
#[derive(Clone, Copy, Debug)]
pub struct Terms<F>([F; 3]);

/// Splits into three terms, which represent every number exactly.
pub fn split<L: Lanes>(l: &mut L, x: L::Float) -> Terms<L::Float> {
    Terms(l.split(x))
}

/// The two leading terms as a pair: to 2^-18 of the number.
pub fn leading<L: Lanes>(l: &mut L, x: L::Float) -> L::Pair {
    l.two_terms(x)
}

/// The two leading terms in both orders, for [`product2`].
pub fn both_orders<L: Lanes>(l: &mut L, x: L::Float) -> [L::Pair; 2] {
    let first = l.head(x);
    let rest = l.sub(x, first);
    [l.narrow(x, rest), l.narrow(rest, x)]
}

/// `a * b`, to about two units in the last place.
pub fn product<L: Lanes>(l: &mut L, a: L::Float, b: L::Float) -> L::Float {
    let (a, b) = (l.three_terms(a), l.three_terms(b));
    product_of(l, a, b)
}

/// `a * b` of numbers in their [three terms](Lanes::three_terms).
pub fn product_of<L: Lanes>(l: &mut L, [a, a_ends]: [L::Pair; 2], [b, b_ends]: [L::Pair; 2]) -> L::Float {
    let turned = l.swapped(b_ends);
    let sum = l.multiply(a_ends, turned);
    let crossed = l.swapped(b);
    let sum = l.multiply_add(sum, a, crossed);
    l.multiply_add(sum, a, b)
}

/// `x * x`, to about two units in the last place.
pub fn square<L: Lanes>(l: &mut L, x: L::Float) -> L::Float {
    let terms = l.three_terms(x);
    product_of(l, terms, terms)
}

/// `x * constant`, to about two units in the last place.
pub fn scaled<L: Lanes>(l: &mut L, x: L::Float, constant: f32) -> L::Float {
    let [c0, c1, c2] = three_terms(constant);
    let (straight, crossed, turned) = (l.pair(c0, c1), l.pair(c1, c0), l.pair(c2, c0));
    scaled_by(l, x, [straight, crossed, turned])
}

/// `x * constant`, the constant as pairs of its first and second term, of its second and first, and of its third and first.
pub fn scaled_by<L: Lanes>(l: &mut L, x: L::Float, [straight, crossed, turned]: [L::Pair; 3]) -> L::Float {
    let [leading, ends] = l.three_terms(x);
    let sum = l.multiply(ends, turned);
    let sum = l.multiply_add(sum, leading, crossed);
    l.multiply_add(sum, leading, straight)
}

/// `sum + a * b` with two terms of each, to 2^-17 of the product. `b` in both orders.
pub fn add_product2<L: Lanes>(l: &mut L, sum: L::Float, a: L::Pair, b: [L::Pair; 2]) -> L::Float {
    let sum = l.multiply_add(sum, a, b[1]);
    l.multiply_add(sum, a, b[0])
}

/// `a * b` with two terms of each, to 2^-17.
pub fn product2<L: Lanes>(l: &mut L, a: L::Pair, b: [L::Pair; 2]) -> L::Float {
    let sum = l.multiply(a, b[1]);
    l.multiply_add(sum, a, b[0])
}

/// A polynomial by Horner's rule, the coefficient of the highest power first, with `x` as two terms in both orders. Products with
/// the first `coarse` partial sums take one term of them, which is enough where they contribute little.
pub fn polynomial<L: Lanes>(l: &mut L, x: [L::Pair; 2], coefficients: &[f32], coarse: usize) -> L::Float {
    let mut sum = l.constant(coefficients[0]);
    for (step, coefficient) in coefficients[1..].iter().enumerate() {
        let next = l.constant(*coefficient);
        sum = if step < coarse {
            let both = l.narrow(sum, sum);
            l.multiply_add(next, both, x[0])
        } else {
            let terms = leading(l, sum);
            add_product2(l, next, terms, x)
        };
    }
    sum
}

impl<F: Copy> Terms<F> {
    /// The numbers whose roundings to bf16 are the terms.
    pub fn numbers(self) -> [F; 3] {
        self.0
    }
}
