//! DIAG: a row becomes the diagonal of a square matrix of zeros.

use super::cpu::element::{read_row, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, Movement, movement, whole_words};
use crate::node::{Node, OpParams};
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Diag];

const NAME: &str = "DIAG";

#[derive(Debug)]
struct Diag;

impl Operation for Diag {
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
        let [length, rows, second, third] = a.ne;
        require(NAME, rows == 1 && out.ne == [length, length, second, third], || {
            format!("extents {:?} and {:?}; single rows make squares of their length", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        vec![Node::new(NAME, OpParams::default(), tensor(512), vec![Some(tensor(1))])]
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        // Zeros all over, then a row with the stride of the diagonal.
        movement(NAME, node, arch, Movement { parts: 2, passes: 1 })
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let out = node.output;
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(
                &out,
                output,
                out.elements() / 4,
                #[inline(always)]
                |scratch, row, target| {
                    let [i, second, third] = row.0;
                    let offset = second * a.tensor.nb[2] + third * a.tensor.nb[3];
                    let x = read_row(&a, inputs, offset, &mut scratch.a);
                    write(out.dtype, target, &mut scratch.out, |y| {
                        y.fill(0.0);
                        y[i] = x[i];
                    });
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
    #[case::single(Tensor::contiguous(DataType::F32, [1, 1, 1, 1]))]
    #[case::batches(Tensor::contiguous(DataType::F32, [10, 1, 4, 3]))]
    #[case::column(permuted(&Tensor::contiguous(DataType::F32, [3, 9, 1, 2]), [2, 0, 1, 3]))]
    fn rows_become_diagonals(#[case] tensor: Tensor) {
        let a = Data::random(tensor, &mut Random(21));
        let out = Tensor::contiguous(DataType::F32, [tensor.ne[0], tensor.ne[0], tensor.ne[2], tensor.ne[3]]);
        let result = run(NAME, OpParams::default(), out, &[Some(&a)]).unwrap();
        let values = a.values();
        let exact = indices(out.ne).map(|[i, j, c, d]| if i == j { a.get(&values, [i, 0, c, d]) } else { 0.0 });
        assert_close(&result.values(), exact, 0.0);
    }

    #[rstest]
    #[case([4, 2, 1, 1], [4, 4, 1, 1], DataType::F32)]
    #[case([4, 1, 1, 1], [4, 3, 1, 1], DataType::F32)]
    #[case([4, 1, 1, 1], [4, 4, 1, 1], DataType::F16)]
    fn refuses(#[case] from: [usize; 4], #[case] to: [usize; 4], #[case] dtype: DataType) {
        let (a, out) = (Tensor::contiguous(dtype, from), Tensor::contiguous(dtype, to));
        assert!(find(NAME).check(&node(NAME, OpParams::default(), out, &[Some(a)])).is_err());
    }
}
