//! SILU_BACK: the gradient before SILU from the gradient behind it (source 0) and what SILU was applied to (source 1).

use super::cpu::element::{read, write};
use super::cpu::exp::sigmoid;
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_piece;
use super::rules::{addressable, dense_rows, same_shape, source, wrong_type};
use crate::design::{Design, elementwise};
use crate::node::Node;
use crate::operation::{Flatten, Operation, Placement, Unsupported};
use crate::tensor::DataType;
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&SiluBack];

const NAME: &str = "SILU_BACK";

#[derive(Debug)]
struct SiluBack;

impl Operation for SiluBack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 2)?;
        let (gradient, x) = (source(NAME, node, 0)?, source(NAME, node, 1)?);
        if !matches!(gradient.dtype, DataType::F32 | DataType::F16) {
            return wrong_type(NAME, "source 0", gradient.dtype, "f32, f16");
        }
        for (operand, tensor) in [("source 1", x), ("the result", &node.output)] {
            if tensor.dtype != gradient.dtype {
                return wrong_type(NAME, operand, tensor.dtype, "the type of source 0");
            }
        }
        same_shape(NAME, "source 0", gradient, &node.output)?;
        same_shape(NAME, "source 1", x, &node.output)?;
        dense_rows(NAME, &node.output)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn flatten(&self) -> Flatten {
        Flatten::Always
    }

    /// f16 is computed in f32 under either policy.
    fn array_type(&self, _: &Node, _: Option<usize>, _: DataType) -> DataType {
        DataType::F32
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(NAME, node, arch)
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let (Some(gradient), Some(x)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
        let out = node.output;
        Ok(kernel(node, None, move |inputs, output| {
            for_each_piece(
                &out,
                output,
                out.elements() * 8,
                #[inline(always)]
                |scratch, row, start, target| {
                    let length = target.len() / out.dtype.block_bytes();
                    let offsets = [&gradient, &x].map(|source| row.offset(&source.tensor));
                    let behind =
                        read(&gradient.tensor, inputs[gradient.position], offsets[0], start, length, &mut scratch.a);
                    let x = read(&x.tensor, inputs[x.position], offsets[1], start, length, &mut scratch.b);
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| {
                            for ((y, behind), x) in y.iter_mut().zip(behind).zip(x) {
                                let s = sigmoid(*x);
                                *y = behind * s * (1.0 + x * (1.0 - s));
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
    use super::super::testing::{Data, Random, assert_close, find, node, permuted, run};
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::Tensor;
    use rstest::rstest;

    #[rstest]
    fn is_the_derivative(
        #[values((DataType::F32, 1e-5), (DataType::F16, 1e-3))] precision: (DataType, f64),
        #[values([1, 1, 1, 1], [64, 5, 4, 3], [40_000, 2, 1, 1])] ne: [usize; 4],
        #[values(false, true)] transposed: bool,
    ) {
        let (dtype, tolerance) = precision;
        let out = Tensor::contiguous(dtype, ne);
        let mut layout = out;
        if transposed {
            layout = permuted(&Tensor::contiguous(dtype, [ne[1], ne[0], ne[2], ne[3]]), [1, 0, 2, 3]);
        }
        let mut random = Random(61);
        let gradient = Data::random(layout, &mut random);
        let points: Vec<f32> = random.floats(out.elements()).iter().map(|x| x * 20.0).collect();
        let x = Data::new(out, &points);
        let result = run(NAME, OpParams::default(), out, &[Some(&gradient), Some(&x)]).unwrap();
        let exact = gradient.values().into_iter().zip(x.values()).map(|(behind, x)| {
            let (behind, x) = (f64::from(behind), f64::from(x));
            let s = 1.0 / (1.0 + (-x).exp());
            behind * (s + x * s * (1.0 - s))
        });
        let exact: Vec<f64> = exact.collect();
        assert_close(&result.values(), exact, tolerance);
    }

    #[test]
    fn other_types_and_shapes_are_refused() {
        let tensor = |dtype, rows| Tensor::contiguous(dtype, [8, rows, 1, 1]);
        let check = |a, b, out| find(NAME).check(&node(NAME, OpParams::default(), out, &[Some(a), Some(b)])).is_ok();
        let [f, h, i] = [DataType::F32, DataType::F16, DataType::I32].map(|dtype| tensor(dtype, 2));
        assert!(check(f, f, f) && check(h, h, h));
        assert!(!check(i, i, i) && !check(f, h, f) && !check(f, f, h) && !check(f, tensor(DataType::F32, 1), f));
    }
}
