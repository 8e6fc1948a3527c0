//! Functions of one element: activations, rounding, roots, exponentials.
//!
//! Most are ggml's `GGML_OP_UNARY`, named by their function; SQR, SQRT, LOG, SIN, COS and LEAKY_RELU are operations of their own
//! in ggml and no different here. Two have parameters: LEAKY_RELU its slope, XIELU its four coefficients. As in the C++ backend
//! they are not part of the kernel's name.

use super::cpu::element::{read, write};
use super::cpu::erf::normal_distribution;
use super::cpu::exp::{exp, expm1, sigmoid, sigmoid_rounded, tanh};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::log::log;
use super::cpu::rows::for_each_piece;
use super::cpu::trigonometry;
use super::rules::{addressable, dense_rows, even_rows, same_shape, source, wrong_type};
use crate::design::{Design, elementwise};
use crate::node::{Node, OpParams};
use crate::operation::{Flatten, Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[
    &Unary { name: "SQR", function: Function::Sqr, types: Types::Widening },
    &Unary { name: "SQRT", function: Function::Sqrt, types: Types::Widening },
    &Unary { name: "LOG", function: Function::Log, types: Types::Widening },
    &Unary { name: "SIN", function: Function::Sin, types: Types::Widening },
    &Unary { name: "COS", function: Function::Cos, types: Types::Widening },
    &Unary { name: "ABS", function: Function::Abs, types: Types::Widening },
    &Unary { name: "SGN", function: Function::Sgn, types: Types::Widening },
    &Unary { name: "NEG", function: Function::Neg, types: Types::Widening },
    &Unary { name: "STEP", function: Function::Step, types: Types::Widening },
    &Unary { name: "TANH", function: Function::Tanh, types: Types::Widening },
    &Unary { name: "ELU", function: Function::Elu, types: Types::Widening },
    &Unary { name: "RELU", function: Function::Relu, types: Types::Widening },
    &Unary { name: "LEAKY_RELU", function: Function::LeakyRelu, types: Types::Alike },
    &Unary { name: "SIGMOID", function: Function::Sigmoid, types: Types::Widening },
    &Unary { name: "GELU", function: Function::Gelu, types: Types::Alike },
    &Unary { name: "GELU_QUICK", function: Function::GeluQuick, types: Types::Alike },
    &Unary { name: "GELU_ERF", function: Function::GeluErf, types: Types::Alike },
    &Unary { name: "SILU", function: Function::Silu, types: Types::Alike },
    &Unary { name: "HARDSWISH", function: Function::HardSwish, types: Types::Widening },
    &Unary { name: "HARDSIGMOID", function: Function::HardSigmoid, types: Types::Widening },
    &Unary { name: "EXP", function: Function::Exp, types: Types::Widening },
    &Unary { name: "EXPM1", function: Function::Expm1, types: Types::Widening },
    &Unary { name: "SOFTPLUS", function: Function::SoftPlus, types: Types::Widening },
    &Unary { name: "XIELU", function: Function::Xielu, types: Types::Widening },
    &Unary { name: "FLOOR", function: Function::Floor, types: Types::Widening },
    &Unary { name: "CEIL", function: Function::Ceil, types: Types::Widening },
    &Unary { name: "ROUND", function: Function::Round, types: Types::Widening },
    &Unary { name: "TRUNC", function: Function::Trunc, types: Types::Widening },
];

#[derive(Debug, Clone, Copy)]
enum Function {
    Sqr,
    Sqrt,
    Log,
    Sin,
    Cos,
    Abs,
    Sgn,
    Neg,
    Step,
    Tanh,
    Elu,
    Relu,
    LeakyRelu,
    Sigmoid,
    /// GELU by a tanh.
    Gelu,
    /// GELU by a sigmoid.
    GeluQuick,
    /// GELU by the error function.
    GeluErf,
    Silu,
    HardSwish,
    HardSigmoid,
    Exp,
    Expm1,
    SoftPlus,
    Xielu,
    Floor,
    Ceil,
    /// Halves away from zero.
    Round,
    Trunc,
}

/// Which results a source may have, by the type switches of ggml's CPU functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// Its own type.
    Alike,
    /// Its own type, or f32 for a shorter one.
    Widening,
}

