//! By products of lanes.
//!
//! A vector of keys has two elements of sixteen of them, one of values 32 elements of one. What a head has for them, two elements of its query or
//! one exponential, is taken from a vector and put into all lanes, and each head has an accumulator. Scores are the sums of two lanes each.
//!
//! What four heads have in a vector each is then shuffled, eight times, to vectors that have it of all four, as the rest of a program takes it.

use super::{Heads, Keys, Values};
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg, RegOrImm};
use crate::numerics::tiles::{Added, quarters};

/// Modes of shuffles: lanes of both vectors in turn, of the lower half and of the upper one.
mod mode {
    pub const MIX_16: i64 = 18;
    pub const MIX_32: [i64; 2] = [16, 17];
    pub const MIX_128: [i64; 2] = [12, 13];
}

/// Of half a vector.
const HALF_BYTES: i64 = 32;

/// A lane of a vector in all lanes.
fn spread(b: &mut CoreBuilder, mnemonic: &str, vector: Reg, lane: usize) -> Reg {
    let all = b.reg(Class::X);
    b.emit_with(mnemonic, &[all.into(), vector.into(), RegOrImm::Imm(lane as i64)]);
    all
}

/// An accumulator whose vectors are written one after the other.
fn accumulator(b: &mut CoreBuilder) -> Reg {
    let sum = b.reg(Class::Acc2048);
    b.undefined(sum);
    sum
}

/// Lanes of four vectors in turn.
fn in_turn(b: &mut CoreBuilder, [first, second, third, fourth]: [Reg; 4], modes: [i64; 2], into: [Reg; 4]) {
    let modes = modes.map(|mode| b.scalar(mode));
    let mixed = [[first, third], [second, fourth]].map(|[x, y]| {
        modes.map(|mode| {
            let mixed = b.reg(Class::X);
            b.shuffle(mixed, x, y, mode);
            mixed
        })
    });
    for (half, into) in into.chunks(2).enumerate() {
        for (into, mode) in into.iter().zip(modes) {
            b.shuffle(*into, mixed[0][half], mixed[1][half], mode);
        }
    }
}

/// Adds what is in memory to an accumulator, and stores that.
fn add_to_memory(b: &mut CoreBuilder, sum: Reg, pointer: Reg, lanes: Reg) {
    let before = b.reg(Class::Acc2048);
    let places = || (0..).step_by(64).map(Address::At);
    quarters(before).into_iter().zip(places()).for_each(|(part, at)| b.load(part, pointer, at));
    b.emit("vadd.f", [before, before, sum, lanes]);
    quarters(before).into_iter().zip(places()).for_each(|(part, at)| b.store(part, pointer, at));
    b.advance(pointer, 256);
}

/// Sixteen elements at a time: eight vectors of keys.
pub(super) fn scores(b: &mut CoreBuilder, of: &Keys, sums: [Reg; 4], lanes: Reg) {
    let (keys, queries) = (b.pointer(of.cache), b.pointer(of.converted));
    b.mov(keys, of.keys);
    b.mov(queries, of.queries);
    b.name_loop("scores");
    b.repeat(Count::from(of.sixteens).at_least(1), |b| {
        // Eight words of a head, two heads in each.
        let of_heads = [(); 2].map(|()| {
            let vector = b.reg(Class::X);
            b.load(vector, queries, Address::Then(64));
            vector
        });
        for word in 0..8 {
            let pairs = b.reg(Class::X);
            b.load(pairs, keys, Address::ThenBy(of.next));
            for (head, sum) in sums.into_iter().enumerate() {
                let query = spread(b, "vextbcst.32", of_heads[head / 2], head % 2 * 8 + word);
                b.mac_f(sum, sum, pairs, query, lanes);
            }
        }
    });
}

/// Scores of sixteen keys, by keys: of even and odd lanes of the accumulators, which are used up.
fn by_key(b: &mut CoreBuilder, sums: [Reg; 4], into: [Reg; 4]) {
    // Odd lanes go where the first one's were.
    let scores = accumulator(b);
    let parts: Vec<[Reg; 2]> = sums.iter().map(|sum| [sum.lo().lo(), sum.lo().hi()]).collect();
    Added::new(b).halved(b, &parts, [scores, sums[0]]);
    let heads = quarters(scores).map(|part| {
        let vector = b.reg(Class::X);
        b.mov(vector, part);
        vector
    });
    in_turn(b, heads, mode::MIX_32, into);
}

