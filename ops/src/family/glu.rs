//! Gated linear units: a function of one half of the columns times the other half.
//!
//! The halves are two sources, or the two halves of the rows of one source, in either order.

use super::cpu::exp::sigmoid;
use super::prelude::*;
use super::unary::{gelu, gelu_erf, gelu_quick, relu, silu};

pub static OPERATIONS: &[&dyn Operation] = &[
    &Glu { name: "REGLU", kernel: |node| gated(node, 1, |x, g| relu(x) * g) },
    &Glu { name: "GEGLU", kernel: |node| gated(node, 8, |x, g| gelu(x) * g) },
    &Glu { name: "SWIGLU", kernel: |node| gated(node, 8, |x, g| silu(x) * g) },
    &Glu { name: "SWIGLU_OAI", kernel: swiglu_oai },
    &Glu { name: "GEGLU_ERF", kernel: |node| gated(node, 16, |x, g| gelu_erf(x) * g) },
    &Glu { name: "GEGLU_QUICK", kernel: |node| gated(node, 8, |x, g| gelu_quick(x) * g) },
    &Glu { name: "SWIGLU_CLAMP", kernel: swiglu_clamp },
];

struct Glu {
    name: &'static str,
    kernel: fn(&Node) -> Arc<dyn HostFunction>,
}

impl Operation for Glu {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(self.name, node, 2)?;
        same_types(self.name, node, FLOATS, "f32, f16, bf16")?;
        let (a, out) = (source(self.name, node, 0)?, &node.output);
        let mut expected = a.ne;
        if let Some(b) = node.source(1) {
            require(self.name, a.same_shape(b), || {
                format!("sources have extents {:?} and {:?}; they must be equal", a.ne, b.ne)
            })?;
        } else {
            // As ggml: of a row with an odd number of elements the last belongs to no half.
            expected[0] /= 2;
        }
        has_shape(self.name, "the result", out, expected)?;
        dense_rows(self.name, out)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        Ok((self.kernel)(node))
    }
}

/// `x` below `limit` and within it on both sides, as ggml's std::min and std::clamp: NaN passes through.
#[inline(always)]
fn below(x: f32, limit: f32) -> f32 {
    if limit < x { limit } else { x }
}

#[inline(always)]
fn within(x: f32, limit: f32) -> f32 {
    if x < -limit { -limit } else { below(x, limit) }
}

/// The variant of OpenAI's open models: clamped, with a factor in the sigmoid and one added to the gate.
fn swiglu_oai(node: &Node) -> Arc<dyn HostFunction> {
    let (alpha, limit) = (node.params.float(2), node.params.float(3));
    gated(node, 8, move |x, g| {
        let x = below(x, limit);
        x * sigmoid(alpha * x) * (within(g, limit) + 1.0)
    })
}

/// SWIGLU on clamped values.
fn swiglu_clamp(node: &Node) -> Arc<dyn HostFunction> {
    let limit = node.params.float(3);
    gated(node, 8, move |x, g| silu(below(x, limit)) * within(g, limit))
}

/// A kernel that applies `function` to pairs of the gated and the gating half. `cost` is the work per pair.
fn gated<F>(node: &Node, cost: usize, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(f32, f32) -> f32 + Copy + Send + Sync + 'static,
{
    let [a] = arguments(node);
    let half = node.output.ne[0];
    let swapped = node.params.int(1) != 0;
    let sources = match KernelInput::of(node, 1) {
        Some(gate) => [(a, 0), (gate, 0)],
        None if swapped => [(a, half), (a, 0)],
        None => [(a, 0), (a, half)],
    };
    map_pieces(
        node,
        sources,
        cost,
        #[inline(always)]
        move |_, [x, g], y| {
            for ((y, x), g) in y.iter_mut().zip(x).zip(g) {
                *y = function(*x, *g);
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::prelude::*;
    use super::super::testing::*;

    const ALPHA: f32 = 1.702;
    const LIMIT: f32 = 2.0;

    fn exact(op: &str, x: f64, g: f64) -> f64 {
        let limit = f64::from(LIMIT);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match op {
            "REGLU" => x.max(0.0) * g,
            "GEGLU" => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()) * g,
            "SWIGLU" => x * sigmoid(x) * g,
            "GEGLU_ERF" => 0.5 * x * (1.0 + libm::erf(x / 2.0_f64.sqrt())) * g,
            "GEGLU_QUICK" => x * sigmoid(1.702 * x) * g,
            "SWIGLU_OAI" => x.min(limit) * sigmoid(f64::from(ALPHA) * x.min(limit)) * (g.clamp(-limit, limit) + 1.0),
            _ => x.min(limit) * sigmoid(x.min(limit)) * g.clamp(-limit, limit),
        }
    }

    fn parameters(swapped: bool) -> OpParams {
        let mut params = params(&[(2, ALPHA), (3, LIMIT)]);
        params.0[1] = i32::from(swapped);
        params
    }

    fn tolerance(dtype: DataType) -> f64 {
        match dtype {
            DataType::F32 => 3e-6,
            DataType::F16 => 1.0 / 1024.0,
            _ => 1.0 / 128.0,
        }
    }

    #[rstest]
    fn halves_of_one_source_and_two_sources(
        #[values("REGLU", "GEGLU", "SWIGLU", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_OAI", "SWIGLU_CLAMP")] op: &str,
        #[values(DataType::F32, DataType::F16, DataType::BF16)] dtype: DataType,
        #[values([64, 2, 2, 2], [5, 7, 3, 2], [1, 1, 1, 1], [300, 200, 1, 1])] ne: [usize; 4],
    ) {
        let mut random = Rng::with_seed(51);
        let out = Tensor::contiguous(dtype, ne);
        let scaled = |tensor: Tensor, random: &mut Rng| {
            let values: Vec<f32> = random.floats(tensor.elements()).iter().map(|x| x * 5.0).collect();
            Data::new(tensor, &values)
        };
        let (a, b) = (scaled(out, &mut random), scaled(out, &mut random));
        assert_formula(op, parameters(false), out, &[&a, &b], tolerance(dtype), |index, get| {
            exact(op, get(0, index), get(1, index))
        });
        let wide = scaled(Tensor::contiguous(dtype, [ne[0] * 2, ne[1], ne[2], ne[3]]), &mut random);
        for swapped in [false, true] {
            assert_formula(op, parameters(swapped), out, &[&wide], tolerance(dtype), |index, get| {
                let (first, second) = (get(0, index), get(0, [index[0] + ne[0], index[1], index[2], index[3]]));
                if swapped { exact(op, second, first) } else { exact(op, first, second) }
            });
        }
    }

    #[test]
    fn the_last_element_of_an_odd_row_belongs_to_no_half() {
        let a = Data::new(f32s([5, 1, 1, 1]), &[1.0, -2.0, 3.0, 4.0, 1e9]);
        let out = f32s([2, 1, 1, 1]);
        let result = run("REGLU", parameters(false), out, &[Some(&a)]).unwrap();
        assert_close(&result.values(), [3.0, 0.0], 0.0);
        let result = run("REGLU", parameters(true), out, &[Some(&a)]).unwrap();
        assert_close(&result.values(), [3.0, -8.0], 0.0);
    }

    #[test]
    fn a_result_of_another_width_is_rejected() {
        let a = f32s([6, 1, 1, 1]);
        let out = f32s([2, 1, 1, 1]);
        let node = node("SWIGLU", OpParams::default(), out, &[Some(a)]);
        assert!(find("SWIGLU").check(&node).is_err());
        assert!(find("SWIGLU").reference(&node).is_err());
    }
}
