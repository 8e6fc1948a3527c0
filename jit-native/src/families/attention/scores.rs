//! Scores: keys times queries, plus the mask.
//!
//! The mask is one more step of the products, unless there is a soft cap: then it is added to the scores in memory.

use super::emit::{Kernel, LOWEST};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Keys, Lanes, Unit, Vectors, exponential, product};

/// Computes the scores of a tile of keys for one token: queries at `queries`, the token's mask at `mask`.
pub(in crate::families) fn scores<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, [keys, queries, mask, slopes]: [Reg; 4]) {
    let target = k.pointer_to(b, k.scores, Parameter::Scores);
    let group = b.reg(Class::Scalar);
    b.mov(group, keys);
    let slopes = k.pointer(b, k.parameters, slopes);
    let step = k.heads.mask(b, k.placed, mask, slopes);
    let early = k.parameter(b, Parameter::MaskEarly);
    let fours = k.parameter(b, Parameter::Fours);
    let groups = b.binary("lshl", fours, -2);
    // A few elements of all keys are contiguous.
    let (next, bytes) = (b.reg(Class::Modifier), k.heads.block_bytes());
    let all = b.binary("lshl", groups, i64::from(bytes.ilog2()));
    b.mov(next, all);
    let sixteens = k.parameter(b, Parameter::QuerySteps);
    b.repeat(Count::from(groups).at_least(1), |b| {
        let sums = k.heads.zeros(b);
        let of = Keys { keys: group, cache: k.cache, queries, converted: k.converted, next, sixteens };
        k.heads.scores(b, &of, sums);
        b.when(early, |b| step.add(b, k.heads, sums));
        k.heads.store(b, sums, target);
        b.advance(target, 256);
        b.binary_into(group, "add", group, bytes);
    });
    let has_cap = k.parameter(b, Parameter::HasCap);
    b.when(has_cap, |b| cap(b, k));
    let late = k.parameter(b, Parameter::MaskLate);
    b.when(late, |b| {
        let at = k.pointer_to(b, k.scores, Parameter::Scores);
        b.name_loop("mask behind the cap");
        b.repeat(Count::from(groups).at_least(1), |b| step.add_late(b, k.heads, at));
    });
}

/// `cap * tanh(score)` of all scores, plus the cap, which is the same to a softmax: scores are twice what they would be.
fn cap<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>) {
    let at = k.pointer_to(b, k.scores, Parameter::Scores);
    let twice = k.parameter(b, Parameter::Cap);
    let mut l = k.lanes(b);
    let twice = l.splat(twice);
    let twice = l.float(twice);
    let twice = product::both_orders(&mut l, twice);
    let b = l.builder();
    let count = k.count(b, Parameter::Fours, 4);
    b.name_loop("soft cap");
    b.repeat(count, |b| {
        let mut l = k.lanes(b);
        let score = l.load(at, Address::At(0));
        let share = exponential::sigmoid(&mut l, score);
        let share = product::leading(&mut l, share);
        let score = product::product2(&mut l, share, twice);
        l.store(score, at, Address::Then(64));
    });
}

/// Leaves out the first `skip` keys of a tile, if that is positive.
pub(in crate::families) fn leave_out<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, skip: Reg) {
    let zero = b.scalar(0);
    let some = b.binary("lt", zero, skip);
    b.when(some, |b| {
        let fours = k.parameter(b, Parameter::Fours);
        let all = b.binary("lshl", fours, 2);
        let fewer = b.binary("lt", skip, all);
        let left = b.select(fewer, skip, all);
        let count = b.add(left, 3);
        let count = b.binary("lshl", count, -2);
        let target = k.pointer_to(b, k.scores, Parameter::Scores);
        let (lowest, one, four) = (b.scalar(LOWEST.to_bits().into()), b.scalar(1), b.scalar(4));
        let vector = b.reg(Class::X);
        b.broadcast(32, vector, lowest);
        b.repeat(Count::from(count).at_least(1), |b| {
            let fewer = b.binary("lt", left, four);
            let keys = b.select(fewer, left, four);
            let lanes = b.binary("lshl", keys, 2);
            let bits = b.binary("lshl", one, lanes);
            let bits = b.add(bits, -1);
            let scores = b.reg(Class::X);
            b.load(scores, target, Address::At(0));
            b.select_lanes(32, scores, scores, vector, bits);
            b.store(scores, target, Address::Then(64));
            b.emit("sub", [left, left, four]);
        });
    });
}
