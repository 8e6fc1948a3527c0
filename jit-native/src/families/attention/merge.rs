//! The parts of several cores become one result.

use super::emit::{Kernel, SIGN, SUM, VALUES, by_head, numbers, ordered, rotated, words};
use super::parameters::Parameter;
use super::softmax::{SAME_HEAD, multiply_values};
use crate::codegen::{Address, CoreBuilder, Reg};
use crate::numerics::{Lanes, exponential, product, quotient};

/// A maximum below this is that of keys that are all masked: with minus infinity, which is -65,536 here.
const MASKED: f32 = -60_000.0;

/// Adds the part at `part` to the state at `state`.
pub(in crate::families) fn join(b: &mut CoreBuilder, k: Kernel, part: Reg, state: Reg) {
    let (from, to) = (k.pointer(b, k.arriving, part), k.pointer(b, k.state, state));
    let (theirs, ours) = (words(b, from, 0), words(b, to, 0));
    let mut l = k.lanes(b);
    let (x, y) = (ordered(&mut l, theirs), ordered(&mut l, ours));
    let most = l.max_words(x, y);
    let most = ordered(&mut l, most);
    l.builder.store(most, to, Address::At(0));
    let most = l.float(most);
    let [theirs, ours] = [theirs, ours].map(|maximum| {
        let maximum = l.float(maximum);
        let below = l.sub(most, maximum);
        exponential::exp_of_negative_coarse(&mut l, below)
    });
    let (their_sum, our_sum) = (numbers(b, from, SUM), numbers(b, to, SUM));
    let mut l = k.lanes(b);
    let their_sum = product::product(&mut l, their_sum, theirs);
    let our_sum = product::product(&mut l, our_sum, ours);
    let sum = l.add(their_sum, our_sum);
    l.builder.store(sum, to, Address::At(SUM));
    let [theirs, ours] = [theirs, ours].map(|factor| {
        let factor = by_head(&mut l, factor);
        product::both_orders(&mut l, factor)
    });
    for pointer in [from, to] {
        b.advance(pointer, i64::from(VALUES));
    }
    let count = k.count(b, Parameter::ValueFours, 4);
    b.name_loop("parts joined");
    b.repeat(count, |b| {
        let (x, y) = (numbers(b, from, 0), numbers(b, to, 0));
        let mut l = k.lanes(b);
        let (x, y) = (product::leading(&mut l, x), product::leading(&mut l, y));
        let x = product::product2(&mut l, x, theirs);
        let sum = product::add_product2(&mut l, x, y, ours);
        b.advance(from, 64);
        b.store(sum, to, Address::Then(64));
    });
}

/// Divides the values of the state at `state` by the sums of their heads; all of it is 0 where all keys are masked.
pub(in crate::families) fn divide(b: &mut CoreBuilder, k: Kernel, state: Reg) {
    let at = k.pointer(b, k.state, state);
    let mut sum = numbers(b, at, SUM);
    let mut l = k.lanes(b);
    for bytes in SAME_HEAD {
        let bits = l.bits(sum);
        let turned = rotated(&mut l, bits, bytes);
        let turned = l.float(turned);
        sum = l.add(sum, turned);
    }
    let share = quotient::reciprocal(&mut l, sum);
    let (share, most) = (l.bits(share), words(l.builder, at, 0));
    let (most, zero) = (ordered(&mut l, most), l.word(0));
    let bound = l.word(SIGN.wrapping_sub(MASKED.to_bits()));
    let all_masked = l.less(most, bound);
    let share = l.select(share, zero, all_masked);
    let share = l.float(share);
    let share = by_head(&mut l, share);
    let share = product::both_orders(&mut l, share);
    b.name_loop("values divided");
    multiply_values(b, k, at, share);
}
