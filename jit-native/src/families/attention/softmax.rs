//! Online softmax: the maximum and the sum of a token's four heads so far, and the exponentials of a tile.
//!
//! Lanes of scores are four keys x four heads: heads are innermost. Maxima of four lanes apart are joined by rotations, so that all
//! lanes of a head have its maximum. Sums stay apart until the end.
//!
//! An exponential is a mantissa between 0.7 and 1.42, rounded to bf16, to whose bits the exponent is added: 2^7 times a whole number, which are
//! the last bits of that number's sum with 1.5 * 2^16. So nothing moves from accumulators to vectors but by rounding. Where scores
//! do not exceed the maximum so far, which is most tiles of a long context, sums stay as they are.

use super::emit::{Kernel, LOWEST, SUM, VALUES, by_head, ordered, words};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::numerics::{HalfWords, Lanes, Unit, Vectors, exponential, product, terms};

/// Scores that are further below the maximum than this count as if they were that far: e^-84 of the largest.
const MOST_BELOW: f32 = 84.0;
/// Bound of the second term of numbers up to that: it is less than 2^-8 of them.
const BEYOND: f32 = 0.5;

/// Lanes of the same head are four and eight apart.
pub(in crate::families) const SAME_HEAD: [i64; 2] = [32, 16];

/// One lane of each head.
const FIRST_LANES: i64 = 0xF;

/// Sets a unit's state to that of no keys.
pub(in crate::families) fn begin<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, state: Reg) {
    let [lowest, zero] = [LOWEST, 0.0].map(|number| splat(b, number));
    begin_with(b, k, state, [lowest, zero]);
}

/// As [`begin`], but of a key without value whose scores, the heads' sinks, are at an address.
pub(in crate::families) fn begin_with_sinks<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, sinks: Reg, state: Reg) {
    let from = k.pointer(b, k.arriving, sinks);
    let sinks = words(b, from, 0);
    // Lanes of a head are added in the end.
    let [zero, one] = [0.0, 1.0].map(|number| splat(b, number));
    let (once, first) = (b.reg(Class::X), b.scalar(FIRST_LANES));
    b.select_lanes(32, once, zero, one, first);
    begin_with(b, k, state, [sinks, once]);
}

fn splat(b: &mut CoreBuilder, number: f32) -> Reg {
    let (scalar, vector) = (b.scalar(number.to_bits().into()), b.reg(Class::X));
    b.broadcast(32, vector, scalar);
    vector
}

fn begin_with<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, state: Reg, [most, sum]: [Reg; 2]) {
    let (at, zero) = (k.pointer(b, k.state, state), splat(b, 0.0));
    b.store(most, at, Address::Then(SUM));
    b.store(sum, at, Address::Then(i64::from(VALUES) - SUM));
    let fours = k.count(b, Parameter::ValueFours, 4);
    b.repeat(fours, |b| b.store(zero, at, Address::Then(64)));
}

/// Brings the state to the maximum that the scores of a tile raise it to, and puts their exponentials in bf16.
pub(in crate::families) fn exponentials<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, state: Reg) {
    let at = k.pointer(b, k.state, state);
    let old = k.lanes(b).load_words(at, Address::At(0));
    let largest = largest(b, k, old);
    let mut l = k.lanes(b);
    l.store_words(largest, at, Address::At(0));
    let (before, now) = (ordered(&mut l, old), ordered(&mut l, largest));
    let has_risen = l.less(before, now);
    let has_risen = l.mask_bits(has_risen);
    // What the lanes of heads that are not there hold must not decide how the others are rounded.
    let b = l.builder();
    let lanes = k.parameter(b, Parameter::HeadLanes);
    let has_risen = b.binary("and", has_risen, lanes);
    b.when(has_risen, |b| {
        let mut l = k.lanes(b);
        let (old, maximum) = (l.float(old), l.float(largest));
        let risen = l.sub(maximum, old);
        let factor = exponential::exp_of_negative_coarse(&mut l, risen);
        let sum = l.load(at, Address::At(SUM));
        let scaled = product::product(&mut l, sum, factor);
        l.store(scaled, at, Address::At(SUM));
        scale_values(l.builder(), k, at, factor);
    });

    let from = k.pointer_to(b, k.scores, Parameter::Scores);
    let to = k.pointer_to(b, k.exponentials, Parameter::Exponentials);
    let (unit, powers) = (k.splat(b, Parameter::Unit), k.parameter(b, Parameter::Powers));
    let mut l = k.unit.two(b);
    let sum = l.zeros();
    let constants = U::HOLDS_CONSTANTS.then(|| Constants::new(&mut l, at, powers));
    let b = l.builder();
    let count = k.count(b, Parameter::Eights, 2);
    HalfWords::around(b, |b, _| {
        b.name_loop("exponentials");
        b.repeat(count, |b| {
            let mut l = k.unit.two(b);
            // Each is made where it is used, if they are not there. What is made and not used is left out.
            let of = |l: &mut U::Two<'_>| constants.unwrap_or_else(|| Constants::new(l, at, powers));
            let scores = l.load(from, Address::Then(64));
            let maximum = of(&mut l).maximum;
            let below = l.sub(maximum, scores);
            let below = product::leading(&mut l, below);
            let Constants { least, most, .. } = of(&mut l);
            let below = l.held(below, least, most);
            let binary = constants.map(|constants| constants.binary);
            let exponential::Binary { n, mantissa, .. } = exponential::BinaryOf::of(binary, &mut l, below);
            let powers = of(&mut l).powers;
            let exponents = l.add(n, powers);
            let b = l.builder();
            let result = k.unit.with_exponents(b, mantissa, exponents);
            // What is summed is what values are multiplied with.
            k.unit.add_products(b, sum, result, unit);
            b.store(result, to, Address::Then(64));
        });
    });
    let sum = k.unit.joined(b, sum);
    let mut l = k.lanes(b);
    let before = l.load(at, Address::At(SUM));
    let sum = l.add(before, sum);
    l.store(sum, at, Address::At(SUM));
}

