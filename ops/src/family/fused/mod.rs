//! Several nodes of a graph as one dispatch.
//!
//! ggml's graph has a node for every step: a norm and the product with its weights, the two projections of a gated layer and
//! the gate, a product and the sum that takes it. Between them values would go to memory and back, and each costs a dispatch.
//! The operations of this family stand for such groups. No graph names them: the recorder of a graph looks for their [`Form`]s and
//! makes these nodes (the ggml bridge does). Each is defined by the single operations it stands for, which its reference kernel
//! runs one after the other, so that results do not depend on whether nodes were fused.
//!
//! A form is a file of this folder and an entry of [`OPERATIONS`]; everything else follows from its parts.

mod mul_mat_add;
mod mul_mat_swiglu;
mod norm_mul;

use super::cpu::integers::WHOLE;
use super::prelude::*;
use super::{binary, glu, mul_mat, norm};
use crate::fused_form::{Form, Origin, PRODUCT};

pub static OPERATIONS: &[&dyn Operation] = &[
    &Fused(&norm_mul::RMS_NORM_MUL),
    &Fused(&norm_mul::NORM_MUL),
    &Fused(&mul_mat_add::MUL_MAT_ADD),
    &Fused(&mul_mat_swiglu::MUL_MAT_SWIGLU),
];

/// The families of the operations that are fused.
static PARTS: &[&[&dyn Operation]] = &[norm::OPERATIONS, binary::OPERATIONS, mul_mat::OPERATIONS, glu::OPERATIONS];

/// Whether a source is a factor of a product.
fn is_factor(form: &Form, slot: usize) -> bool {
    let products = form.parts.iter().filter(|part| part.op == PRODUCT);
    products.flat_map(|part| part.sources).any(|from| *from == Origin::Source(slot))
}

#[derive(Debug)]
struct Fused(&'static Form);

fn operation(node: &Node) -> Result<&'static dyn Operation, Unsupported> {
    let found = PARTS.iter().copied().flatten().find(|op| op.name() == node.op);
    found.copied().ok_or_else(|| Unsupported::Operation { op: node.op.clone() })
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        for part in self.0.nodes(node)? {
            let op = operation(&part)?;
            op.check(&part)?;
            if let Some(whole) = part.inputs().find(|tensor| part.op == PRODUCT && WHOLE.contains(&tensor.dtype)) {
                return wrong_type(self.name(), "a factor", whole.dtype, "floats and quantised weights");
            }
            if op.placement(&part) != Placement::Array {
                return shape(self.name(), format!("{} is not computed on the array", part.op));
            }
        }
        Ok(())
    }

    /// As the product's own operands, whichever they are.
    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        match index.filter(|slot| is_factor(self.0, *slot)).and_then(|slot| node.source(slot)) {
            Some(tensor) => mul_mat::array_type(tensor.dtype, default),
            None => default,
        }
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        vec![(self.0.example)(dtype)]
    }

    fn fused_form(&self) -> Option<&'static Form> {
        Some(self.0)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let steps = self.0.parts.iter().zip(self.0.nodes(node)?).map(|(part, node)| {
            let kernel = operation(&node)?.reference(&node)?;
            Ok(Step { kernel, from: part.sources, bytes: node.output.span_bytes() })
        });
        let mut steps = steps.collect::<Result<Vec<Step>, Unsupported>>()?;
        let last = steps.pop().ok_or_else(|| Unsupported::Operation { op: node.op.clone() })?;
        Ok(kernel(node, None, move |inputs, output| {
            let mut results: Vec<Vec<u8>> = Vec::with_capacity(steps.len());
            for step in &steps {
                let mut result = vec![0; step.bytes];
                step.kernel.run(&step.inputs(inputs, &results), &mut result)?;
                results.push(result);
            }
            last.kernel.run(&last.inputs(inputs, &results), output)
        }))
    }
}

/// A part's kernel.
#[derive(Debug)]
struct Step {
    kernel: Arc<dyn HostFunction>,
    from: &'static [Origin],
    bytes: usize,
}

