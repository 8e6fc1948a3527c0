//! The parts of several cores become one result.

use super::emit::{Kernel, SIGN, SUM, VALUES, by_head, ordered};
use super::parameters::Parameter;
use super::softmax::{SAME_HEAD, multiply_values};
use crate::codegen::{Address, CoreBuilder, Reg};
use crate::numerics::{Lanes, Unit, Vectors, exponential, product, quotient};

/// A maximum below this is that of keys that are all masked: with minus infinity, which is -65,536 here.
const MASKED: f32 = -60_000.0;

/// Adds the part at `part` to the state at `state`.
pub(in crate::families) fn join<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, part: Reg, state: Reg) {
    let (from, to) = (k.pointer(b, k.arriving, part), k.pointer(b, k.state, state));
    let mut l = k.lanes(b);
    let [theirs, ours] = [from, to].map(|pointer| l.load_words(pointer, Address::At(0)));
    let (x, y) = (ordered(&mut l, theirs), ordered(&mut l, ours));
    let most = l.max_words(x, y);
    let most = ordered(&mut l, most);
    l.store_words(most, to, Address::At(0));
    let most = l.float(most);
    let [theirs, ours] = [theirs, ours].map(|maximum| {
        let maximum = l.float(maximum);
        let below = l.sub(most, maximum);
        exponential::exp_of_negative_coarse(&mut l, below)
    });
    let [their_sum, our_sum] = [from, to].map(|pointer| l.load(pointer, Address::At(SUM)));
    let their_sum = product::product(&mut l, their_sum, theirs);
    let our_sum = product::product(&mut l, our_sum, ours);
    let sum = l.add(their_sum, our_sum);
    l.store(sum, to, Address::At(SUM));
    let [theirs, ours] = [theirs, ours].map(|factor| {
        let factor = by_head(&mut l, factor);
        product::both_orders(&mut l, factor)
    });
    let b = l.builder();
    for pointer in [from, to] {
        b.advance(pointer, i64::from(VALUES));
    }
    let count = k.count(b, Parameter::ValueFours, 4);
    b.name_loop("parts joined");
    b.repeat(count, |b| {
        let mut l = k.lanes(b);
        let [x, y] = [from, to].map(|pointer| l.load(pointer, Address::At(0)));
        let (x, y) = (product::leading(&mut l, x), product::leading(&mut l, y));
        let x = product::product2(&mut l, x, theirs);
        let sum = product::add_product2(&mut l, x, y, ours);
        l.store(sum, to, Address::Then(64));
        l.builder().advance(from, 64);
    });
}

/// Divides the values of the state at `state` by the sums of their heads; all of it is 0 where all keys are masked.
pub(in crate::families) fn divide<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, state: Reg) {
    let at = k.pointer(b, k.state, state);
    let mut l = k.lanes(b);
    let mut sum = l.load(at, Address::At(SUM));
    for bytes in SAME_HEAD {
        let bits = l.bits(sum);
        let turned = l.turned(bits, bytes);
        let turned = l.float(turned);
        sum = l.add(sum, turned);
    }
    let share = quotient::reciprocal(&mut l, sum);
    let (share, most) = (l.bits(share), l.load_words(at, Address::At(0)));
    let (most, zero) = (ordered(&mut l, most), l.word(0));
    let bound = l.word(SIGN.wrapping_sub(MASKED.to_bits()));
    let all_masked = l.less(most, bound);
    let share = l.select(share, zero, all_masked);
    let share = l.float(share);
    let share = by_head(&mut l, share);
    let share = product::both_orders(&mut l, share);
    let b = l.builder();
    b.name_loop("values divided");
    multiply_values(b, k, at, share);
}