#[derive(Debug)]
struct Unary {
    name: &'static str,
    function: Function,
    types: Types,
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

/// The approximation of GELU by a sigmoid.
#[inline(always)]
pub(super) fn gelu_quick(x: f32) -> f32 {
    x * sigmoid(1.702 * x)
}

/// GELU itself: `x` times the probability that a standard normal variable is below it.
#[inline(always)]
pub(super) fn gelu_erf(x: f32) -> f32 {
    x * normal_distribution(x) as f32
}

/// 1, 0 or -1; 0 for NaN, as in ggml.
#[inline(always)]
fn sgn(x: f32) -> f32 {
    let negative = if x < 0.0 { -1.0 } else { 0.0 };
    if x > 0.0 { 1.0 } else { negative }
}

/// `(x + 3) / 6` between 0 and 1; 0 for NaN, as in ggml.
#[inline(always)]
fn hard_sigmoid(x: f32) -> f32 {
    let y = relu((x + 3.0) / 6.0);
    if y < 1.0 { y } else { 1.0 }
}

#[inline(always)]
fn elu(x: f32) -> f32 {
    let y = expm1(x);
    if x > 0.0 { x } else { y }
}

/// `ln(1 + exp(x))`; beyond 20 that is `x`.
#[inline(always)]
fn softplus(x: f32) -> f32 {
    let y = log(1.0 + f64::from(exp(x))) as f32;
    if x > 20.0 { x } else { y }
}

/// The coefficients of XIELU as ggml keeps them, in words 1 to 4.
#[derive(Debug, Clone, Copy)]
struct Xielu {
    negative: f32,
    positive: f32,
    beta: f32,
    eps: f32,
}

impl Xielu {
    fn new(params: &OpParams) -> Self {
        let [negative, positive, beta, eps] = [1, 2, 3, 4].map(|word| params.float(word));
        Self { negative, positive, beta, eps }
    }

    /// A parabola above zero, a shifted exponential below.
    #[inline(always)]
    fn at(self, x: f32) -> f32 {
        let above = self.positive * x * x + self.beta * x;
        let least = if x < self.eps { x } else { self.eps };
        let below = (expm1(least) - x) * self.negative + self.beta * x;
        if x > 0.0 { above } else { below }
    }
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
            (F16 | BF16, F32) if self.types == Types::Widening => {}
            (F32 | F16 | BF16, y) => return wrong_type(self.name, "the result", y, "the type of source 0"),
            (x, _) => return wrong_type(self.name, "source 0", x, "f32, f16, bf16"),
        }
        same_shape(self.name, "source 0", a, &node.output)?;
        if matches!(self.function, Function::LeakyRelu) {
            even_rows(self.name, "source 0", a)?;
            even_rows(self.name, "the result", &node.output)?;
        }
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

