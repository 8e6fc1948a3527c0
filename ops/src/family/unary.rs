//! Functions of one element: scaling, activations, rounding, roots, exponentials, bounds.
//!
//! Most are ggml's `GGML_OP_UNARY`, named by their function; SCALE, CLAMP, SQR, SQRT, LOG, SIN, COS and LEAKY_RELU are operations of
//! their own in ggml and no different here. Four have parameters: SCALE a factor and what is added, CLAMP two bounds, LEAKY_RELU
//! its slope, XIELU its four coefficients. As in the C++ backend only those of SCALE and CLAMP are part of the kernel's name.
//!
//! ggml has CLAMP as an operation with a result of its own and as one on a view of its source (`ggml_clamp_inplace`). The second
//! differs by where the result lies, which is not a matter of the node. The source may be a view with gaps, which the CPU backend
//! reads right since ggml 0.27 (seen in test-backend-ops).
//!
//! ABS, SGN, NEG, STEP, RELU and SQR take whole numbers too, with a result of the same type in which what does not fit wraps round:
//! the C++ backend has them, ggml's CPU backend has not. The other functions have fractions or nothing to do.

use super::cpu::exp::{exp, expm1, log, normal_distribution, sigmoid, sigmoid_rounded, tanh};
use super::cpu::integers::WHOLE;
use super::cpu::integers::elements::{self, OfOne};
use super::cpu::trigonometry;
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[
    &Unary { name: SCALE, types: Types::Alike, kernel: scale },
    &Unary { name: "SQR", types: Types::Widening, kernel: |node| map(node, 1, |x| x * x) },
    &Unary { name: "SQRT", types: Types::Widening, kernel: |node| map(node, 2, f32::sqrt) },
    &Unary { name: "LOG", types: Types::Widening, kernel: |node| map(node, 16, |x| log(x.into()) as f32) },
    &Unary { name: "SIN", types: Types::Widening, kernel: |node| map_runs(node, 16, trigonometry::sin) },
    &Unary { name: "COS", types: Types::Widening, kernel: |node| map_runs(node, 16, trigonometry::cos) },
    &Unary { name: "ABS", types: Types::Widening, kernel: |node| map(node, 1, f32::abs) },
    &Unary { name: "SGN", types: Types::Widening, kernel: |node| map(node, 1, sgn) },
    &Unary { name: "NEG", types: Types::Widening, kernel: |node| map(node, 1, |x| -x) },
    &Unary { name: "STEP", types: Types::Widening, kernel: |node| map(node, 1, |x| if x > 0.0 { 1.0 } else { 0.0 }) },
    &Unary { name: "TANH", types: Types::Widening, kernel: |node| map(node, 8, tanh) },
    &Unary { name: "ELU", types: Types::Widening, kernel: |node| map(node, 8, elu) },
    &Unary { name: "RELU", types: Types::Widening, kernel: |node| map(node, 1, relu) },
    &Unary { name: "LEAKY_RELU", types: Types::Alike, kernel: leaky_relu },
    &Unary { name: "SIGMOID", types: Types::Widening, kernel: |node| map(node, 8, sigmoid_rounded) },
    &Unary { name: "GELU", types: Types::Alike, kernel: |node| map(node, 8, gelu) },
    &Unary { name: "GELU_QUICK", types: Types::Alike, kernel: |node| map(node, 8, gelu_quick) },
    &Unary { name: "GELU_ERF", types: Types::Alike, kernel: |node| map(node, 16, gelu_erf) },
    &Unary { name: "SILU", types: Types::Alike, kernel: |node| map(node, 8, silu) },
    &Unary { name: "HARDSWISH", types: Types::Widening, kernel: |node| map(node, 2, |x| x * hard_sigmoid(x)) },
    &Unary { name: "HARDSIGMOID", types: Types::Widening, kernel: |node| map(node, 2, hard_sigmoid) },
    &Unary { name: "EXP", types: Types::Widening, kernel: |node| map(node, 8, exp) },
    &Unary { name: "EXPM1", types: Types::Widening, kernel: |node| map(node, 8, expm1) },
    &Unary { name: "SOFTPLUS", types: Types::Widening, kernel: |node| map(node, 16, softplus) },
    &Unary { name: "XIELU", types: Types::Widening, kernel: xielu },
    &Unary { name: "FLOOR", types: Types::Widening, kernel: |node| map(node, 1, f32::floor) },
    &Unary { name: "CEIL", types: Types::Widening, kernel: |node| map(node, 1, f32::ceil) },
    &Unary { name: "ROUND", types: Types::Widening, kernel: |node| map(node, 1, f32::round) },
    &Unary { name: "TRUNC", types: Types::Widening, kernel: |node| map(node, 1, f32::trunc) },
    &Unary { name: CLAMP, types: Types::Alike, kernel: clamp },
];

const SCALE: &str = "SCALE";
const CLAMP: &str = "CLAMP";

/// Which results a source may have, by the type switches of ggml's CPU functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// Its own type.
    Alike,
    /// Its own type, or f32 for a shorter one.
    Widening,
}

