//! SILU_BACK: the gradient before SILU from the gradient behind it (source 0) and what SILU was applied to (source 1).

use super::cpu::exp::sigmoid;
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&SiluBack];

const NAME: &str = "SILU_BACK";

struct SiluBack;

impl Operation for SiluBack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [gradient, x] = alike(NAME, node, &[DataType::F32, DataType::F16], "f32, f16")?;
        same_shape(NAME, "source 0", gradient, &node.output)?;
        same_shape(NAME, "source 1", x, &node.output)?;
        dense_rows(NAME, &node.output)
    }

    fn flatten(&self) -> Flatten {
        Flatten::Always
    }

    /// f16 is computed in f32 under either policy.
    fn array_type(&self, _: &Node, _: Option<usize>, _: DataType) -> DataType {
        DataType::F32
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let sources = arguments(node).map(|source| (source, 0));
        Ok(map_pieces(
            node,
            sources,
            8,
            #[inline(always)]
            |_, [behind, x], y| {
                for ((y, behind), x) in y.iter_mut().zip(behind).zip(x) {
                    let s = sigmoid(*x);
                    *y = behind * s * (1.0 + x * (1.0 - s));
                }
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn is_the_derivative(
        #[values((DataType::F32, 1e-5), (DataType::F16, 1e-3))] precision: (DataType, f64),
        #[values([1, 1, 1, 1], [64, 5, 4, 3], [40_000, 2, 1, 1])] ne: [usize; 4],
        #[values(false, true)] transposed: bool,
    ) {
        let (dtype, tolerance) = precision;
        let out = Tensor::contiguous(dtype, ne);
        let mut random = Rng::with_seed(61);
        let gradient = Data::random(layout(dtype, ne, transposed), &mut random);
        let points: Vec<f32> = random.floats(out.elements()).iter().map(|x| x * 20.0).collect();
        let x = Data::new(out, &points);
        assert_formula(NAME, OpParams::default(), out, &[&gradient, &x], tolerance, |index, get| {
            let (behind, x) = (get(0, index), get(1, index));
            let s = 1.0 / (1.0 + (-x).exp());
            behind * (s + x * s * (1.0 - s))
        });
    }

    #[test]
    fn other_types_and_shapes_are_rejected() {
        let tensor = |dtype, rows| Tensor::contiguous(dtype, [8, rows, 1, 1]);
        let check = |a, b, out| accepts(NAME, OpParams::default(), out, &[a, b]);
        let [f, h, i] = [DataType::F32, DataType::F16, DataType::I32].map(|dtype| tensor(dtype, 2));
        assert!(check(f, f, f) && check(h, h, h));
        assert!(!check(i, i, i) && !check(f, h, f) && !check(f, f, h) && !check(f, tensor(DataType::F32, 1), f));
    }
}
