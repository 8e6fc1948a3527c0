//! SILU, GELU, RELU: functions of one element.

use super::cpu::element::{read, write};
use super::cpu::exp::{exp, sigmoid};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_piece;
use super::rules::{addressable, dense_rows, same_shape, source, wrong_type};
use crate::design::{Design, elementwise};
use crate::node::Node;
use crate::operation::{Environment, Flatten, Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, Kernel};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[
    &Unary { name: "RELU", function: Function::Relu, widens: true },
    &Unary { name: "SILU", function: Function::Silu, widens: false },
    &Unary { name: "GELU", function: Function::Gelu, widens: false },
];

#[derive(Debug, Clone, Copy)]
enum Function {
    Relu,
    Silu,
    Gelu,
}

#[derive(Debug)]
struct Unary {
    name: &'static str,
    function: Function,
    /// Whether the result may be f32 for a shorter source.
    widens: bool,
}

/// `x` if positive, else 0; NaN becomes 0, as in ggml.
#[inline(always)]
pub(super) fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// The approximation of GELU by tanh, `x / 2 (1 + tanh(z))`, with the tanh expressed by a sigmoid. As in ggml, beyond
/// 10 the function has its limits.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    const CUBE: f32 = 0.044_715;
    let z = SQRT_2_OVER_PI * x * (1.0 + CUBE * x * x);
    let inner = x * sigmoid(2.0 * z);
    let low = if x <= -10.0 { 0.0 } else { inner };
    if x >= 10.0 { x } else { low }
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32};
        addressable(self.name, node, 1)?;
        let a = source(self.name, node, 0)?;
        match (a.dtype, node.output.dtype) {
            (F32, F32) | (F16, F16) | (BF16, BF16) => {}
            (F16 | BF16, F32) if self.widens => {}
            (F32 | F16 | BF16, y) => return wrong_type(self.name, "the result", y, "the type of source 0"),
            (x, _) => return wrong_type(self.name, "source 0", x, "f32, f16, bf16"),
        }
        same_shape(self.name, "source 0", a, &node.output)?;
        dense_rows(self.name, &node.output)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn flatten(&self) -> Flatten {
        Flatten::Always
    }

    fn params_in_name(&self) -> bool {
        false
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(self.name, node, arch)
    }

    fn reference(&self, node: &Node, _: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        Ok(match self.function {
            Function::Relu => map(node, 1, relu),
            Function::Silu => map(node, 8, silu),
            Function::Gelu => map(node, 8, gelu),
        })
    }
}

/// A kernel that applies `function` to each element of source 0, which the operation's check has found. `cost` is the
/// work per element.
pub(super) fn map<F>(node: &Node, cost: usize, function: F) -> Arc<dyn Kernel>
where
    F: Fn(f32) -> f32 + Copy + Send + Sync + 'static,
{
    let Some(mut a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
    let mut out = node.output;
    if a.tensor.is_contiguous() && out.is_contiguous() {
        let ne = [out.elements(), 1, 1, 1];
        (a.tensor, out) = (Tensor::contiguous(a.tensor.dtype, ne), Tensor::contiguous(out.dtype, ne));
    }
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements() * cost,
            #[inline(always)]
            |scratch, row, start, target| {
                let length = target.len() / out.dtype.block_bytes();
                let x = read(&a.tensor, inputs[a.position], row.offset(&a.tensor), start, length, &mut scratch.a);
                write(
                    out.dtype,
                    target,
                    &mut scratch.out,
                    #[inline(always)]
                    |y| {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = function(*x);
                        }
                    },
                );
                Ok(())
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, Random, assert_close, find, node, run};
    use super::*;
    use crate::node::OpParams;
    use rstest::rstest;

    fn exact(op: &str, x: f64) -> f64 {
        match op {
            "RELU" => x.max(0.0),
            "SILU" => x / (1.0 + (-x).exp()),
            _ => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()),
        }
    }

    #[rstest]
    fn agrees_with_double_precision(
        #[values("RELU", "SILU", "GELU")] op: &str,
        #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
        #[values([128, 2, 3, 2], [5, 7, 1, 1], [1, 1, 1, 1], [50_000, 1, 1, 1])] ne: [usize; 4],
    ) {
        let tensor = Tensor::contiguous(dtype, ne);
        let values: Vec<f32> = Random(21).floats(tensor.elements()).iter().map(|x| x * 30.0).collect();
        let source = Data::new(tensor, &values);
        let result = run(op, OpParams::default(), tensor, &[Some(&source)]).unwrap();
        let tolerance = match dtype {
            DataType::F32 => 1e-6,
            DataType::F16 => 1.0 / 1024.0,
            _ => 1.0 / 128.0,
        };
        assert_close(&result.values(), source.values().into_iter().map(|x| exact(op, f64::from(x))), tolerance);
    }

    #[test]
    fn strided_sources_are_read() {
        let tensor = Tensor { dtype: DataType::F32, ne: [6, 3, 1, 1], nb: [8, 64, 192, 192] };
        let source = Data::random(tensor, &mut Random(22));
        let result =
            run("SILU", OpParams::default(), Tensor::contiguous(DataType::F32, tensor.ne), &[Some(&source)]).unwrap();
        assert_close(&result.values(), source.values().into_iter().map(|x| exact("SILU", f64::from(x))), 1e-6);
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(silu(0.0), 0.0);
        assert_eq!(silu(-200.0), 0.0);
        assert_eq!(silu(200.0), 200.0);
        assert_eq!(gelu(-1e30), 0.0);
        assert_eq!(gelu(1e30), 1e30);
        assert!(gelu(f32::NAN).is_nan() && silu(f32::NAN).is_nan());
    }

    #[test]
    fn only_relu_widens() {
        let a = Tensor::contiguous(DataType::F16, [8, 1, 1, 1]);
        let out = Tensor::contiguous(DataType::F32, [8, 1, 1, 1]);
        assert!(find("RELU").check(&node("RELU", OpParams::default(), out, &[Some(a)])).is_ok());
        assert!(find("SILU").check(&node("SILU", OpParams::default(), out, &[Some(a)])).is_err());
    }
}