struct Unary {
    name: &'static str,
    types: Types,
    kernel: fn(&Node) -> Arc<dyn HostFunction>,
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

/// A parabola above zero, a shifted exponential below; ggml keeps the coefficients in words 1 to 4.
fn xielu(node: &Node) -> Arc<dyn HostFunction> {
    let [negative, positive, beta, eps] = [1, 2, 3, 4].map(|word| node.params.float(word));
    map(node, 8, move |x| {
        let above = positive * x * x + beta * x;
        let least = if x < eps { x } else { eps };
        let below = (expm1(least) - x) * negative + beta * x;
        if x > 0.0 { above } else { below }
    })
}

/// `x * scale + bias`.
fn scale(node: &Node) -> Arc<dyn HostFunction> {
    let (scale, bias) = (node.params.float(0), node.params.float(1));
    // Without a bias ggml only multiplies, which keeps the sign of zero.
    if bias == 0.0 { map(node, 1, move |x| x * scale) } else { map(node, 1, move |x| x * scale + bias) }
}

/// Elements held between two bounds.
fn clamp(node: &Node) -> Arc<dyn HostFunction> {
    let (min, max) = (node.params.float(0), node.params.float(1));
    // The upper bound first, as in ggml: NaN becomes it, and of bounds that contradict each other the lower holds.
    map(node, 1, move |x| {
        let x = if x < max { x } else { max };
        if x > min { x } else { min }
    })
}

/// `x` if positive, else the first parameter times it.
fn leaky_relu(node: &Node) -> Arc<dyn HostFunction> {
    let slope = node.params.float(0);
    map(node, 1, move |x| relu(x) + slope * if x < 0.0 { x } else { 0.0 })
}

/// As [`map`], with a function that is given whole runs of elements: the result's, which it fills, and the source's.
fn map_runs<F>(node: &Node, cost: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(&mut [f32], &[f32]) + Send + Sync + 'static,
{
    let sources = arguments(node).map(|a| (a, 0));
    map_pieces(
        node,
        sources,
        cost,
        #[inline(always)]
        move |_, [x], y| function(y, x),
    )
}

impl Unary {
    /// What it does to whole numbers, if it takes them.
    fn whole(&self) -> Option<OfOne> {
        Some(match self.name {
            "ABS" => OfOne::Magnitude,
            "SGN" => OfOne::Sign,
            "NEG" => OfOne::Negation,
            "STEP" => OfOne::Step,
            "RELU" => OfOne::Positive,
            "SQR" => OfOne::Square,
            _ => return None,
        })
    }
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32};
        let [a] = sources(self.name, node)?;
        let whole = self.whole().is_some();
        match (a.dtype, node.output.dtype) {
            (F16, _) if self.name == SCALE => return wrong_type(self.name, "source 0", F16, "f32, bf16"),
            (F32, F32) | (F16, F16) | (BF16, BF16) => {}
            (F16 | BF16, F32) if self.types == Types::Widening => {}
            (x, _) if whole && WHOLE.contains(&x) => typed(self.name, "the result", &node.output, x)?,
            (F32 | F16 | BF16, y) => return wrong_type(self.name, "the result", y, "the type of source 0"),
            (x, _) if whole => return wrong_type(self.name, "source 0", x, "f32, f16, bf16, i8, i16, i32"),
            (x, _) => return wrong_type(self.name, "source 0", x, "f32, f16, bf16"),
        }
        same_shape(self.name, "source 0", a, &node.output)?;
        if self.name == "LEAKY_RELU" {
            even_rows(self.name, "source 0", a)?;
            even_rows(self.name, "the result", &node.output)?;
        }
        dense_rows(self.name, &node.output)
    }

    fn flatten(&self) -> Flatten {
        if self.name == CLAMP { Flatten::Never } else { Flatten::Always }
    }

    fn params_in_name(&self) -> bool {
        matches!(self.name, SCALE | CLAMP)
    }

