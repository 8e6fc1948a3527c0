//! Several nodes of a graph as one dispatch.
//!
//! ggml's graph has a node for every step: a norm and the product with its weights, the two projections of a gated layer and
//! the gate, a product and the sum that takes it. Between them values would go to memory and back, and each costs a dispatch.
//! The operations of this family stand for such groups. No graph names them: the recorder of a graph looks for the groups and
//! makes these nodes (the ggml bridge does). Each is defined by the single operations it stands for, which its reference kernel
//! runs one after the other, so that results do not depend on whether nodes were fused.
//!
//! Sources: `RMS_NORM_MUL` and `NORM_MUL` take the row and its weights; `MUL_MAT_ADD` the two sources of the product and
//! the addend; `MUL_MAT_QKV_ROPE` the weights of queries, keys and values, the right operand they share, and what `ROPE` takes
//! behind its first source (queries and keys are rotated, and there are three results); `MUL_MAT_SWIGLU` and its kin the weights
//! of the gate, the weights of the values, and the right operand. Parameters are those of the norm, the product, the
//! rotation or the gate. Intermediate values are f32.

use super::cpu::integers::WHOLE;
use super::prelude::*;
use super::{binary, glu, mul_mat, norm, rope};

pub static OPERATIONS: &[&dyn Operation] = &[
    &Fused { name: "RMS_NORM_MUL", form: Form::NormMul { norm: "RMS_NORM" } },
    &Fused { name: "NORM_MUL", form: Form::NormMul { norm: "NORM" } },
    &Fused { name: "MUL_MAT_ADD", form: Form::MulMatAdd },
    &Fused { name: "MUL_MAT_QKV_ROPE", form: Form::Projections },
    &Fused { name: "MUL_MAT_REGLU", form: Form::MulMatGlu { gate: "REGLU" } },
    &Fused { name: "MUL_MAT_GEGLU", form: Form::MulMatGlu { gate: "GEGLU" } },
    &Fused { name: "MUL_MAT_SWIGLU", form: Form::MulMatGlu { gate: "SWIGLU" } },
    &Fused { name: "MUL_MAT_GEGLU_ERF", form: Form::MulMatGlu { gate: "GEGLU_ERF" } },
    &Fused { name: "MUL_MAT_GEGLU_QUICK", form: Form::MulMatGlu { gate: "GEGLU_QUICK" } },
];

/// The families of the operations that are fused.
static PARTS: &[&[&dyn Operation]] =
    &[norm::OPERATIONS, binary::OPERATIONS, mul_mat::OPERATIONS, rope::OPERATIONS, glu::OPERATIONS];

/// Which of the projections is not rotated.
const VALUES: usize = 2;

