//! Online softmax: the maximum and the sum of a token's four heads so far, and the exponentials of a tile.
//!
//! Lanes of scores are four keys x four heads: heads are innermost. Maxima of four lanes apart are joined by rotations, so that all
//! lanes of a head have its maximum. Sums stay apart until the end.
//!
//! An exponential is a mantissa between 0.7 and 1.42, rounded to bf16, to whose bits the exponent is added: 2^7 times a whole number, which are
//! the last bits of that number's sum with 1.5 * 2^16. So nothing moves from accumulators to vectors but by rounding. Where scores
//! do not exceed the maximum so far, which is most tiles of a long context, sums stay as they are.

use super::emit::{Kernel, LOWEST, SUM, VALUES, by_head, numbers, ordered, rotated, words};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::numerics::{Lanes, exponential, product, terms};

/// Scores that are further below the maximum than this count as if they were that far: e^-84 of the largest.
const MOST_BELOW: f32 = 84.0;
/// Bound of the second term of numbers up to that: it is less than 2^-8 of them.
const BEYOND: f32 = 0.5;

/// Lanes of the same head are four and eight apart.
pub(in crate::families) const SAME_HEAD: [i64; 2] = [32, 16];

/// One lane of each head.
const FIRST_LANES: i64 = 0xF;

/// Sets a unit's state to that of no keys.
pub(in crate::families) fn begin(b: &mut CoreBuilder, k: Kernel, state: Reg) {
    let [lowest, zero] = [LOWEST, 0.0].map(|number| splat(b, number));
    begin_with(b, k, state, [lowest, zero]);
}