    fn nameless_params<'a>(&self, params: &'a OpParams) -> &'a [i32] {
        // The first word of ggml's unary operations is the number of the function, which the name says.
        match self.function {
            Function::LeakyRelu => &params.0[..1],
            Function::Xielu => &params.0[1..5],
            _ => &[],
        }
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(self.name, node, arch)
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        // Costs are the work per element, an addition being 1.
        Ok(match self.function {
            Function::Sqr => map(node, 1, |x| x * x),
            Function::Sqrt => map(node, 2, f32::sqrt),
            Function::Log => map(node, 16, |x| log(x.into()) as f32),
            Function::Sin => map_runs(node, 16, trigonometry::sin),
            Function::Cos => map_runs(node, 16, trigonometry::cos),
            Function::Abs => map(node, 1, f32::abs),
            Function::Sgn => map(node, 1, sgn),
            Function::Neg => map(node, 1, |x| -x),
            Function::Step => map(node, 1, |x| if x > 0.0 { 1.0 } else { 0.0 }),
            Function::Tanh => map(node, 8, tanh),
            Function::Elu => map(node, 8, elu),
            Function::Relu => map(node, 1, relu),
            Function::LeakyRelu => {
                let slope = node.params.float(0);
                map(node, 1, move |x| relu(x) + slope * if x < 0.0 { x } else { 0.0 })
            }
            Function::Sigmoid => map(node, 8, sigmoid_rounded),
            Function::Gelu => map(node, 8, gelu),
            Function::GeluQuick => map(node, 8, gelu_quick),
            Function::GeluErf => map(node, 16, gelu_erf),
            Function::Silu => map(node, 8, silu),
            Function::HardSwish => map(node, 2, |x| x * hard_sigmoid(x)),
            Function::HardSigmoid => map(node, 2, hard_sigmoid),
            Function::Exp => map(node, 8, exp),
            Function::Expm1 => map(node, 8, expm1),
            Function::SoftPlus => map(node, 16, softplus),
            Function::Xielu => {
                let xielu = Xielu::new(&node.params);
                map(node, 8, move |x| xielu.at(x))
            }
            Function::Floor => map(node, 1, f32::floor),
            Function::Ceil => map(node, 1, f32::ceil),
            Function::Round => map(node, 1, f32::round),
            Function::Trunc => map(node, 1, f32::trunc),
        })
    }
}

