//! Kernels of single elements.

use super::{Whole, read, write};
use crate::family::cpu::kernel::{arguments, kernel};
use crate::family::cpu::map::{as_one_row, combine_runs};
use crate::family::cpu::rows::{for_each_piece, vectorised};
use crate::node::Node;
use crate::tensor::DataType;
use aie_hal::HostFunction;
use std::sync::Arc;

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfOne {
    Magnitude,
    Sign,
    Negation,
    /// 1 above zero, else 0.
    Step,
    /// The number above zero, else 0.
    Positive,
    Square,
}

/// A function of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfTwo {
    Sum,
    Difference,
    Product,
}

/// A kernel that applies `function` to each element of source 0, which has the result's type.
pub fn map(node: &Node, function: OfOne) -> Arc<dyn HostFunction> {
    fn of<W: Whole>(node: &Node, function: OfOne) -> Arc<dyn HostFunction> {
        match function {
            OfOne::Magnitude => map_with(node, W::magnitude),
            OfOne::Sign => map_with(node, W::sign),
            OfOne::Negation => map_with(node, |x: W| W::ZERO.minus(x)),
            OfOne::Step => map_with(node, |x: W| if x > W::ZERO { W::ONE } else { W::ZERO }),
            OfOne::Positive => map_with(node, |x: W| x.max(W::ZERO)),
            OfOne::Square => map_with(node, |x: W| x.times(x)),
        }
    }
    match node.output.dtype {
        DataType::I8 => of::<i8>(node, function),
        DataType::I16 => of::<i16>(node, function),
        _ => of::<i32>(node, function),
    }
}

/// A kernel that applies `function` to each element of source 0 and the element of source 1 that it meets, which repeats. Both have
/// the result's type.
pub fn combine(node: &Node, function: OfTwo) -> Arc<dyn HostFunction> {
    fn of<W: Whole>(node: &Node, function: OfTwo) -> Arc<dyn HostFunction> {
        match function {
            OfTwo::Sum => combine_with(node, W::plus),
            OfTwo::Difference => combine_with(node, W::minus),
            OfTwo::Product => combine_with(node, W::times),
        }
    }
    match node.output.dtype {
        DataType::I8 => of::<i8>(node, function),
        DataType::I16 => of::<i16>(node, function),
        _ => of::<i32>(node, function),
    }
}

fn map_with<W: Whole>(node: &Node, function: impl Fn(W) -> W + Copy + Send + Sync + 'static) -> Arc<dyn HostFunction> {
    map_all::<W>(
        node,
        Box::new(move |y, x| {
            vectorised(
                #[inline(always)]
                || {
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = function(*x);
                    }
                },
            );
        }),
    )
}

type MapFunction<W> = dyn Fn(&mut [W], &[W]) + Send + Sync;

/// Compiled once for all functions of a type.
fn map_all<W: Whole>(node: &Node, function: Box<MapFunction<W>>) -> Arc<dyn HostFunction> {
    let ([mut a], mut out) = (arguments(node), node.output);
    as_one_row(&mut [&mut a.tensor, &mut out]);
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements(),
            #[inline(always)]
            |scratch, row, start, target| {
                let run = [start, target.len() / size_of::<W>()];
                let x = read::<W>(&a.tensor, inputs[a.position], row.offset(&a.tensor), run, &mut scratch.a);
                write(
                    target,
                    &mut scratch.out,
                    #[inline(always)]
                    |y: &mut [W]| function(y, x),
                );
                Ok(())
            },
        )
    })
}

fn combine_with<W: Whole>(
    node: &Node,
    function: impl Fn(W, W) -> W + Copy + Send + Sync + 'static,
) -> Arc<dyn HostFunction> {
    combine_all::<W>(
        node,
        Box::new(move |z, x, y, start| {
            vectorised(
                #[inline(always)]
                || combine_runs(z, x, y, start, function),
            );
        }),
    )
}

type CombineFunction<W> = dyn Fn(&mut [W], &[W], &[W], usize) + Send + Sync;

/// As [`map_all`].
fn combine_all<W: Whole>(node: &Node, function: Box<CombineFunction<W>>) -> Arc<dyn HostFunction> {
    let ([mut a, mut b], mut out) = (arguments(node), node.output);
    as_one_row(&mut [&mut a.tensor, &mut b.tensor, &mut out]);
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements(),
            #[inline(always)]
            |scratch, row, start, target| {
                let length = target.len() / size_of::<W>();
                let x = row.offset(&a.tensor);
                let x = read::<W>(&a.tensor, inputs[a.position], x, [start, length], &mut scratch.a);
                let period = b.tensor.ne[0];
                let run = if period == out.ne[0] { [start, length] } else { [0, period] };
                let y = row.offset_repeated(&b.tensor);
                let y = read::<W>(&b.tensor, inputs[b.position], y, run, &mut scratch.b);
                write(
                    target,
                    &mut scratch.out,
                    #[inline(always)]
                    |z: &mut [W]| function(z, x, y, start - run[0]),
                );
                Ok(())
            },
        )
    })
}
