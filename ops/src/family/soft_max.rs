//! SOFT_MAX: scaled rows with an optional mask, ALiBi slopes and attention sinks.
//!
//! `softmax(x * scale + slope(head) * mask)`, where the mask repeats over heads and batches, the slope is 1 without ALiBi,
//! and a sink is one more element per head that takes part in the maximum and the sum only.

use super::cpu::element::{read_row, write};
use super::cpu::exp::exp;
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::{Row, for_each_row};
use super::cpu::sum::sum;
use super::rules::{FLOATS, addressable, dense_rows, require, same_shape, source, wrong_type};
use crate::design::{Design, rowwise};
use crate::node::Node;
use crate::operation::{Environment, Operation, Placement, Unsupported};
use crate::tensor::DataType;
use aie_hal::{Arch, Kernel};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&SoftMax];

const NAME: &str = "SOFT_MAX";

#[derive(Debug)]
struct SoftMax;

impl Operation for SoftMax {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 3)?;
        let a = source(NAME, node, 0)?;
        for (operand, tensor) in [("source 0", a), ("the result", &node.output)] {
            if tensor.dtype != DataType::F32 {
                return wrong_type(NAME, operand, tensor.dtype, "f32");
            }
        }
        same_shape(NAME, "source 0", a, &node.output)?;
        if let Some(mask) = node.source(1) {
            if !FLOATS.contains(&mask.dtype) {
                return wrong_type(NAME, "the mask", mask.dtype, "f32, f16, bf16");
            }
            let fits = mask.ne[0] == a.ne[0] && mask.ne[1] >= a.ne[1];
            let repeats = (2..4).all(|d| mask.ne[d] > 0 && a.ne[d].is_multiple_of(mask.ne[d]));
            require(NAME, fits && repeats, || {
                format!("a mask with extents {:?} does not fit {:?}; rows must be as long and at least as many, further extents divide", mask.ne, a.ne)
            })?;
        } else {
            let bias = node.params.float(1);
            require(NAME, bias <= 0.0, || format!("ALiBi (max_bias {bias}) needs a mask"))?;
        }
        if let Some(sinks) = node.source(2) {
            if !FLOATS.contains(&sinks.dtype) {
                return wrong_type(NAME, "the sinks", sinks.dtype, "f32, f16, bf16");
            }
            require(NAME, sinks.ne[0] >= a.ne[2], || format!("{} sinks given for {} heads", sinks.ne[0], a.ne[2]))?;
        }
        dense_rows(NAME, &node.output)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        rowwise(NAME, node, arch, 3)
    }

    fn reference(&self, node: &Node, _: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (mask, sinks) = (Argument::of(node, 1), Argument::of(node, 2));
        let (out, scale) = (node.output, node.params.float(0));
        let slopes = slopes(node.params.float(1), out.ne[2]);
        Ok(kernel(node, None, move |inputs, output| {
            // Sinks are few; they are read once.
            let mut sink_scratch = Vec::new();
            let sinks = sinks.map(|sinks| read_row(&sinks, inputs, 0, &mut sink_scratch));
            for_each_row(
                &out,
                output,
                out.elements() * 8,
                #[inline(always)]
                |scratch, row, target| {
                    let Row([_, head, _]) = row;
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    let mask = mask.map(|mask| read_row(&mask, inputs, row.offset_repeated(&mask.tensor), &mut scratch.b));
                    let (slope, sink) = (slopes[head], sinks.map(|sinks| sinks[head]));
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| soft_max(y, x, scale, mask, slope, sink),
                    );
                    Ok(())
                },
            )
        }))
    }
}

/// ALiBi's slope of each head; 1 when `max_bias` is 0.
fn slopes(max_bias: f32, heads: usize) -> Vec<f32> {
    if max_bias <= 0.0 || heads == 0 {
        return vec![1.0; heads];
    }
    let power = 1_usize << heads.ilog2();
    let slope = |exponent: f32| (-max_bias * exponent / power as f32).exp2();
    let base = slope(1.0);
    let between = slope(0.5);
    let head = |h: usize| {
        if h < power { base.powf((h + 1) as f32) } else { between.powf((2 * (h - power) + 1) as f32) }
    };
    (0..heads).map(head).collect()
}

#[inline(always)]
fn soft_max(y: &mut [f32], x: &[f32], scale: f32, mask: Option<&[f32]>, slope: f32, sink: Option<f32>) {
    match mask {
        Some(mask) => {
            for ((y, x), m) in y.iter_mut().zip(x).zip(mask) {
                *y = x * scale + slope * m;
            }
        }
        None => {
            for (y, x) in y.iter_mut().zip(x) {
                *y = x * scale;
            }
        }
    }
    let max = maximum(y).max(sink.unwrap_or(f32::NEG_INFINITY));
    for y in y.iter_mut() {
        *y = exp(*y - max);
    }
    let mut total = sum(y, |y| y);
    if let Some(sink) = sink {
        total += f64::from((sink - max).exp());
    }
    let scale = (1.0 / total) as f32;
    for y in y {
        *y *= scale;
    }
}

/// The largest element; minus infinity when there is none. NaN is passed over.
#[inline(always)]
fn maximum(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, tail) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |a, b| a.max(*b))
}