/// A kernel that applies `function` to each element of source 0, which the operation's check has found. `cost` is the
/// work per element.
pub(super) fn map<F>(node: &Node, cost: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(f32) -> f32 + Copy + Send + Sync + 'static,
{
    map_runs(
        node,
        cost,
        #[inline(always)]
        move |y, x| {
            for (y, x) in y.iter_mut().zip(x) {
                *y = function(*x);
            }
        },
    )
}

/// As [`map`], with a function that is given whole runs of elements: the result's, which it fills, and the source's.
fn map_runs<F>(node: &Node, cost: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(&mut [f32], &[f32]) + Copy + Send + Sync + 'static,
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
                    |y| function(y, x),
                );
                Ok(())
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, Random, assert_close, find, node, params, run};
    use super::*;
    use rstest::rstest;

    /// LEAKY_RELU reads the first word, XIELU the others.
    fn parameters() -> OpParams {
        params(&[(0, 0.1), (1, 0.8), (2, 1.3), (3, 0.5), (4, -1e-6)])
    }

    fn exact(op: &str, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let hard = ((x + 3.0) / 6.0).clamp(0.0, 1.0);
        match op {
            "SQR" => x * x,
            "SQRT" => x.sqrt(),
            "LOG" => x.ln(),
            "SIN" => x.sin(),
            "COS" => x.cos(),
            "ABS" => x.abs(),
            "SGN" if x == 0.0 => 0.0,
            "SGN" => x.signum(),
            "NEG" => -x,
            "STEP" => f64::from(x > 0.0),
            "TANH" => x.tanh(),
            "ELU" if x <= 0.0 => x.exp_m1(),
            "ELU" => x,
            "RELU" => x.max(0.0),
            "LEAKY_RELU" => x.max(0.0) + f64::from(0.1_f32) * x.min(0.0),
            "SIGMOID" => sigmoid(x),
            "GELU" => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()),
            "GELU_QUICK" => x * sigmoid(1.702 * x),
            "GELU_ERF" => 0.5 * x * libm::erfc(-x / 2.0_f64.sqrt()),
            "SILU" => x * sigmoid(x),
            "HARDSWISH" => x * hard,
            "HARDSIGMOID" => hard,
            "EXP" => x.exp(),
            "EXPM1" => x.exp_m1(),
            "SOFTPLUS" => x.exp().ln_1p(),
            "XIELU" if x > 0.0 => f64::from(1.3_f32) * x * x + 0.5 * x,
            "XIELU" => (x.min(-1e-6).exp_m1() - x) * f64::from(0.8_f32) + 0.5 * x,
            "FLOOR" => x.floor(),
            "CEIL" => x.ceil(),
            "ROUND" => x.round(),
            "TRUNC" => x.trunc(),
            _ => panic!("{op} is not defined"),
        }
    }

    #[rstest]
    fn agrees_with_double_precision(
        #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
        #[values([128, 2, 3, 2], [5, 7, 1, 1], [1, 1, 1, 1], [50_000, 1, 1, 1])] ne: [usize; 4],
    ) {
        for op in OPERATIONS.iter().map(|op| op.name()) {
            let tensor = Tensor::contiguous(dtype, ne);
            // Exponentials stay in the range of f16.
            let range = if op.starts_with("EXP") { 10.0 } else { 30.0 };
            let mut values: Vec<f32> = Random(21).floats(tensor.elements()).iter().map(|x| x * range).collect();
            values[0] = 0.0;
            if matches!(op, "LOG" | "SQRT") {
                values.iter_mut().for_each(|x| *x = x.abs() + 0.01);
            }
            let source = Data::new(tensor, &values);
            let result = run(op, parameters(), tensor, &[Some(&source)]).unwrap();
            let tolerance = match dtype {
                DataType::F32 => 1e-6,
                DataType::F16 => 1.0 / 1024.0,
                _ => 1.0 / 128.0,
            };
            assert_close(&result.values(), source.values().into_iter().map(|x| exact(op, f64::from(x))), tolerance);
        }
    }

    #[rstest]
    #[case::gaps(Tensor { dtype: DataType::F32, ne: [6, 3, 1, 1], nb: [8, 64, 192, 192] })]
    #[case::transposed(Tensor { dtype: DataType::F32, ne: [6, 3, 1, 1], nb: [12, 4, 72, 72] })]
    #[case::rows_of_a_wider_tensor(Tensor { dtype: DataType::F16, ne: [6, 3, 2, 1], nb: [2, 40, 200, 400] })]
    fn strided_sources_are_read(#[case] tensor: Tensor, #[values("SILU", "COS")] op: &str) {
        let source = Data::random(tensor, &mut Random(22));
        let result = run(op, parameters(), Tensor::contiguous(tensor.dtype, tensor.ne), &[Some(&source)]).unwrap();
        assert_close(&result.values(), source.values().into_iter().map(|x| exact(op, f64::from(x))), 1e-3);
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!([-200.0, 0.0, 200.0].map(silu), [0.0, 0.0, 200.0]);
        assert_eq!([-1e30, 1e30].map(gelu), [0.0, 1e30]);
        assert_eq!([-1e30, 1e30].map(gelu_erf), [0.0, 1e30]);
        assert_eq!([-1e30, 1e30].map(elu), [-1.0, 1e30]);
        assert_eq!([-1e30, 1e30].map(softplus), [0.0, 1e30]);
        assert_eq!([-1e30, 1e30].map(hard_sigmoid), [0.0, 1.0]);
        assert!([gelu, silu, gelu_quick, gelu_erf, elu, softplus].iter().all(|f| f(f32::NAN).is_nan()));
        // Comparisons with NaN are false in ggml.
        assert_eq!([relu, sgn, hard_sigmoid].map(|f| f(f32::NAN)), [0.0; 3]);
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        let tensor = Tensor::contiguous(DataType::F32, [6, 1, 1, 1]);
        let source = Data::new(tensor, &[-2.5, -0.5, 0.5, 1.5, 0.499_999_97, 8_388_609.0]);
        let result = run("ROUND", OpParams::default(), tensor, &[Some(&source)]).unwrap();
        assert_eq!(result.values(), [-3.0, -1.0, 1.0, 2.0, 0.0, 8_388_609.0]);
    }

    #[rstest]
    #[case("RELU", true)]
    #[case("SQRT", true)]
    #[case("XIELU", true)]
    #[case("SILU", false)]
    #[case("GELU_ERF", false)]
    #[case("LEAKY_RELU", false)]
    fn some_widen(#[case] op: &str, #[case] widens: bool) {
        let a = Tensor::contiguous(DataType::F16, [8, 1, 1, 1]);
        let out = Tensor::contiguous(DataType::F32, [8, 1, 1, 1]);
        assert_eq!(find(op).check(&node(op, OpParams::default(), out, &[Some(a)])).is_ok(), widens);
    }
}
