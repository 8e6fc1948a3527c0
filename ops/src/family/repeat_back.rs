//! REPEAT_BACK: what REPEAT spread, added up again: each element is the sum of its copies.

use super::cpu::element::{read, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::{Row, for_each_row};
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, rowwise};
use crate::node::{Node, OpParams};
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&RepeatBack];

const NAME: &str = "REPEAT_BACK";

#[derive(Debug)]
struct RepeatBack;

impl Operation for RepeatBack {
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
        require(NAME, out.repeats_to(a), || {
            format!("the result's extents {:?} do not divide those of source 0, {:?}", out.ne, a.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        vec![Node::new(NAME, OpParams::default(), tensor(4), vec![Some(tensor(8))])]
    }

    /// A row of the result stays in a core until all its copies have passed.
    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        Ok(rowwise(node.output.rows(), arch))
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, tensor) = (node.output, a.tensor);
        let repeats: [usize; 4] = std::array::from_fn(|d| tensor.ne[d] / out.ne[d].max(1));
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(
                &out,
                output,
                tensor.elements(),
                #[inline(always)]
                |scratch, Row(place), target| {
                    let copies = &mut scratch.a;
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| {
                            y.fill(0.0);
                            for outer in 0..repeats[1] * repeats[2] * repeats[3] {
                                let Row(copy) = Row::nth(&repeats, outer);
                                let row = Row(std::array::from_fn(|d| place[d] + copy[d] * out.ne[d + 1]));
                                let offset = row.offset(&tensor);
                                for inner in 0..repeats[0] {
                                    let first = inner * out.ne[0];
                                    let x = read(&tensor, inputs[a.position], offset, first, y.len(), copies);
                                    for (y, x) in y.iter_mut().zip(x) {
                                        *y += x;
                                    }
                                }
                            }
                        },
                    );
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
    use rstest::rstest;

    #[rstest]
    #[case::once([8, 6, 4, 2], [1, 1, 1, 1])]
    #[case::rows([8, 6, 4, 2], [3, 1, 1, 1])]
    #[case::all([8, 6, 4, 2], [2, 3, 2, 2])]
    #[case::scalar([1, 1, 1, 1], [50, 20, 2, 1])]
    fn copies_are_added_up(
        #[case] ne: [usize; 4],
        #[case] repeats: [usize; 4],
        #[values(false, true)] transposed: bool,
    ) {
        let [n0, n1, n2, n3] = std::array::from_fn(|d| ne[d] * repeats[d]);
        let mut layout = Tensor::contiguous(DataType::F32, [n0, n1, n2, n3]);
        if transposed {
            layout = permuted(&Tensor::contiguous(DataType::F32, [n1, n0, n2, n3]), [1, 0, 2, 3]);
        }
        let a = Data::random(layout, &mut Random(51));
        let out = Tensor::contiguous(DataType::F32, ne);
        let mut exact = vec![0.0; out.elements()];
        for (index, value) in indices(layout.ne).zip(a.values()) {
            let [i, j, k, l] = std::array::from_fn(|d| index[d] % ne[d]);
            exact[i + ne[0] * (j + ne[1] * (k + ne[2] * l))] += f64::from(value);
        }
        let result = run(NAME, OpParams::default(), out, &[Some(&a)]).unwrap();
        assert_close(&result.values(), exact, 1e-5);
    }

    #[test]
    fn what_does_not_divide_is_refused() {
        let tensor = |ne| Tensor::contiguous(DataType::F32, ne);
        let node = node(NAME, OpParams::default(), tensor([3, 2, 1, 1]), &[Some(tensor([4, 2, 1, 1]))]);
        assert!(find(NAME).check(&node).is_err());
    }
}
