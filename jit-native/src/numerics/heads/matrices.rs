//! By products of matrices: 4 keys x 8 elements times 8 elements x 4 heads, 4 heads x 8 keys times 8 keys x 4 elements.
//!
//! The mask is one more step of scores: its element of a key stands alone in the key's row, and is multiplied with a row of 2^112, times the
//! slopes of heads.

use super::{Keys, Values};
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};

/// `T16_4x16`: the transposition of four heads x 16 elements, lower and upper half.
pub(super) const TRANSPOSE: [i64; 2] = [26, 27];
/// `T16_8x4`: eight keys x four heads, transposed.
const TRANSPOSE_KEYS: i64 = 28;
/// Which of a pair of elements each of four keys takes, in the first word of its row: the lower one, or the upper one.
const LOWER_ROWS: i64 = 0x0101;
const UPPER_ROWS: i64 = 0x1010;
/// Lanes of the third and fourth row.
const LAST_ROWS: i64 = 0xFF00;
/// Every other lane.
const ODD_LANES: i64 = 0xAAAA;

/// Four blocks of four keys with the block of queries of each step of 8 elements.
pub(super) fn scores(b: &mut CoreBuilder, of: &Keys, sums: [Reg; 4], matrix: Reg) {
    let second = b.add(of.keys, 128);
    let keys = [of.keys, second].map(|address| {
        let pointer = b.pointer(of.cache);
        b.mov(pointer, address);
        pointer
    });
    let queries = b.pointer(of.converted);
    b.mov(queries, of.queries);
    let steps = b.binary("lshl", of.sixteens, 1);
    b.name_loop("scores");
    b.repeat(Count::from(steps).at_least(2).multiple_of(2), |b| {
        let rows: Vec<Reg> = (0..4).map(|_| b.reg(Class::X)).collect();
        for (pair, pointer) in rows.chunks(2).zip(keys) {
            b.load(pair[0].hi(), pointer, Address::At(32));
            b.load(pair[1].lo(), pointer, Address::At(64));
            b.load(pair[1].hi(), pointer, Address::At(96));
            b.load(pair[0].lo(), pointer, Address::ThenBy(of.next));
        }
        let query = b.reg(Class::X);
        b.load(query.hi(), queries, Address::At(32));
        b.load(query.lo(), queries, Address::Then(64));
        for (row, sum) in rows.iter().zip(&sums) {
            b.mac_f(*sum, *sum, *row, query, matrix);
        }
    });
}

pub(super) fn store(b: &mut CoreBuilder, sums: [Reg; 4], pointer: Reg) {
    for (at, sum) in (0..).step_by(64).zip(sums) {
        b.store(sum, pointer, Address::At(at));
    }
}

/// Sixteen elements at a time.
pub(super) fn values(b: &mut CoreBuilder, of: &Values, matrix: Reg) {
    // Four elements of all keys are contiguous.
    let four = b.binary("lshl", of.eights, 6);
    let mode = b.scalar(TRANSPOSE_KEYS);
    let group = b.reg(Class::Scalar);
    b.mov(group, of.values);
    b.repeat(Count::from(of.sixteens).at_least(1), |b| {
        let sums = [(); 4].map(|()| b.reg(Class::Acc512));
        for (at, sum) in (0..).step_by(64).zip(sums) {
            b.load(sum, of.state, Address::At(at));
        }
        let from = [(); 4].map(|()| {
            let pointer = b.pointer(of.cache);
            b.mov(pointer, group);
            b.emit("add", [group, group, four]);
            pointer
        });
        let exponentials = b.pointer(of.bf16);
        b.mov(exponentials, of.exponentials);
        b.name_loop("values");
        b.repeat(Count::from(of.eights).at_least(2).multiple_of(2), |b| {
            let (keys, heads) = (b.reg(Class::X), b.reg(Class::X));
            b.load(keys, exponentials, Address::Then(64));
            b.shuffle(heads, keys, keys, mode);
            let blocks: Vec<Reg> = (0..4).map(|_| b.reg(Class::X)).collect();
            for (block, pointer) in blocks.iter().zip(from) {
                b.load(*block, pointer, Address::Then(64));
            }
            for (block, sum) in blocks.iter().zip(&sums) {
                b.mac_f(*sum, *sum, heads, *block, matrix);
            }
        });
        store(b, sums, of.state);
        b.advance(of.state, 256);
    });
}

/// Registers that place the mask of four keys.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pointer: Reg,
    keep: Reg,
    slopes: Reg,
    last_rows: Reg,
}

impl Rows {
    pub(super) fn new(b: &mut CoreBuilder, mask: Reg, slopes: Reg) -> Self {
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
        let pairs = [0, 4].map(|at| {
            let (pair, vector) = (b.reg(Class::Scalar), b.reg(Class::X));
            b.load(pair, slopes, Address::At(at));
            b.broadcast(32, vector, pair);
            vector
        });
        let (rows, odd, last_rows) = (b.reg(Class::X), b.scalar(ODD_LANES), b.scalar(LAST_ROWS));
        b.select_lanes(32, rows, pairs[0], pairs[1], odd);
        Self { pointer: mask, keep, slopes: rows, last_rows }
    }

    /// To the scores of the next four keys.
    pub(super) fn add(&self, b: &mut CoreBuilder, sum: Reg, matrix: Reg) {
        let pairs = [(); 2].map(|()| {
            let (pair, vector) = (b.reg(Class::Scalar), b.reg(Class::X));
            b.load(pair, self.pointer, Address::Then(4));
            b.broadcast(32, vector, pair);
            vector
        });
        let block = b.reg(Class::X);
        b.select_lanes(32, block, pairs[0], pairs[1], self.last_rows);
        b.emit("vband", [block, block, self.keep]);
        b.mac_f(sum, sum, block, self.slopes, matrix);
    }

    pub(super) fn add_late(&self, b: &mut CoreBuilder, scores: Reg, matrix: Reg) {
        for _ in 0..4 {
            let score = b.reg(Class::Acc512);
            b.load(score, scores, Address::At(0));
            self.add(b, score, matrix);
            b.store(score, scores, Address::Then(64));
        }
    }
}
