//! ROLL: elements moved along each dimension; those that leave at one end come back at the other.
//!
//! Words 0 to 3 of the parameters are the shifts, innermost first (ggml.h, `ggml_roll`).

use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::moving::copy_run;
use super::rules::{addressable, dense_rows, require, same_shape, source, wrong_type};
use crate::design::{Design, Movement, movement, whole_words};
use crate::node::Node;
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::DataType;
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Roll];

const NAME: &str = "ROLL";

#[derive(Debug)]
struct Roll;

impl Operation for Roll {
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
        for (d, extent) in a.ne.into_iter().enumerate() {
            let shift = node.params.int(d);
            require(NAME, (shift.unsigned_abs() as usize) < extent, || {
                format!("dimension {d} of {extent} elements cannot be shifted by {shift}; it must be shorter")
            })?;
        }
        same_shape(NAME, "source 0", a, out)?;
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        // Each shifted dimension has two parts, which change places.
        let shifted = (0..4).filter(|d| node.params.int(*d) != 0).count();
        movement(NAME, node, arch, Movement { parts: 1 << shifted, passes: 1 })
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, ne) = (node.output, a.tensor.ne);
        // The element of the source that comes first in the result.
        let first: [usize; 4] =
            std::array::from_fn(|d| (-(node.params.int(d) as isize)).rem_euclid(ne[d].cast_signed()).cast_unsigned());
        Ok(kernel(node, None, move |inputs, output| {
            let bytes = inputs[a.position];
            for_each_row(
                &out,
                output,
                out.elements() / 4,
                #[inline(always)]
                |_, row, target| {
                    let offset = (1..4).zip(row.0).map(|(d, i)| (i + first[d]) % ne[d] * a.tensor.nb[d]).sum();
                    let (left, right) = target.split_at_mut((ne[0] - first[0]) * out.dtype.block_bytes());
                    copy_run(&a.tensor, bytes, offset, first[0], left);
                    copy_run(&a.tensor, bytes, offset, 0, right);
                    Ok(())
                },
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, Random, assert_close, find, indices, node, permuted, run};
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::Tensor;
    use rstest::rstest;

    fn shifts(shifts: [i32; 4]) -> OpParams {
        OpParams(std::array::from_fn(|word| shifts.get(word).copied().unwrap_or(0)))
    }

    #[test]
    fn what_leaves_comes_back() {
        let a = Data::contiguous(DataType::F32, [3, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let result = run(NAME, shifts([1, -1, 0, 0]), a.tensor, &[Some(&a)]).unwrap();
        assert_eq!(result.values(), [6.0, 4.0, 5.0, 3.0, 1.0, 2.0]);
    }

    #[rstest]
    fn every_dimension_is_shifted(
        #[values([0, 0, 0, 0], [3, 0, 0, 0], [-6, 4, -3, 2], [1, -2, 3, -1])] by: [i32; 4],
        #[values([0, 1, 2, 3], [2, 0, 1, 3])] order: [usize; 4],
    ) {
        let mut from = [0; 4];
        order.into_iter().enumerate().for_each(|(i, d)| from[i] = [7, 5, 4, 3][d]);
        let a = Data::random(permuted(&Tensor::contiguous(DataType::F32, from), order), &mut Random(31));
        let (values, ne) = (a.values(), a.tensor.ne);
        let result = run(NAME, shifts(by), Tensor::contiguous(DataType::F32, ne), &[Some(&a)]).unwrap();
        // `get` wraps, so an extent is added to stay above zero.
        let back = |index: [usize; 4]| std::array::from_fn(|d| (index[d] + ne[d]).wrapping_add_signed(-by[d] as isize));
        assert_close(&result.values(), indices(ne).map(|index| a.get(&values, back(index))), 0.0);
    }

    #[rstest]
    #[case::whole_extent([4, 0, 0, 0], [4, 3, 1, 1], DataType::F32)]
    #[case::far_back([0, i32::MIN, 0, 0], [4, 3, 1, 1], DataType::F32)]
    #[case::result([1, 0, 0, 0], [3, 4, 1, 1], DataType::F32)]
    #[case::halves([1, 0, 0, 0], [4, 3, 1, 1], DataType::F16)]
    fn refuses(#[case] by: [i32; 4], #[case] ne: [usize; 4], #[case] dtype: DataType) {
        let (a, out) = (Tensor::contiguous(dtype, [4, 3, 1, 1]), Tensor::contiguous(dtype, ne));
        assert!(find(NAME).check(&node(NAME, shifts(by), out, &[Some(a)])).is_err());
    }
}
