//! The inner loop: 16 rows of weights times columns, 16 at a time, for 64 or 128 `k`.
//!
//! The multiplications are those of [`product`](super::super::product): 16 of 4 rows x 8 `k` x 4 columns for each step of 8 `k`. Here the eight
//! or 16 steps are one after the other in the body of the loop over columns, which so has room to store the sums of these and load
//! those of the next ones meanwhile. Two steps are done for four columns, then for the next four: by the time the last four are done, the sums
//! of the first have been stored and the next ones are on their way.
//!
//! ```text
//!   a pair of steps: columns 0-3 | 4-7 | 8-11 | 12-15, each with both steps of four blocks of rows
//!   registers:       8 vectors of weights, 4 of columns (those at hand and the next), 16 accumulators
//! ```

use super::super::kernel::Kernel;
use super::super::parameters::Parameter;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Reg};

/// Steps of 8 `k` in the body, or in a half of it: columns of 64 `k` are converted at once.
pub(super) const STEPS: usize = 8;
/// Weights of 16 rows, and columns of 16, in a step.
const STEP_BYTES: i64 = 256;
const BLOCK_BYTES: i64 = 64;
/// Blocks of four rows, and of four columns.
const ROWS: usize = 4;
const LANES: usize = 4;

/// The registers of operands, and the pointers to them.
struct Operands {
    weights: [Reg; 2 * ROWS],
    weights_at: [Reg; 2],
    columns: [Reg; 4],
    /// In even and odd steps.
    columns_at: [Reg; 2],
}

/// Adds the products of a group of rows, decoded at `source`, and all columns at `columns` to the sums at `sums`, which are read through the
/// pointer region `read`.
pub(super) fn multiply(
    b: &mut CoreBuilder,
    k: Kernel,
    read: AliasRegion,
    halves: usize,
    [source, columns, sums]: [Reg; 3],
) {
    let pairs = halves * STEPS / 2;
    let second = b.add(source, 2 * BLOCK_BYTES);
    let odd = b.add(columns, STEP_BYTES);
    let operands = Operands {
        weights: std::array::from_fn(|_| b.reg(Class::X)),
        weights_at: [source, second].map(|at| k.pointer(b, k.decoded, at)),
        columns: std::array::from_fn(|_| b.reg(Class::X)),
        columns_at: [columns, odd].map(|at| k.pointer(b, k.columns, at)),
    };
    let (from, to) = (k.pointer(b, read, sums), k.pointer(b, k.sums, sums));
    let sums: Vec<Reg> = (0..LANES * ROWS).map(|_| b.reg(Class::Acc512)).collect();
    let back = b.reg(Class::Modifier);
    b.constant_into(back, -(STEP_BYTES * (halves * STEPS) as i64));
    // From the columns of one half to those of the other, and back to the next ones.
    let turns = (halves > 1).then(|| {
        let bytes = k.parameter(b, Parameter::HalfBytes);
        let unit = b.scalar(STEP_BYTES * STEPS as i64);
        let to_second = b.binary("sub", bytes, unit);
        let to_first = b.binary("sub", unit, bytes);
        let to_first = b.binary("sub", to_first, unit);
        [to_second, to_first].map(|by| {
            let modifier = b.reg(Class::Modifier);
            b.mov(modifier, by);
            modifier
        })
    });
    sums.iter().for_each(|sum| b.load(*sum, from, Address::Then(BLOCK_BYTES)));
    for odd in 0..2 {
        operands.load_weights(b, odd);
        operands.load_columns(b, 0, odd);
    }
    // What is loaded behind the last columns is in the core's memory, and counts for nothing.
    let units = k.count(b, Parameter::Units, 1).in_turn();
    b.name_loop(&format!("prompts, 16 columns of {} elements", halves * 8 * STEPS));
    b.repeat(units, |b| {
        for pair in 0..pairs {
            let is_last = pair + 1 == pairs;
            for lane in 0..LANES {
                let of_lane = &sums[ROWS * lane..ROWS * (lane + 1)];
                for odd in 0..2 {
                    if lane > 0 {
                        operands.load_columns(b, lane, odd);
                    }
                }
                for odd in 0..2 {
                    for (row, sum) in of_lane.iter().enumerate() {
                        b.mac_f(*sum, *sum, operands.weights[ROWS * odd + row], operands.of(lane, odd), k.matrix);
                    }
                    if lane + 1 == LANES {
                        if is_last && odd == 0 {
                            operands.weights_at.iter().for_each(|at| b.advance(*at, back));
                        }
                        operands.load_weights(b, odd);
                    }
                }
                if is_last {
                    for sum in of_lane {
                        b.store(*sum, to, Address::Then(BLOCK_BYTES));
                        b.load(*sum, from, Address::Then(BLOCK_BYTES));
                    }
                }
            }
            if let Some([to_second, to_first]) = turns {
                let by = if is_last { Some(to_first) } else { (pair + 1 == STEPS / 2).then_some(to_second) };
                by.into_iter().for_each(|by| operands.columns_at.iter().for_each(|at| b.advance(*at, by)));
            }
            (0..2).for_each(|odd| operands.load_columns(b, 0, odd));
        }
    });
}

impl Operands {
    /// The columns of a block in an even or odd step.
    fn of(&self, lane: usize, odd: usize) -> Reg {
        self.columns[(2 * lane + odd) % self.columns.len()]
    }

    /// The next step's weights, in the registers of even or odd steps.
    fn load_weights(&self, b: &mut CoreBuilder, odd: usize) {
        let vectors = self.weights[ROWS * odd..ROWS * (odd + 1)].chunks(ROWS / 2);
        for (vectors, at) in vectors.zip(self.weights_at) {
            b.load(vectors[0].hi(), at, Address::At(BLOCK_BYTES / 2));
            b.load(vectors[1].lo(), at, Address::At(BLOCK_BYTES));
            b.load(vectors[1].hi(), at, Address::At(BLOCK_BYTES * 3 / 2));
            b.load(vectors[0].lo(), at, Address::Then(STEP_BYTES));
        }
    }

    /// The next block of columns of even or odd steps.
    fn load_columns(&self, b: &mut CoreBuilder, lane: usize, odd: usize) {
        let (vector, at) = (self.of(lane, odd), self.columns_at[odd]);
        // Behind the last block is that of the step between.
        let by = if lane + 1 == LANES { BLOCK_BYTES + STEP_BYTES } else { BLOCK_BYTES };
        b.load(vector.hi(), at, Address::At(BLOCK_BYTES / 2));
        b.load(vector.lo(), at, Address::Then(by));
    }
}

/// Sets the sums of a group of rows at `sums` to zero.
pub(super) fn clear(b: &mut CoreBuilder, k: Kernel, sums: Reg) {
    let to = k.pointer(b, k.sums, sums);
    let (number, zero) = (b.scalar(0), b.reg(Class::X));
    b.broadcast(32, zero, number);
    let units = k.count(b, Parameter::Units, 1);
    b.repeat(units, |b| {
        for _ in 0..LANES * ROWS {
            b.store(zero, to, Address::Then(BLOCK_BYTES));
        }
    });
}
