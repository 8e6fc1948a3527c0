//! Columns become blocks of 8 `k` x 4 columns of bf16, or x 8 columns of i8: the second operand of the matrix unit.
//!
//! Eight columns of i8 arrive as blocks that only have to be transposed (`T8_8x8`): the DMA lays them out.
//!
//! Four columns of 16 elements each, as they are or rounded from f32, are two vectors of 4 x 16 bf16, whose transposition
//! (`T16_4x16`) is two blocks. For weights of four bits, blocks of `k` and those of 16, 32 or 64 more are interleaved
//! (`T64_2x8`: rows of four columns are 64 bits), which is the order in which the halves of bytes are unpacked.

use super::arithmetic::Arithmetic;
use super::kernel::Kernel;
use super::parameters::Parameter;
use super::problem::{Form, Right};
use crate::codegen::{Address, Class, CoreBuilder, Reg};

const TRANSPOSE_LOW: i64 = 26;
const TRANSPOSE_HIGH: i64 = 27;
const INTERLEAVE_LOW: i64 = 14;
const INTERLEAVE_HIGH: i64 = 15;
const TRANSPOSE_BYTES: i64 = 35;

/// Modes of shuffles.
struct Modes {
    transpose: [Reg; 2],
    interleave: [Reg; 2],
}

/// Converts the columns of a block, all of a chunk, at the address `source` to blocks from `target` on.
pub(super) fn convert(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    match k.purpose.arithmetic() {
        Arithmetic::Floats => convert_four(b, k, source, target),
        Arithmetic::Integers => transpose_eight(b, k, source, target),
    }
}

/// Eight columns of i8.
fn transpose_eight(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    let step = k.modifier(b, Parameter::StepBytes);
    let (source, target) = (k.pointer(b, k.arriving, source), k.pointer(b, k.columns, target));
    let mode = b.scalar(TRANSPOSE_BYTES);
    let steps = k.count(b, Parameter::Steps, 4).multiple_of(4);
    b.name_loop("columns of I8");
    b.repeat(steps, |b| {
        let block = b.reg(Class::X);
        b.load(block, source, Address::Then(64));
        b.shuffle(block, block, block, mode);
        b.store(block, target, Address::ThenBy(step));
    });
}

fn convert_four(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    let column_bytes = k.modifier(b, Parameter::ColumnBytes);
    let step = k.modifier(b, Parameter::StepBytes);
    let mut columns = vec![k.pointer(b, k.arriving, source)];
    for index in 1..4 {
        let next = b.pointer(k.arriving);
        b.mov(next, columns[index - 1]);
        b.advance(next, column_bytes);
        columns.push(next);
    }
    let target = k.pointer(b, k.columns, target);
    let form = k.parameter(b, Parameter::Form);
    let forms = if k.purpose.has_many_columns() { Form::COUNT } else { Form::OF_F32 };
    b.choose(form, forms, |b, number| {
        let Form { right, interleaved } = Form::numbered(number);
        let modes = Modes {
            transpose: [TRANSPOSE_LOW, TRANSPOSE_HIGH].map(|mode| b.scalar(mode)),
            interleave: [INTERLEAVE_LOW, INTERLEAVE_HIGH].map(|mode| b.scalar(mode)),
        };
        let four = Columns { right, columns: &columns, modes: &modes };
        if interleaved {
            four.interleaved(b, k, target, step);
        } else {
            four.plain(b, k, target, step);
        }
    });
}