    fn nameless_params<'a>(&self, params: &'a OpParams) -> &'a [i32] {
        // The first word of ggml's unary operations is the number of the function, which the name says.
        match self.name {
            "LEAKY_RELU" => &params.0[..1],
            "XIELU" => &params.0[1..5],
            _ => &[],
        }
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let whole = self.whole().filter(|_| WHOLE.contains(&node.output.dtype));
        Ok(match whole {
            Some(function) => elements::map(node, function),
            None => (self.kernel)(node),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::name::kernel_name;
    use crate::normalise::{F16Policy, normalise};

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
        for op in OPERATIONS.iter().map(|op| op.name()).filter(|op| !matches!(*op, SCALE | CLAMP)) {
            let tensor = Tensor::contiguous(dtype, ne);
            // Exponentials stay in the range of f16.
            let range = if op.starts_with("EXP") { 10.0 } else { 30.0 };
            let mut values: Vec<f32> = Rng::with_seed(21).floats(tensor.elements()).iter().map(|x| x * range).collect();
            values[0] = 0.0;
            if matches!(op, "LOG" | "SQRT") {
                values.iter_mut().for_each(|x| *x = x.abs() + 0.01);
            }
            let source = Data::new(tensor, &values);
            let tolerance = match dtype {
                DataType::F32 => 1e-6,
                DataType::F16 => 1.0 / 1024.0,
                _ => 1.0 / 128.0,
            };
            assert_formula(op, parameters(), tensor, &[&source], tolerance, |index, get| exact(op, get(0, index)));
        }
    }

    #[rstest]
    #[case::gaps(Tensor { dtype: DataType::F32, ne: [6, 3, 1, 1], nb: [8, 64, 192, 192] })]
    #[case::transposed(Tensor { dtype: DataType::F32, ne: [6, 3, 1, 1], nb: [12, 4, 72, 72] })]
    #[case::rows_of_a_wider_tensor(Tensor { dtype: DataType::F16, ne: [6, 3, 2, 1], nb: [2, 40, 200, 400] })]
    fn strided_sources_are_read(#[case] tensor: Tensor, #[values("SILU", "COS")] op: &str) {
        let source = Data::random(tensor, &mut Rng::with_seed(22));
        let out = Tensor::contiguous(tensor.dtype, tensor.ne);
        assert_formula(op, parameters(), out, &[&source], 1e-3, |index, get| exact(op, get(0, index)));
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
        let tensor = f32s([6, 1, 1, 1]);
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
        assert_eq!(accepts(op, OpParams::default(), f32s([8, 1, 1, 1]), &[a]), widens);
    }

    #[rstest]
    fn multiplies_and_adds(
        #[values(DataType::F32, DataType::BF16)] dtype: DataType,
        #[values(0.0, 0.5)] bias: f32,
        #[values([10, 10, 3, 2], [100_000, 1, 1, 1])] ne: [usize; 4],
    ) {
        let tensor = Tensor::contiguous(dtype, ne);
        let source = Data::random(tensor, &mut Rng::with_seed(31));
        let (params, tolerance) =
            (params(&[(0, -2.5), (1, bias)]), if dtype == DataType::F32 { 1e-6 } else { 1.0 / 256.0 });
        assert_formula("SCALE", params, tensor, &[&source], tolerance, |index, get| {
            get(0, index) * -2.5 + f64::from(bias)
        });
    }

    #[rstest]
    #[case::contiguous([10, 5, 4, 3], [0, 1, 2, 3])]
    #[case::permuted([10, 5, 4, 3], [2, 0, 1, 3])]
    #[case::long([100_000, 1, 1, 1], [0, 1, 2, 3])]
    fn elements_are_held(
        #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
        #[case] ne: [usize; 4],
        #[case] order: [usize; 4],
    ) {
        let tensor = permuted(&Tensor::contiguous(dtype, ne), order);
        let source = Data::random(tensor, &mut Rng::with_seed(81));
        let (bounds, out) = (params(&[(0, -0.5), (1, 0.25)]), Tensor::contiguous(dtype, tensor.ne));
        assert_formula("CLAMP", bounds, out, &[&source], 0.0, |index, get| get(0, index).clamp(-0.5, 0.25));
    }

    #[test]
    fn odd_numbers_and_bounds() {
        let tensor = f32s([4, 1, 1, 1]);
        let source = Data::new(tensor, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
        let result = |min, max| run("CLAMP", params(&[(0, min), (1, max)]), tensor, &[Some(&source)]).unwrap().values();
        assert_eq!(result(-1.0, 2.0), [2.0, 2.0, -1.0, 0.0]);
        assert_eq!(result(f32::NEG_INFINITY, 2.0), [2.0, 2.0, f32::NEG_INFINITY, 0.0]);
        assert_eq!(result(3.0, 1.0), [3.0; 4]);
    }

    /// The C++ backend keeps the shape: CLAMP is none of the operations it flattens. Its bounds are in the hash.
    #[test]
    fn has_the_name_of_the_cpp_backend() {
        let tensor = Tensor::contiguous(DataType::F16, [10, 5, 4, 3]);
        let op = find("CLAMP");
        let node = node("CLAMP", params(&[(0, 1.5)]), tensor, &[Some(tensor)]);
        for (policy, dtype) in [(F16Policy::F32, "f32"), (F16Policy::Bf16, "bf16")] {
            let normalised = normalise(op, &node, policy).unwrap();
            op.check(&normalised.node).unwrap();
            let expected = format!("clamp-10x5x4x3{dtype}-10x5x4x3{dtype}-925a34a8500216b0");
            assert_eq!(kernel_name(op, &normalised.node), expected);
        }
    }

    #[rstest]
    #[case(DataType::I32, DataType::I32, [8, 2, 1, 1])]
    #[case(DataType::F16, DataType::F32, [8, 2, 1, 1])]
    #[case(DataType::F32, DataType::F32, [8, 1, 1, 1])]
    fn clamp_rejects(#[case] source: DataType, #[case] result: DataType, #[case] ne: [usize; 4]) {
        let source = Tensor::contiguous(source, [8, 2, 1, 1]);
        assert!(!accepts("CLAMP", params(&[(1, 1.0)]), Tensor::contiguous(result, ne), &[source]));
    }
}