/// Which nodes a fused operation stands for.
#[derive(Debug, Clone, Copy)]
enum Form {
    NormMul { norm: &'static str },
    MulMatAdd,
    Projections,
    MulMatGlu { gate: &'static str },
}

/// Where a part gets a source from.
#[derive(Debug, Clone, Copy)]
enum From {
    /// A source of the fused node.
    Source(usize),
    /// The result of an earlier part.
    Part(usize),
}

/// One of the nodes, the last of which give the results.
struct Part {
    node: Node,
    from: Vec<From>,
}

struct Fused {
    name: &'static str,
    form: Form,
}

impl Fused {
    fn parts(&self, node: &Node) -> Result<Vec<Part>, Unsupported> {
        let get = |slot| Ok((*source(self.name, node, slot)?, From::Source(slot)));
        let between = |ne| Tensor::contiguous(DataType::F32, ne);
        let product = |(a, _): &(Tensor, From), b: &Tensor| between([a.ne[1], b.ne[1], b.ne[2], b.ne[3]]);
        let part = |op: &str, params, output, sources: &[(Tensor, From)]| Part {
            node: Node::new(op, params, output, sources.iter().map(|(tensor, _)| Some(*tensor)).collect()),
            from: sources.iter().map(|(_, from)| *from).collect(),
        };
        let plain = OpParams::default();
        let (count, results) = match self.form {
            Form::NormMul { .. } => (2, 1),
            Form::MulMatAdd | Form::MulMatGlu { .. } => (3, 1),
            Form::Projections => (node.sources.len().clamp(5, 6), 3),
        };
        for (what, given, needed) in
            [("sources", node.sources.len(), count), ("results", node.outputs().count(), results)]
        {
            require(self.name, given == needed, || format!("{given} {what} given, {needed} needed"))?;
        }
        Ok(match self.form {
            Form::NormMul { norm } => {
                let (x, weights) = (get(0)?, get(1)?);
                let scaled = between(x.0.ne);
                vec![
                    part(norm, node.params, scaled, &[x]),
                    part("MUL", plain, node.output, &[(scaled, From::Part(0)), weights]),
                ]
            }
            Form::MulMatAdd => {
                let (a, b, addend) = (get(0)?, get(1)?, get(2)?);
                let product = product(&a, &b.0);
                vec![
                    part("MUL_MAT", node.params, product, &[a, b]),
                    part("ADD", plain, node.output, &[(product, From::Part(0)), addend]),
                ]
            }
            Form::Projections => {
                let (x, positions) = (get(3)?, get(4)?);
                let mut parts = Vec::new();
                for slot in 0..3 {
                    let weights = get(slot)?;
                    let output = if slot == VALUES { node.further_outputs[1] } else { product(&weights, &x.0) };
                    parts.push(part("MUL_MAT", plain, output, &[weights, x]));
                }
                let values = parts.pop();
                for (index, output) in node.outputs().take(VALUES).enumerate() {
                    // Heads are rows of the rotation, tokens its matrices: the same bytes.
                    let heads = between(output.ne);
                    require(self.name, heads.elements() == parts[index].node.output.elements(), || {
                        format!("result {index} has extents {:?}, which are not its product's", output.ne)
                    })?;
                    let mut sources = vec![(heads, From::Part(index)), positions];
                    sources.extend((node.sources.len() > 5).then(|| get(5)).transpose()?);
                    parts.push(part("ROPE", node.params, *output, &sources));
                }
                parts.extend(values);
                parts
            }
            Form::MulMatGlu { gate } => {
                let (a, b, x) = (get(0)?, get(1)?, get(2)?);
                let (gates, values) = (product(&a, &x.0), product(&b, &x.0));
                let halves = [(gates, From::Part(0)), (values, From::Part(1))];
                vec![
                    part("MUL_MAT", plain, gates, &[a, x]),
                    part("MUL_MAT", plain, values, &[b, x]),
                    part(gate, node.params, node.output, &halves),
                ]
            }
        })
    }

    fn operation(&self, part: &Part) -> Result<&'static dyn Operation, Unsupported> {
        let mut operations = PARTS.iter().copied().flatten();
        let found = operations.find(|op| op.name() == part.node.op);
        found.copied().ok_or_else(|| Unsupported::Operation { op: part.node.op.clone() })
    }
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        for part in self.parts(node)? {
            let op = self.operation(&part)?;
            op.check(&part.node)?;
            if let Some(whole) =
                part.node.inputs().find(|tensor| part.node.op == "MUL_MAT" && WHOLE.contains(&tensor.dtype))
            {
                return wrong_type(self.name, "a factor", whole.dtype, "floats and quantised weights");
            }
            if op.placement(&part.node) != Placement::Array {
                return shape(self.name, format!("{} is not computed on the array", part.node.op));
            }
        }
        Ok(())
    }