/// What the loop of exponentials takes beside scores.
#[derive(Clone, Copy)]
struct Constants<F, P> {
    maximum: F,
    powers: F,
    /// Bounds of two terms that are held apart: the first from 0 on, the second near 0 where the first is not held.
    least: P,
    most: P,
    binary: exponential::BinaryOf<F, P>,
}

impl<F: Copy, P: Copy> Constants<F, P> {
    /// For a state behind a pointer, whose maximum is the same in both vectors, and the number of the exponents in a scalar.
    fn new<L: Vectors<Float = F, Pair = P>>(l: &mut L, state: Reg, powers: Reg) -> Self {
        let maximum = l.load(state, Address::At(0));
        let powers = l.splat(powers);
        let powers = l.float(powers);
        let [[most], [second]] = [MOST_BELOW, BEYOND].map(|bound| terms(bound.into()));
        let (most, least) = (l.pair(most, second), l.pair(0, second | 0x8000));
        Self { maximum, powers, least, most, binary: exponential::BinaryOf::new(l) }
    }
}

/// The largest score of each head, in all of its lanes, or the one before.
fn largest<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, old: U::Word) -> U::Word {
    let from = k.pointer_to(b, k.scores, Parameter::Scores);
    let count = k.count(b, Parameter::Fours, 4);
    let mut l = k.lanes(b);
    let most = ordered(&mut l, old);
    let most = l.copy(most);
    let b = l.builder();
    b.name_loop("maximum");
    b.repeat(count, |b| {
        let mut l = k.lanes(b);
        let scores = l.load_words(from, Address::Then(64));
        let scores = ordered(&mut l, scores);
        let larger = l.max_words(most, scores);
        l.set(most, larger);
    });
    let mut l = k.lanes(b);
    let mut most = most;
    for bytes in SAME_HEAD {
        let turned = l.turned(most, bytes);
        most = l.max_words(most, turned);
    }
    ordered(&mut l, most)
}

/// Multiplies the values of a state, which begins at the pointer, with a factor for each head.
fn scale_values<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, state: Reg, factor: U::Float) {
    let mut l = k.lanes(b);
    let factor = by_head(&mut l, factor);
    let factor = product::both_orders(&mut l, factor);
    let b = l.builder();
    b.name_loop("values scaled");
    multiply_values(b, k, state, factor);
}

/// Multiplies the values of a state, which begins at the pointer, with a factor of which each vector has two terms in both orders.
pub(in crate::families) fn multiply_values<U: Unit>(
    b: &mut CoreBuilder,
    k: Kernel<U>,
    state: Reg,
    factor: [U::Pair; 2],
) {
    // Each vector is read before it is written, and none is read again here.
    let [from, to] = [k.state, k.scaled].map(|region| {
        let values = b.pointer(region);
        b.mov(values, state);
        b.advance(values, i64::from(VALUES));
        values
    });
    let count = k.count(b, Parameter::ValueFours, 4);
    b.repeat(count, |b| {
        let mut l = k.lanes(b);
        let old = l.load(from, Address::Then(64));
        let old = product::leading(&mut l, old);
        let new = product::product2(&mut l, old, factor);
        l.store(new, to, Address::Then(64));
    });
}
