//! NORM and RMS_NORM: rows scaled to unit variance, or to unit mean square.

use super::cpu::element::{read_row, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::cpu::sum::sum;
use super::rules::{addressable, dense_rows, require, same_shape, source, wrong_type};
use crate::design::{Design, rowwise};
use crate::node::Node;
use crate::operation::{Environment, Operation, Placement, Unsupported};
use crate::tensor::DataType;
use aie_hal::{Arch, Kernel};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] =
    &[&Norm { name: "NORM", centred: true }, &Norm { name: "RMS_NORM", centred: false }];

#[derive(Debug)]
struct Norm {
    name: &'static str,
    /// Whether the mean is subtracted first.
    centred: bool,
}

impl Operation for Norm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(self.name, node, 1)?;
        let a = source(self.name, node, 0)?;
        for (operand, tensor) in [("source 0", a), ("the result", &node.output)] {
            if tensor.dtype != DataType::F32 {
                return wrong_type(self.name, operand, tensor.dtype, "f32");
            }
        }
        same_shape(self.name, "source 0", a, &node.output)?;
        let eps = node.params.float(0);
        require(self.name, eps >= 0.0, || format!("epsilon is {eps}; it must not be negative"))?;
        dense_rows(self.name, &node.output)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        rowwise(self.name, node, arch, if self.centred { 3 } else { 2 })
    }

    fn reference(&self, node: &Node, _: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, eps, centred) = (node.output, f64::from(node.params.float(0)), self.centred);
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(
                &out,
                output,
                out.elements() * 2,
                #[inline(always)]
                |scratch, row, target| {
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    let count = x.len() as f64;
                    let mean = if centred { sum(x, |x| x) / count } else { 0.0 };
                    let variance = sum(x, |x| (x - mean) * (x - mean)) / count;
                    let scale = (1.0 / (variance + eps).sqrt()) as f32;
                    let mean = mean as f32;
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| {
                            for (y, x) in y.iter_mut().zip(x) {
                                *y = (x - mean) * scale;
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
    use super::super::testing::{Data, Random, assert_close, find, node, params, run};
    use crate::tensor::{DataType, Tensor};
    use rstest::rstest;

    #[rstest]
    #[case::contiguous(Tensor::contiguous(DataType::F32, [64, 5, 4, 3]))]
    #[case::single(Tensor::contiguous(DataType::F32, [1, 1, 1, 1]))]
    #[case::tail(Tensor::contiguous(DataType::F32, [33, 2, 1, 1]))]
    #[case::many(Tensor::contiguous(DataType::F32, [100, 700, 1, 1]))]
    #[case::gaps(Tensor { dtype: DataType::F32, ne: [20, 3, 2, 1], nb: [8, 200, 600, 1200] })]
    fn rows_get_unit_variance(
        #[values("NORM", "RMS_NORM")] op: &str,
        #[case] tensor: Tensor,
        #[values(0.0, 1e-5, 1.0)] eps: f32,
    ) {
        let mut values = Random(41).floats(tensor.elements());
        values.iter_mut().for_each(|value| *value = *value * 3.0 + 0.5);
        let source = Data::new(tensor, &values);
        // A single element has no variance, and without epsilon nothing to divide by.
        let eps = if tensor.ne[0] == 1 { eps.max(1e-5) } else { eps };
        let result =
            run(op, params(&[(0, eps)]), Tensor::contiguous(DataType::F32, tensor.ne), &[Some(&source)]).unwrap();
        let exact = source.values();
        let exact = exact.chunks(tensor.ne[0]).flat_map(|row| {
            let count = row.len() as f64;
            let mean = if op == "NORM" { row.iter().map(|x| f64::from(*x)).sum::<f64>() / count } else { 0.0 };
            let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
            row.iter().map(move |x| (f64::from(*x) - mean) / (variance + f64::from(eps)).sqrt()).collect::<Vec<_>>()
        });
        assert_close(&result.values(), exact, 2e-6);
    }

    #[test]
    fn a_negative_epsilon_is_refused() {
        let tensor = Tensor::contiguous(DataType::F32, [8, 1, 1, 1]);
        assert!(find("NORM").check(&node("NORM", params(&[(0, -1.0)]), tensor, &[Some(tensor)])).is_err());
        assert!(find("NORM").check(&node("NORM", params(&[(0, f32::NAN)]), tensor, &[Some(tensor)])).is_err());
    }
}