    /// As the rotation: more positions and frequency factors than needed can be given.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        !(matches!(self.form, Form::Projections) && matches!(index, Some(4 | 5)))
    }

    /// As the product's own operands, whichever they are.
    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        let products = match self.form {
            Form::NormMul { .. } => 0..0,
            Form::MulMatAdd => 0..2,
            Form::MulMatGlu { .. } => 0..3,
            Form::Projections => 0..4,
        };
        match index.and_then(|slot| node.source(slot).filter(|_| products.contains(&slot))) {
            Some(tensor) => mul_mat::array_type(tensor.dtype, default),
            None => default,
        }
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = Tensor::contiguous;
        let f32s = |ne| Some(tensor(DataType::F32, ne));
        let (weights, x, out) = (Some(tensor(dtype, [512, 8, 1, 1])), f32s([512, 2, 1, 1]), [8, 2, 1, 1]);
        let (row, plain) = (Some(tensor(dtype, [512, 2, 1, 1])), OpParams::default());
        let (output, sources) = match self.form {
            Form::NormMul { .. } => ([512, 2, 1, 1], vec![row, f32s([512, 1, 1, 1])]),
            Form::MulMatAdd => (out, vec![weights, x, f32s(out)]),
            Form::MulMatGlu { .. } => (out, vec![weights, weights, x]),
            Form::Projections => (out, vec![weights, weights, weights, x, Some(tensor(DataType::I32, [2, 1, 1, 1]))]),
        };
        let mut node = Node::new(self.name, plain, tensor(DataType::F32, output), sources);
        if matches!(self.form, Form::Projections) {
            node.further_outputs = vec![node.output; 2];
            node.output = tensor(DataType::F32, [8, 1, 2, 1]);
            node.further_outputs[0] = node.output;
            // Dimensions that are rotated, and the base of the angles.
            (node.params.0[1], node.params.0[5]) = (8, 10_000f32.to_bits().cast_signed());
        }
        vec![node]
    }

    fn stands_for(&self) -> Vec<&'static str> {
        match self.form {
            Form::NormMul { norm } => vec![norm, "MUL"],
            Form::MulMatAdd => vec!["MUL_MAT", "ADD"],
            Form::Projections => vec!["MUL_MAT", "MUL_MAT", "MUL_MAT", "ROPE", "ROPE"],
            Form::MulMatGlu { gate } => vec!["MUL_MAT", "MUL_MAT", gate],
        }
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let steps = self.parts(node)?.into_iter().map(|part| {
            let kernel = self.operation(&part)?.reference(&part.node)?;
            Ok(Step { kernel, from: part.from, bytes: part.node.output.span_bytes() })
        });
        let steps = steps.collect::<Result<Vec<Step>, Unsupported>>()?;
        let first_result = steps.len() - node.outputs().count();
        Ok(kernel_of_all(node, None, move |inputs, outputs| {
            let (earlier, last) = steps.split_at(first_result);
            let mut results: Vec<Vec<u8>> = Vec::with_capacity(earlier.len());
            for step in earlier {
                let mut result = vec![0; step.bytes];
                step.kernel.run(&step.inputs(inputs, &results), &mut result)?;
                results.push(result);
            }
            last.iter()
                .zip(outputs)
                .try_for_each(|(step, output)| step.kernel.run(&step.inputs(inputs, &results), output))
        }))
    }
}

/// A part's kernel.
#[derive(Debug)]
struct Step {
    kernel: Arc<dyn HostFunction>,
    from: Vec<From>,
    bytes: usize,
}

