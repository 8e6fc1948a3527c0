//! CLAMP: elements held between two bounds.
//!
//! ggml has it as an operation with a result of its own and as one on a view of its source (`ggml_clamp_inplace`). The second
//! differs by where the result lies, which is not a matter of the node: source and result have the same extents in both. The
//! source may be a view with gaps, which the CPU backend reads right since ggml 0.27 (seen in test-backend-ops).

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Clamp];

const NAME: &str = "CLAMP";

struct Clamp;

impl Operation for Clamp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        // ggml knows f32 and f16; bf16 is what f16 can be on the array.
        let [a] = alike(NAME, node, FLOATS, "f32, f16, bf16")?;
        same_shape(NAME, "source 0", a, &node.output)?;
        dense_rows(NAME, &node.output)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        elementwise(NAME, node, arch)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (min, max) = (node.params.float(0), node.params.float(1));
        // The upper bound first, as in ggml: NaN becomes it, and of bounds that contradict each other the lower holds.
        Ok(map(node, 1, move |x| {
            let x = if x < max { x } else { max };
            if x > min { x } else { min }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::name::kernel_name;
    use crate::normalise::{F16Policy, normalise};

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
        let source = Data::random(tensor, &mut Random(81));
        let (bounds, out) = (params(&[(0, -0.5), (1, 0.25)]), Tensor::contiguous(dtype, tensor.ne));
        assert_formula(NAME, bounds, out, &[&source], 0.0, |index, get| get(0, index).clamp(-0.5, 0.25));
    }

    #[test]
    fn odd_numbers_and_bounds() {
        let tensor = f32s([4, 1, 1, 1]);
        let source = Data::new(tensor, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
        let result = |min, max| run(NAME, params(&[(0, min), (1, max)]), tensor, &[Some(&source)]).unwrap().values();
        assert_eq!(result(-1.0, 2.0), [2.0, 2.0, -1.0, 0.0]);
        assert_eq!(result(f32::NEG_INFINITY, 2.0), [2.0, 2.0, f32::NEG_INFINITY, 0.0]);
        assert_eq!(result(3.0, 1.0), [3.0; 4]);
    }

    /// The C++ backend keeps the shape: CLAMP is none of the operations it flattens. Its bounds are in the hash.
    #[test]
    fn has_the_name_of_the_cpp_backend() {
        let tensor = Tensor::contiguous(DataType::F16, [10, 5, 4, 3]);
        let op = find(NAME);
        let node = node(NAME, params(&[(0, 1.5)]), tensor, &[Some(tensor)]);
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
    fn refuses(#[case] source: DataType, #[case] result: DataType, #[case] ne: [usize; 4]) {
        let source = Tensor::contiguous(source, [8, 2, 1, 1]);
        assert!(!accepts(NAME, params(&[(1, 1.0)]), Tensor::contiguous(result, ne), &[source]));
    }
}
