//! Columns of f32 become blocks of 8 `k` x 4 columns of bf16, the second operand of the matrix unit.
//!
//! Four columns of 16 elements each are rounded to two vectors of 4 x 16 bf16, whose transposition (`T16_4x16`) is two blocks.
//! For weights of four bits, blocks of `k` and `k + 16` are interleaved (`T64_2x8`: rows of four columns are 64 bits), which is
//! the order in which the halves of bytes are unpacked.

use super::parameters::Parameter;
use super::program::Kernel;
use crate::core::{Address, Class, CoreBuilder, Reg};

const TRANSPOSE_LOW: i64 = 26;
const TRANSPOSE_HIGH: i64 = 27;
const INTERLEAVE_LOW: i64 = 14;
const INTERLEAVE_HIGH: i64 = 15;

/// Converts four columns of a chunk at the address `source` to blocks from `target` on.
pub(super) fn convert(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
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
    let halves = k.parameter(b, Parameter::Halves);
    let steps = k.count(b, Parameter::LongSteps, 1);
    b.choose(halves, 2, |b, halves| {
        let modes = [TRANSPOSE_LOW, TRANSPOSE_HIGH, INTERLEAVE_LOW, INTERLEAVE_HIGH].map(|mode| b.scalar(mode));
        b.name_loop(if halves == 1 { "columns in halves" } else { "columns" });
        b.repeat(steps, |b| {
            let ([first, second], [third, fourth]) = (sixteen(b, &columns, &modes), sixteen(b, &columns, &modes));
            let blocks = if halves == 1 {
                [(first, third, 2), (first, third, 3), (second, fourth, 2), (second, fourth, 3)].map(
                    |(low, high, mode)| {
                        let block = b.reg(Class::X);
                        b.shuffle(block, low, high, modes[mode]);
                        block
                    },
                )
            } else {
                [first, second, third, fourth]
            };
            for block in blocks {
                b.store(block, target, Address::ThenBy(step));
            }
        });
    });
}

/// The next 16 elements of four columns as two blocks.
fn sixteen(b: &mut CoreBuilder, columns: &[Reg], modes: &[Reg]) -> [Reg; 2] {
    let (front, back) = (b.reg(Class::X), b.reg(Class::X));
    for (column, half) in columns.iter().zip([front.lo(), front.hi(), back.lo(), back.hi()]) {
        let wide = b.reg(Class::Acc512);
        b.load(wide, *column, Address::Then(64));
        b.to_bf16(half, wide);
    }
    [0, 1].map(|mode: usize| {
        let block = b.reg(Class::X);
        b.shuffle(block, front, back, modes[mode]);
        block
    })
}
