//! SCALE: `x * scale + bias`, both parameters of the node.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Scale];

const NAME: &str = "SCALE";

struct Scale;

impl Operation for Scale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a] = alike(NAME, node, &[DataType::F32, DataType::BF16], "f32, bf16")?;
        same_shape(NAME, "source 0", a, &node.output)?;
        dense_rows(NAME, &node.output)
    }

    fn flatten(&self) -> Flatten {
        Flatten::SameShape
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(NAME, node, arch)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (scale, bias) = (node.params.float(0), node.params.float(1));
        // Without a bias ggml only multiplies, which keeps the sign of zero.
        Ok(if bias == 0.0 { map(node, 1, move |x| x * scale) } else { map(node, 1, move |x| x * scale + bias) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn multiplies_and_adds(
        #[values(DataType::F32, DataType::BF16)] dtype: DataType,
        #[values(0.0, 0.5)] bias: f32,
        #[values([10, 10, 3, 2], [100_000, 1, 1, 1])] ne: [usize; 4],
    ) {
        let tensor = Tensor::contiguous(dtype, ne);
        let source = Data::random(tensor, &mut Random(31));
        let (params, tolerance) =
            (params(&[(0, -2.5), (1, bias)]), if dtype == DataType::F32 { 1e-6 } else { 1.0 / 256.0 });
        assert_formula("SCALE", params, tensor, &[&source], tolerance, |index, get| {
            get(0, index) * -2.5 + f64::from(bias)
        });
    }
}