/// The same for a piece of the columns of a prompt, block by block: 64 elements of each column, of which those that are interleaved are 16 apart.
pub(super) fn convert_piece(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    let form = k.parameter(b, Parameter::Form);
    b.choose(form, Form::COUNT, |b, number| {
        let Form { right, interleaved } = Form::numbered(number);
        let modes = Modes {
            transpose: [TRANSPOSE_LOW, TRANSPOSE_HIGH].map(|mode| b.scalar(mode)),
            interleave: [INTERLEAVE_LOW, INTERLEAVE_HIGH].map(|mode| b.scalar(mode)),
        };
        let column = PIECE_ELEMENTS * right.bytes() as i64;
        let columns: Vec<Reg> = (0..4)
            .map(|index| {
                let at = b.add(source, index * column);
                k.pointer(b, k.arriving, at)
            })
            .collect();
        let target = k.pointer(b, k.columns, target);
        let [next, back] = [3 * column, BLOCK_BYTES - PIECE_ELEMENTS / 8 * PIECE_STEP_BYTES].map(|bytes| {
            let modifier = b.reg(Class::Modifier);
            b.constant_into(modifier, bytes);
            modifier
        });
        let four = Columns { right, columns: &columns, modes: &modes };
        let sixteen = Address::Then(16 * right.bytes() as i64);
        let blocks = k.count(b, Parameter::BlocksPerUnit, 1);
        b.name_loop(&format!("64 of four columns of {right:?}{}", if interleaved { ", interleaved" } else { "" }));
        b.repeat(blocks, |b| {
            for _ in 0..PIECE_ELEMENTS / 32 {
                let [low, high] = [(); 2].map(|()| four.sixteen(b, sixteen));
                let blocks = if interleaved { four.mixed(b, low, high) } else { [low, high].concat() };
                blocks.iter().for_each(|block| b.store(*block, target, Address::Then(PIECE_STEP_BYTES)));
            }
            columns.iter().for_each(|column| b.advance(*column, next));
            b.advance(target, back);
        });
    });
}

/// Elements of a column in a piece; from one step of 8 `k` to the next of its converted columns; a block of these.
const PIECE_ELEMENTS: i64 = 64;
const PIECE_STEP_BYTES: i64 = 256;
const BLOCK_BYTES: i64 = 64;

/// Four columns.
struct Columns<'a> {
    right: Right,
    columns: &'a [Reg],
    modes: &'a Modes,
}

impl Columns<'_> {
    fn plain(&self, b: &mut CoreBuilder, k: Kernel, target: Reg, step: Reg) {
        let next = Address::Then(16 * self.right.bytes() as i64);
        let steps = k.blocks(b, Parameter::Blocks, 32);
        b.name_loop(&format!("columns of {:?}", self.right));
        b.repeat(steps, |b| {
            let blocks = [self.sixteen(b, next), self.sixteen(b, next)].concat();
            blocks.iter().for_each(|block| b.store(*block, target, Address::ThenBy(step)));
        });
    }

    /// The blocks of the lower half of a group, each with that of the upper half at the same place.
    fn interleaved(&self, b: &mut CoreBuilder, k: Kernel, target: Reg, step: Reg) {
        let [to_upper, to_next] = [Parameter::ToUpper, Parameter::ToNext].map(|bytes| k.modifier(b, bytes));
        let halves = k.count(b, Parameter::Halves, 1);
        b.repeat(halves, |b| {
            let sixteens = k.count(b, Parameter::Sixteens, 1);
            let sixteens = k.short(sixteens);
            b.name_loop(&format!("columns of {:?}, interleaved", self.right));
            b.repeat(sixteens, |b| {
                let [low, high] = [to_upper, to_next].map(|by| self.sixteen(b, Address::ThenBy(by)));
                self.mixed(b, low, high).iter().for_each(|block| b.store(*block, target, Address::ThenBy(step)));
            });
            self.columns.iter().for_each(|column| b.advance(*column, to_upper));
        });
    }

    /// Two blocks of the lower half, each with that of the upper half at the same place.
    fn mixed(&self, b: &mut CoreBuilder, low: [Reg; 2], high: [Reg; 2]) -> Vec<Reg> {
        let pairs = low.into_iter().zip(high);
        let all = pairs.flat_map(|(low, high)| self.modes.interleave.map(|mode| (low, high, mode)));
        all.map(|(low, high, mode)| {
            let block = b.reg(Class::X);
            b.shuffle(block, low, high, mode);
            block
        })
        .collect()
    }

    /// 16 elements of four columns as two blocks; `next` is where the columns go on.
    fn sixteen(&self, b: &mut CoreBuilder, next: Address) -> [Reg; 2] {
        let (front, back) = (b.reg(Class::X), b.reg(Class::X));
        for (column, half) in self.columns.iter().zip([front.lo(), front.hi(), back.lo(), back.hi()]) {
            match self.right {
                Right::F32 => {
                    let wide = b.reg(Class::Acc512);
                    b.load(wide, *column, next);
                    b.to_bf16(half, wide);
                }
                Right::Bf16 | Right::I8 => b.load(half, *column, next),
            }
        }
        self.modes.transpose.map(|mode| {
            let block = b.reg(Class::X);
            b.shuffle(block, front, back, mode);
            block
        })
    }
}
