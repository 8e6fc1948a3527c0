//! Scores: keys times queries, plus the mask.
//!
//! Four blocks of 4 keys are multiplied with the block of queries of each step of 8 elements. The mask is one more step: its element
//! of a key stands alone in the key's row, and is multiplied with a row of 2^112, times the slopes of heads. A soft cap comes between
//! both: then the mask is added to the scores in memory.

use super::emit::{Kernel, LOWEST, numbers};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Lanes, exponential, product};

/// Which of a pair of elements each of four keys takes, in the first word of its row: the lower one, or the upper one.
const LOWER_ROWS: i64 = 0x0101;
const UPPER_ROWS: i64 = 0x1010;
/// Lanes of the third and fourth row.
const LAST_ROWS: i64 = 0xFF00;
/// Every other lane.
const ODD_LANES: i64 = 0xAAAA;

/// Registers that place the mask of four keys.
struct MaskStep {
    pointer: Reg,
    keep: Reg,
    slopes: Reg,
    last_rows: Reg,
}

/// Computes the scores of a tile of keys for one token: queries at `queries`, the token's mask at `mask`.
pub(in crate::families) fn scores(b: &mut CoreBuilder, k: Kernel, [keys, queries, mask, slopes]: [Reg; 4]) {
    let target = k.pointer_to(b, k.scores, Parameter::Scores);
    let group = b.reg(Class::Scalar);
    b.mov(group, keys);
    let step = MaskStep::new(b, k, mask, slopes);
    let early = k.parameter(b, Parameter::MaskEarly);
    // Eight elements of all keys are contiguous.
    let (fours, next) = (k.parameter(b, Parameter::Fours), b.reg(Class::Modifier));
    let [all, groups] = [6, -2].map(|by| b.binary("lshl", fours, by));
    b.mov(next, all);
    b.repeat(Count::from(groups).at_least(1), |b| {
        let keys = k.pair_of_pointers(b, k.cache, group);
        let sums: Vec<Reg> = (0..4).map(|_| b.reg(Class::Acc512)).collect();
        sums.iter().for_each(|sum| b.emit("vclr", [*sum]));
        let lanes = k.pointer(b, k.converted, queries);
        let steps = k.count(b, Parameter::KeySteps, 2).multiple_of(2);
        b.name_loop("scores");
        b.repeat(steps, |b| {
            let rows: Vec<Reg> = (0..4).map(|_| b.reg(Class::X)).collect();
            for (pair, pointer) in rows.chunks(2).zip(keys) {
                b.load(pair[0].hi(), pointer, Address::At(32));
                b.load(pair[1].lo(), pointer, Address::At(64));
                b.load(pair[1].hi(), pointer, Address::At(96));
                b.load(pair[0].lo(), pointer, Address::ThenBy(next));
            }
            let query = b.reg(Class::X);
            b.load(query.hi(), lanes, Address::At(32));
            b.load(query.lo(), lanes, Address::Then(64));
            for (row, sum) in rows.iter().zip(&sums) {
                b.mac_f(*sum, *sum, *row, query, k.matrix);
            }
        });
        b.when(early, |b| sums.iter().for_each(|sum| step.add(b, k, *sum)));
        for (index, sum) in sums.iter().enumerate() {
            b.store(*sum, target, Address::At(64 * index as i64));
        }
        b.advance(target, 256);
        b.binary_into(group, "add", group, 256);
    });
    let has_cap = k.parameter(b, Parameter::HasCap);
    b.when(has_cap, |b| cap(b, k));
    let late = k.parameter(b, Parameter::MaskLate);
    b.when(late, |b| {
        let at = k.pointer_to(b, k.scores, Parameter::Scores);
        let count = k.count(b, Parameter::Fours, 4);
        b.name_loop("mask behind the cap");
        b.repeat(count, |b| {
            let score = numbers(b, at, 0);
            step.add(b, k, score);
            b.store(score, at, Address::Then(64));
        });
    });
}

/// `cap * tanh(score)` of all scores, plus the cap, which is the same to a softmax: scores are twice what they would be.
fn cap(b: &mut CoreBuilder, k: Kernel) {
    let at = k.pointer_to(b, k.scores, Parameter::Scores);
    let twice = k.splat(b, Parameter::Cap);
    let mut l = k.lanes(b);
    let twice = l.float(twice);
    let twice = product::both_orders(&mut l, twice);
    let count = k.count(b, Parameter::Fours, 4);
    b.name_loop("soft cap");
    b.repeat(count, |b| {
        let score = numbers(b, at, 0);
        let mut l = k.lanes(b);
        let share = exponential::sigmoid(&mut l, score);
        let share = product::leading(&mut l, share);
        let score = product::product2(&mut l, share, twice);
        b.store(score, at, Address::Then(64));
    });
}

impl MaskStep {
    fn new(b: &mut CoreBuilder, k: Kernel, mask: Reg, slopes: Reg) -> Self {
        let vector = |b: &mut CoreBuilder, word: u32| {
            let (scalar, vector) = (b.scalar(word.into()), b.reg(Class::X));
            b.broadcast(32, vector, scalar);
            vector
        };
        let (none, lower, upper) = (vector(b, 0), vector(b, 0xFFFF), vector(b, 0xFFFF_0000));
        let keep = b.reg(Class::X);
        for (from, with, rows) in [(none, lower, LOWER_ROWS), (keep, upper, UPPER_ROWS)] {
            let rows = b.scalar(rows);
            b.select_lanes(32, keep, from, with, rows);
        }
        // The slopes of four heads are two words, the same in each of eight rows.
        let slopes = k.pointer(b, k.parameters, slopes);
        let pairs = [0, 4].map(|at| {
            let (pair, vector) = (b.reg(Class::Scalar), b.reg(Class::X));
            b.load(pair, slopes, Address::At(at));
            b.broadcast(32, vector, pair);
            vector
        });
        let (rows, odd, last_rows) = (b.reg(Class::X), b.scalar(ODD_LANES), b.scalar(LAST_ROWS));
        b.select_lanes(32, rows, pairs[0], pairs[1], odd);
        Self { pointer: k.pointer(b, k.placed, mask), keep, slopes: rows, last_rows }
    }

    /// Adds the mask of the next four keys to their scores.
    fn add(&self, b: &mut CoreBuilder, k: Kernel, sum: Reg) {
        let pairs = [(); 2].map(|()| {
            let (pair, vector) = (b.reg(Class::Scalar), b.reg(Class::X));
            b.load(pair, self.pointer, Address::Then(4));
            b.broadcast(32, vector, pair);
            vector
        });
        let block = b.reg(Class::X);
        b.select_lanes(32, block, pairs[0], pairs[1], self.last_rows);
        b.emit("vband", [block, block, self.keep]);
        b.mac_f(sum, sum, block, self.slopes, k.matrix);
    }
}

/// Leaves out the first `skip` keys of a tile, if that is positive.
pub(in crate::families) fn leave_out(b: &mut CoreBuilder, k: Kernel, skip: Reg) {
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