impl Step {
    fn inputs<'a>(&self, sources: &[&'a [u8]], results: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let input = |from: &From| match *from {
            From::Source(slot) => sources[slot],
            From::Part(index) => results[index].as_slice(),
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
    fn a_gated_layer_is_the_three_nodes(
        #[values("REGLU", "GEGLU", "SWIGLU", "GEGLU_ERF", "GEGLU_QUICK")] gate: &str,
        #[values(F32, DataType::Q8_0)] dtype: DataType,
    ) {
        let mut random = Rng::with_seed(9);
        let out = Tensor::contiguous(F32, [24, 3, 1, 1]);
        let [a, b] = [0; 2].map(|_| data(dtype, [64, 24, 1, 1], &mut random));
        let x = data(F32, [64, 3, 1, 1], &mut random);
        let [gates, values] = [&a, &b].map(|weights| single("MUL_MAT", OpParams::default(), &out, &[weights, &x]));
        let expected = single(gate, OpParams::default(), &out, &[&gates, &values]);
        let fused = format!("MUL_MAT_{gate}");
        assert_eq!(single(&fused, OpParams::default(), &out, &[&a, &b, &x]).bytes, expected.bytes);
    }

    #[test]
    fn projections_of_attention_are_the_products_and_rotations() {
        let mut random = Rng::with_seed(10);
        let (tokens, head) = (3, 8);
        let x = data(F32, [64, tokens, 1, 1], &mut random);
        let weights = [24, 8, 8].map(|rows| data(DataType::Q8_0, [64, rows, 1, 1], &mut random));
        let positions = Data::contiguous(DataType::I32, [tokens, 1, 1, 1], &[4.0, 5.0, 9.0]);
        let products = [24, 8, 8].map(|rows| Tensor::contiguous(F32, [rows, tokens, 1, 1]));
        let heads = |rows| Tensor::contiguous(F32, [head, rows / head, tokens, 1]);
        let outputs = [heads(24), heads(8), products[2]];
        let mut angles = params(&[(5, 10_000.0), (6, 1.0), (8, 1.0), (9, 32.0), (10, 1.0)]);
        angles.0[1] = 8;
        let sources = || weights.iter().chain([&x, &positions]);
        let mut node = Node::new("MUL_MAT_QKV_ROPE", angles, outputs[0], sources().map(|d| Some(d.tensor)).collect());
        node.further_outputs = outputs[1..].to_vec();
        let kernel = find("MUL_MAT_QKV_ROPE").reference(&node).unwrap();
        let inputs: Vec<&[u8]> = sources().map(|data| data.bytes.as_slice()).collect();
        let mut found = outputs.map(|output| vec![0; output.span_bytes()]);
        let [q, k, v] = &mut found;
        kernel.run_all(&inputs, &mut [q, k, v]).unwrap();
        for index in 0..3 {
            let product = single("MUL_MAT", OpParams::default(), &products[index], &[&weights[index], &x]);
            let expected = if index < 2 {
                let heads = Data { tensor: outputs[index], bytes: product.bytes };
                single("ROPE", angles, &outputs[index], &[&heads, &positions])
            } else {
                product
            };
            assert_eq!(found[index], expected.bytes, "result {index}");
        }
        assert!(kernel.run_all(&inputs, &mut [&mut found[0]]).is_err());
        let name = crate::name::kernel_name(find("MUL_MAT_QKV_ROPE"), &node);
        let start = "mul_mat_qkv_rope-8x3x3f32-8x1x3f32-8x3f32-64x24q8_0-64x8q8_0-64x8q8_0-64x3f32-3i32-";
        assert!(name.starts_with(start), "{name}");
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
        let weights = tensor(DataType::Q8_0, width, width);
        let mut sources = vec![weights; 3];
        sources.extend([x, tensor(DataType::I32, tokens, 1)]);
        let heads = Tensor::contiguous(F32, [64, width / 64, tokens, 1]);
        let mut projections = Node::new("MUL_MAT_QKV_ROPE", params(&[(5, 10_000.0)]), heads, sources);
        projections.params.0[1] = 64;
        projections.further_outputs = vec![heads, Tensor::contiguous(F32, [width, tokens, 1, 1])];
        reference_artifact(find("MUL_MAT_QKV_ROPE"), &projections, &arch).unwrap();
        let down = tensor(DataType::Q8_0, inner, width);
        check("MUL_MAT_ADD", [width, tokens], vec![down, tensor(F32, inner, tokens), x]);
    }
}