/// As [`begin`], but of a key without value whose scores, the heads' sinks, are at an address.
pub(in crate::families) fn begin_with_sinks(b: &mut CoreBuilder, k: Kernel, sinks: Reg, state: Reg) {
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

fn begin_with(b: &mut CoreBuilder, k: Kernel, state: Reg, [most, sum]: [Reg; 2]) {
    let (at, zero) = (k.pointer(b, k.state, state), splat(b, 0.0));
    b.store(most, at, Address::Then(SUM));
    b.store(sum, at, Address::Then(i64::from(VALUES) - SUM));
    let fours = k.count(b, Parameter::ValueFours, 4);
    b.repeat(fours, |b| b.store(zero, at, Address::Then(64)));
}

/// Brings the state to the maximum that the scores of a tile raise it to, and puts their exponentials in bf16.
pub(in crate::families) fn exponentials(b: &mut CoreBuilder, k: Kernel, state: Reg) {
    let at = k.pointer(b, k.state, state);
    let old = words(b, at, 0);
    let largest = largest(b, k, old);
    b.store(largest, at, Address::At(0));
    let sum = numbers(b, at, SUM);
    let mut l = k.lanes(b);
    let (before, now) = (ordered(&mut l, old), ordered(&mut l, largest));
    let has_risen = l.less(before, now);
    let (old, maximum) = (l.float(old), l.float(largest));
    // What the lanes of heads that are not there hold must not decide how the others are rounded.
    let lanes = k.parameter(b, Parameter::HeadLanes);
    let has_risen = b.binary("and", has_risen, lanes);
    b.when(has_risen, |b| {
        let mut l = k.lanes(b);
        let risen = l.sub(maximum, old);
        let factor = exponential::exp_of_negative_coarse(&mut l, risen);
        let scaled = product::product(&mut l, sum, factor);
        b.mov(sum, scaled);
        scale_values(b, k, at, factor);
    });

    let from = k.pointer_to(b, k.scores, Parameter::Scores);
    let to = k.pointer_to(b, k.exponentials, Parameter::Exponentials);
    let (unit, powers) = (k.splat(b, Parameter::Unit), k.splat(b, Parameter::Powers));
    let none = b.reg(Class::Shift);
    b.constant_into(none, 0);
    let mut l = k.lanes(b);
    let (powers, binary) = (l.float(powers), exponential::BinaryOf::new(&mut l));
    // Two terms that are held apart: the first from 0 on, the second near 0 where the first is not held.
    let [[most], [second]] = [MOST_BELOW, BEYOND].map(|bound| terms(bound.into()));
    let (most, least) = (l.pair(most, second), l.pair(0, second | 0x8000));
    let count = k.count(b, Parameter::Eights, 2);
    b.name_loop("exponentials");
    b.repeat(count, |b| {
        let (wide, exponents) = (b.reg(Class::Acc1024), b.reg(Class::X));
        let mantissas = [wide.lo(), wide.hi()].map(|power| {
            let scores = b.reg(Class::Acc512);
            b.load(scores, from, Address::Then(64));
            let mut l = k.lanes(b);
            let below = l.sub(maximum, scores);
            let below = product::leading(&mut l, below);
            let below = l.compared_lanes("vmin_ge.bf16", below, most);
            let below = l.compared_lanes("vmax_lt.bf16", below, least);
            let exponential::Binary { n, mantissa, .. } = binary.of(&mut l, below);
            let sum = l.add(n, powers);
            l.builder.mov(power, sum);
            mantissa
        });
        b.emit("vsrs.s16.s32", [exponents, wide, none]);
        let mut l = k.lanes(b);
        let mantissas = l.narrow(mantissas[0], mantissas[1]);
        let result = b.reg(Class::X);
        b.emit("vadd.16", [result, mantissas, exponents]);
        // What is summed is what values are multiplied with.
        let mut l = k.lanes(b);
        let total = l.multiply_add(sum, result, unit);
        b.mov(sum, total);
        b.store(result, to, Address::Then(64));
    });
    b.store(sum, at, Address::At(SUM));
}

/// The largest score of each head, in all of its lanes, or the one before.
fn largest(b: &mut CoreBuilder, k: Kernel, old: Reg) -> Reg {
    let from = k.pointer_to(b, k.scores, Parameter::Scores);
    let most = {
        let mut l = k.lanes(b);
        ordered(&mut l, old)
    };
    let count = k.count(b, Parameter::Fours, 4);
    b.name_loop("maximum");
    b.repeat(count, |b| {
        let scores = b.reg(Class::X);
        b.load(scores, from, Address::Then(64));
        let mut l = k.lanes(b);
        let scores = ordered(&mut l, scores);
        let larger = l.max_words(most, scores);
        b.mov(most, larger);
    });
    let mut l = k.lanes(b);
    let mut most = most;
    for bytes in SAME_HEAD {
        let turned = rotated(&mut l, most, bytes);
        most = l.max_words(most, turned);
    }
    ordered(&mut l, most)
}

/// Multiplies the values of a state, which begins at the pointer, with a factor for each head.
fn scale_values(b: &mut CoreBuilder, k: Kernel, state: Reg, factor: Reg) {
    let mut l = k.lanes(b);
    let factor = by_head(&mut l, factor);
    let factor = product::both_orders(&mut l, factor);
    b.name_loop("values scaled");
    multiply_values(b, k, state, factor);
}

/// Multiplies the values of a state, which begins at the pointer, with a factor of which each vector has two terms in both orders.
pub(in crate::families) fn multiply_values(b: &mut CoreBuilder, k: Kernel, state: Reg, factor: [Reg; 2]) {
    // Each vector is read before it is written, and none is read again here.
    let [from, to] = [k.state, k.scaled].map(|region| {
        let values = b.pointer(region);
        b.mov(values, state);
        b.advance(values, i64::from(VALUES));
        values
    });
    let count = k.count(b, Parameter::ValueFours, 4);
    b.repeat(count, |b| {
        let old = b.reg(Class::Acc512);
        b.load(old, from, Address::Then(64));
        let mut l = k.lanes(b);
        let old = product::leading(&mut l, old);
        let new = product::product2(&mut l, old, factor);
        b.store(new, to, Address::Then(64));
    });
}
