//! Online softmax: the maximum and the sum of a token's four heads so far, and the exponentials of a tile.
//!
//! Lanes of scores are four keys x four heads: heads are innermost. Maxima of four lanes apart are joined by rotations, so that all
//! lanes of a head have its maximum. Sums stay apart until the end.

use super::emit::{Kernel, LOWEST, SUM, VALUES, by_head, numbers, ordered, rotated, words};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::numerics::{Lanes, exponential, product};

/// Lanes of the same head are four and eight apart.
pub(super) const SAME_HEAD: [i64; 2] = [32, 16];

/// One lane of each head.
const FIRST_LANES: i64 = 0xF;

/// Sets a unit's state to that of no keys.
pub(super) fn begin(b: &mut CoreBuilder, k: Kernel, state: Reg) {
    let [lowest, zero] = [LOWEST, 0.0].map(|number| splat(b, number));
    begin_with(b, k, state, [lowest, zero]);
}

/// As [`begin`], but of a key without value whose scores, the heads' sinks, are at an address.
pub(super) fn begin_with_sinks(b: &mut CoreBuilder, k: Kernel, sinks: Reg, state: Reg) {
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
pub(super) fn exponentials(b: &mut CoreBuilder, k: Kernel, state: Reg) {
    let at = k.pointer(b, k.state, state);
    let old = words(b, at, 0);
    let largest = largest(b, k, old);
    b.store(largest, at, Address::At(0));
    let mut l = k.lanes(b);
    let (old, maximum) = (l.float(old), l.float(largest));
    let risen = l.sub(maximum, old);
    let factor = exponential::exp_of_negative_coarse(&mut l, risen);
    let sum = numbers(b, at, SUM);
    let mut l = k.lanes(b);
    let scaled = product::product(&mut l, sum, factor);
    b.mov(sum, scaled);
    scale_values(b, k, at, factor);

    let [low, high] = powers(b, k);
    let from = k.pointer_to(b, k.scores, Parameter::Scores);
    let to = k.pointer_to(b, k.exponentials, Parameter::Exponentials);
    let count = k.count(b, Parameter::Eights, 2);
    b.name_loop("exponentials");
    b.repeat(count, |b| {
        // Two vectors, whose chains of operations do not wait for each other.
        let exponentials = [(); 2].map(|()| {
            let scores = b.reg(Class::Acc512);
            b.load(scores, from, Address::Then(64));
            let mut l = k.lanes(b);
            let difference = l.sub(maximum, scores);
            exponential::exp_of_negative_coarse(&mut l, difference)
        });
        let mut l = k.lanes(b);
        // What is summed is what values are multiplied with.
        let rounded = l.narrow(exponentials[0], exponentials[1]);
        let one = l.pair(0x3f80, 0x3f80);
        let total = l.multiply_add(sum, rounded, one);
        let moved = [low, high].map(|power| l.multiply(rounded, power));
        b.mov(sum, total);
        for lanes in moved {
            let half = b.reg(Class::W);
            b.to_bf16(half, lanes);
            b.store(half, to, Address::Then(32));
        }
    });
    b.store(sum, at, Address::At(SUM));
}

/// The power of two that exponentials are multiplied with, in the lower and in the upper half of a pair; the other half is 0.
fn powers(b: &mut CoreBuilder, k: Kernel) -> [Reg; 2] {
    let powers = [(); 2].map(|()| k.splat(b, Parameter::Exponent));
    let zero = b.scalar(0);
    let zeros = b.reg(Class::X);
    b.broadcast(32, zeros, zero);
    b.mov(powers[0].hi(), zeros.hi());
    b.mov(powers[1].lo(), zeros.lo());
    powers
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
    let values = b.pointer(k.state);
    b.mov(values, state);
    b.advance(values, i64::from(VALUES));
    let mut l = k.lanes(b);
    let factor = by_head(&mut l, factor);
    let factor = product::both_orders(&mut l, factor);
    let count = k.count(b, Parameter::ValueFours, 4);
    b.name_loop("values scaled");
    b.repeat(count, |b| {
        let old = numbers(b, values, 0);
        let mut l = k.lanes(b);
        let old = product::leading(&mut l, old);
        let new = product::product2(&mut l, old, factor);
        b.store(new, values, Address::Then(64));
    });
}