impl Step {
    fn inputs<'a>(&self, sources: &[&'a [u8]], results: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let input = |from: &Origin| match *from {
            Origin::Source(slot) => sources[slot],
            Origin::Made(index) => results[index].as_slice(),
        };
        self.from.iter().map(input).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::artifact::reference_artifact;

    const F32: DataType = DataType::F32;

    fn data(dtype: DataType, ne: [usize; 4], random: &mut Rng) -> Data {
        Data::random(Tensor::contiguous(dtype, ne), random)
    }

    fn single(op: &str, params: OpParams, output: &Tensor, sources: &[&Data]) -> Data {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        run(op, params, *output, &sources).unwrap()
    }

    #[rstest]
    #[case("RMS_NORM_MUL", "RMS_NORM")]
    #[case("NORM_MUL", "NORM")]
    fn a_norm_with_weights_is_the_two_nodes(#[case] fused: &str, #[case] norm: &str) {
        let mut random = Rng::with_seed(7);
        let out = Tensor::contiguous(F32, [33, 3, 2, 1]);
        let (x, weights) = (data(F32, out.ne, &mut random), data(F32, [33, 1, 1, 1], &mut random));
        let epsilon = params(&[(0, 1e-5)]);
        let scaled = single(norm, epsilon, &out, &[&x]);
        let expected = single("MUL", OpParams::default(), &out, &[&scaled, &weights]);
        assert_eq!(single(fused, epsilon, &out, &[&x, &weights]).bytes, expected.bytes);
    }

    #[rstest]
    #[case::residual([20, 5, 1, 1])]
    #[case::bias([20, 1, 1, 1])]
    fn a_product_with_an_addend_is_the_two_nodes(#[case] addend: [usize; 4]) {
        let mut random = Rng::with_seed(8);
        let out = Tensor::contiguous(F32, [20, 5, 1, 1]);
        let (a, b) = (data(DataType::Q8_0, [64, 20, 1, 1], &mut random), data(F32, [64, 5, 1, 1], &mut random));
        let addend = data(F32, addend, &mut random);
        let product = single("MUL_MAT", OpParams::default(), &out, &[&a, &b]);
        let expected = single("ADD", OpParams::default(), &out, &[&product, &addend]);
        assert_eq!(single("MUL_MAT_ADD", OpParams::default(), &out, &[&a, &b, &addend]).bytes, expected.bytes);
    }

    #[rstest]
    fn a_gated_layer_is_the_three_nodes(#[values(F32, DataType::Q8_0)] dtype: DataType) {
        let mut random = Rng::with_seed(9);
        let out = Tensor::contiguous(F32, [24, 3, 1, 1]);
        let [a, b] = [0; 2].map(|_| data(dtype, [64, 24, 1, 1], &mut random));
        let x = data(F32, [64, 3, 1, 1], &mut random);
        let [gates, values] = [&a, &b].map(|weights| single("MUL_MAT", OpParams::default(), &out, &[weights, &x]));
        let expected = single("SWIGLU", OpParams::default(), &out, &[&gates, &values]);
        assert_eq!(single("MUL_MAT_SWIGLU", OpParams::default(), &out, &[&a, &b, &x]).bytes, expected.bytes);
    }

    #[test]
    fn what_the_parts_reject_is_rejected() {
        let tensor = |ne| Some(Tensor::contiguous(F32, ne));
        let out = Tensor::contiguous(F32, [8, 2, 1, 1]);
        let sources = vec![tensor([64, 8, 1, 1]), tensor([32, 2, 1, 1]), tensor([8, 2, 1, 1])];
        let node = Node::new("MUL_MAT_ADD", OpParams::default(), out, sources.clone());
        assert!(find("MUL_MAT_ADD").check(&node).unwrap_err().to_string().contains("64 and 32 elements"));
        let node = Node::new("MUL_MAT_ADD", OpParams::default(), out, sources[..2].to_vec());
        assert!(find("MUL_MAT_ADD").check(&node).unwrap_err().to_string().contains("2 sources given, 3 needed"));
    }

    /// Sizes of a small and a large language model, one and many tokens.
    #[rstest]
    fn fused_nodes_are_made(
        #[values("aie2", "aie2p")] generation: &str,
        #[values([576, 1536], [4096, 14336])] sizes: [usize; 2],
        #[values(1, 128)] tokens: usize,
    ) {
        let (arch, [width, inner]) = (arch(generation), sizes);
        let tensor = |dtype, a, b| Some(Tensor::contiguous(dtype, [a, b, 1, 1]));
        let check = |op: &str, output: [usize; 2], sources: Vec<Option<Tensor>>| {
            let output = Tensor::contiguous(F32, [output[0], output[1], 1, 1]);
            let node = Node::new(op, OpParams::default(), output, sources);
            reference_artifact(find(op), &node, &arch).unwrap();
        };
        let x = tensor(F32, width, tokens);
        check("RMS_NORM_MUL", [width, tokens], vec![x, tensor(F32, width, 1)]);
        let weights = tensor(DataType::Q8_0, width, inner);
        check("MUL_MAT_SWIGLU", [inner, tokens], vec![weights, weights, x]);
        let down = tensor(DataType::Q8_0, inner, width);
        check("MUL_MAT_ADD", [width, tokens], vec![down, tensor(F32, inner, tokens), x]);
    }
}