pub(super) fn store(b: &mut CoreBuilder, sums: [Reg; 4], pointer: Reg) {
    let vectors = [(); 4].map(|()| b.reg(Class::X));
    by_key(b, sums, vectors);
    for (at, vector) in (0..).step_by(64).zip(vectors) {
        b.store(vector, pointer, Address::At(at));
    }
}

/// 32 elements at a time.
pub(super) fn values(b: &mut CoreBuilder, heads: Heads, of: &Values) {
    let lanes = heads.configuration;
    let values = b.pointer(of.cache);
    b.mov(values, of.values);
    let groups = b.binary("lshl", of.sixteens, -1);
    b.repeat(Count::from(groups).at_least(1), |b| {
        let sums = heads.zeros(b);
        let exponentials = b.pointer(of.bf16);
        b.mov(exponentials, of.exponentials);
        b.name_loop("values");
        b.repeat(Count::from(of.eights).at_least(2).multiple_of(2), |b| {
            let keys = b.reg(Class::X);
            b.load(keys, exponentials, Address::Then(64));
            for key in 0..8 {
                let elements = b.reg(Class::X);
                b.load(elements, values, Address::Then(64));
                for (head, sum) in sums.into_iter().enumerate() {
                    let exponential = spread(b, "vextbcst.16", keys, 4 * key + head);
                    b.mac_f(sum, sum, elements, exponential, lanes);
                }
            }
        });
        let rows = [0, 1].map(|half| {
            sums.map(|sum| {
                let row = b.reg(Class::X);
                b.mov(row, quarters(sum)[half]);
                row
            })
        });
        for rows in rows {
            let blocks = accumulator(b);
            in_turn(b, rows, mode::MIX_128, quarters(blocks));
            add_to_memory(b, blocks, of.state, lanes);
        }
    });
}

/// Where the mask and the slopes of heads are.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    mask: Reg,
    /// Bytes from the place that vectors can be loaded from to the mask.
    offset: Reg,
    slopes: Reg,
}

impl Mask {
    pub(super) fn new(b: &mut CoreBuilder, mask: Reg, address: Reg, slopes: Reg) -> Self {
        let offset = b.binary("and", address, HALF_BYTES - 1);
        let aligned = b.binary("sub", address, offset);
        b.mov(mask, aligned);
        Self { mask, offset, slopes }
    }

    /// Each key's element, and beside it a zero, times the slopes.
    pub(super) fn add(self, b: &mut CoreBuilder, sums: [Reg; 4], lanes: Reg) {
        let [both, elements, zeros, pairs] = [(); 4].map(|()| b.reg(Class::X));
        b.load(both.hi(), self.mask, Address::At(HALF_BYTES));
        b.load(both.lo(), self.mask, Address::Then(HALF_BYTES));
        b.emit("vshift", [elements, both, both, self.offset]);
        let (zero, mode) = (b.scalar(0), b.scalar(mode::MIX_16));
        b.broadcast(32, zeros, zero);
        b.shuffle(pairs, elements, zeros, mode);
        for (two, sums) in (0..).zip(sums.chunks(2)) {
            let (word, both) = (b.reg(Class::Scalar), b.reg(Class::X));
            b.load(word, self.slopes, Address::At(4 * two));
            b.broadcast(32, both, word);
            for (head, sum) in sums.iter().enumerate() {
                let slope = spread(b, "vextbcst.16", both, head);
                b.mac_f(*sum, *sum, pairs, slope, lanes);
            }
        }
    }

    pub(super) fn add_late(self, b: &mut CoreBuilder, heads: Heads, scores: Reg) {
        let sums = heads.zeros(b);
        self.add(b, sums, heads.configuration);
        let vectors = [(); 4].map(|()| b.reg(Class::X));
        by_key(b, sums, vectors);
        let more = accumulator(b);
        quarters(more).into_iter().zip(vectors).for_each(|(part, vector)| b.mov(part, vector));
        add_to_memory(b, more, scores, heads.configuration);
    }
}
