//! PAD_REFLECT_1D: rows continued at both ends by their mirror image, without the end itself.

use super::cpu::element::{read_row, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, rowwise};
use crate::node::{Node, OpParams};
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Reflect];

const NAME: &str = "PAD_REFLECT_1D";

#[derive(Debug)]
struct Reflect;

impl Operation for Reflect {
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
        let widths = [node.params.int(0), node.params.int(1)];
        let shorter = widths.map(|width| usize::try_from(width).ok().filter(|width| *width < a.ne[0]));
        let [Some(before), Some(after)] = shorter else {
            return super::rules::shape(NAME, format!("{widths:?} beside rows of {}; at least 0 and less", a.ne[0]));
        };
        require(NAME, a.ne[0] + before + after == out.ne[0] && a.ne[1..] == out.ne[1..], || {
            format!("extents {:?} with {before} before and {after} after are not the result's {:?}", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |row| Tensor::contiguous(dtype, [row, 8, 2, 1]);
        let params = OpParams(std::array::from_fn(|word| if word < 2 { 10 } else { 0 }));
        vec![Node::new(NAME, params, tensor(532), vec![Some(tensor(512))])]
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        Ok(rowwise(node.output.rows(), arch))
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, before) = (node.output, node.params.int(0).max(0) as usize);
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(
                &out,
                output,
                out.elements() / 2,
                #[inline(always)]
                |scratch, row, target| {
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    write(out.dtype, target, &mut scratch.out, |y| {
                        let (left, rest) = y.split_at_mut(before);
                        let (middle, right) = rest.split_at_mut(x.len());
                        middle.copy_from_slice(x);
                        for (y, x) in left.iter_mut().rev().zip(&x[1..]) {
                            *y = *x;
                        }
                        for (y, x) in right.iter_mut().zip(x.iter().rev().skip(1)) {
                            *y = *x;
                        }
                    });
                    Ok(())
                },
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, find, node, run};
    use super::*;
    use rstest::rstest;

    fn widths(before: i32, after: i32) -> OpParams {
        OpParams(std::array::from_fn(|word| [before, after].get(word).copied().unwrap_or(0)))
    }

    #[rstest]
    #[case(2, 1, &[3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0])]
    #[case(0, 3, &[1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0])]
    #[case(3, 0, &[4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0])]
    #[case(0, 0, &[1.0, 2.0, 3.0, 4.0])]
    fn ends_are_mirrors(#[case] before: i32, #[case] after: i32, #[case] expected: &[f32]) {
        let a = Data::contiguous(DataType::F32, [4, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
        let out = Tensor::contiguous(DataType::F32, [expected.len(), 2, 1, 1]);
        let found = run(NAME, widths(before, after), out, &[Some(&a)]).unwrap().values();
        let (first, second) = found.split_at(expected.len());
        assert_eq!(first, expected);
        assert!(second.iter().zip(expected).all(|(a, b)| *a == b * 10.0));
    }

    #[rstest]
    #[case::too_wide(4, 0, [8, 2, 1, 1])]
    #[case::negative(-1, 0, [3, 2, 1, 1])]
    #[case::result(1, 1, [5, 2, 1, 1])]
    fn refuses(#[case] before: i32, #[case] after: i32, #[case] ne: [usize; 4]) {
        let (a, out) = (Tensor::contiguous(DataType::F32, [4, 2, 1, 1]), Tensor::contiguous(DataType::F32, ne));
        assert!(find(NAME).check(&node(NAME, widths(before, after), out, &[Some(a)])).is_err());
    }
}
