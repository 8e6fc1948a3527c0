//! TIMESTEP_EMBEDDING: cosines and sines of a time at falling frequencies.

use super::cpu::element::{read_row, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, elementwise};
use crate::node::{Node, OpParams};
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Timestep];

const NAME: &str = "TIMESTEP_EMBEDDING";

#[derive(Debug)]
struct Timestep;

impl Operation for Timestep {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 1)?;
        let (a, out) = (source(NAME, node, 0)?, &node.output);
        for (operand, tensor) in [("source 0", a), ("the result", out)] {
            if tensor.dtype != DataType::F32 {
                return wrong_type(NAME, operand, tensor.dtype, "f32");
            }
        }
        let (length, period) = (node.params.int(0), node.params.int(1));
        require(NAME, period > 0, || format!("period {period}; at least 1"))?;
        let fits = usize::try_from(length) == Ok(out.ne[0]) && out.ne[1..] == [a.ne[0], 1, 1];
        require(NAME, fits && a.ne[1..] == [1, 1, 1], || {
            format!("{length} functions of {:?} times are not the result's {:?}", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let params = OpParams(std::array::from_fn(|word| [320, 10_000].get(word).copied().unwrap_or(0)));
        let tensor = |ne| Tensor::contiguous(dtype, ne);
        vec![Node::new(NAME, params, tensor([320, 2, 1, 1]), vec![Some(tensor([2, 1, 1, 1]))])]
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(NAME, node, arch)
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, half) = (node.output, node.output.ne[0] / 2);
        let decay = -(node.params.int(1) as f32).ln();
        // Without times there is no row, however long it is.
        let count = if out.elements() > 0 { half } else { 0 };
        let frequencies: Vec<f32> = (0..count).map(|i| (decay * i as f32 / half as f32).exp()).collect();
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(&out, output, out.elements() * 16, |scratch, row, target| {
                let time = read_row(&a, inputs, 0, &mut scratch.a)[row.0[0]];
                write(out.dtype, target, &mut scratch.out, |y| {
                    let (cosines, rest) = y.split_at_mut(half);
                    let (sines, odd) = rest.split_at_mut(half);
                    for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&frequencies) {
                        (*sine, *cosine) = (time * frequency).sin_cos();
                    }
                    odd.fill(0.0);
                });
                Ok(())
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, assert_close, find, node, run};
    use super::*;
    use rstest::rstest;

    fn words(length: i32, period: i32) -> OpParams {
        OpParams(std::array::from_fn(|word| [length, period].get(word).copied().unwrap_or(0)))
    }

    #[rstest]
    fn is_the_definition(#[values(1, 2, 7, 320)] length: usize) {
        let times = [0.0, 12.0, 0.5];
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &times);
        let out = Tensor::contiguous(DataType::F32, [length, 3, 1, 1]);
        let result = run(NAME, words(length as i32, 10_000), out, &[Some(&a)]).unwrap();
        let half = length / 2;
        let exact = times.iter().flat_map(|time| {
            (0..length).map(move |i| {
                let angle = f64::from(*time) * 10_000_f64.powf(-((i % half.max(1)) as f64) / half as f64);
                match i {
                    i if i < half => angle.cos(),
                    i if i < 2 * half => angle.sin(),
                    _ => 0.0,
                }
            })
        });
        assert_close(&result.values(), exact, 1e-5);
    }

    #[rstest]
    #[case(4, 0, [4, 3, 1, 1])]
    #[case(5, 100, [4, 3, 1, 1])]
    #[case(4, 100, [4, 2, 1, 1])]
    fn refuses(#[case] length: i32, #[case] period: i32, #[case] ne: [usize; 4]) {
        let (a, out) = (Tensor::contiguous(DataType::F32, [3, 1, 1, 1]), Tensor::contiguous(DataType::F32, ne));
        assert!(find(NAME).check(&node(NAME, words(length, period), out, &[Some(a)])).is_err());
    }
}
