//! MUL_MAT_ID and ADD_ID: mixtures of experts.
//!
//! Source 0 of the product holds a matrix of weights for each expert, and the ids say for each token which experts see it. Which
//! weights are needed is known only when the graph runs, so they keep their type on the array and in the kernel: turning all of
//! them into bf16 would read every expert, a product reads those that were chosen. The same holds for the rows that ADD_ID adds.
//! Shapes: ggml.h (`ggml_mul_mat_id`, `ggml_add_id`).

mod experts;

use super::prelude::*;
use experts::Experts;

pub static OPERATIONS: &[&dyn Operation] = &[&MulMatId, &AddId];

const MUL_MAT_ID: &str = "MUL_MAT_ID";
const ADD_ID: &str = "ADD_ID";

struct MulMatId;

struct AddId;

/// The id at `place` of the ids' bytes, below `end`.
fn chosen(op: &'static str, bytes: &[u8], place: usize, end: usize) -> Result<usize, HostFunctionError> {
    let bytes = &bytes[place..place + 4];
    let id = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    in_range(op, "expert", id.into(), end)
}

impl Operation for MulMatId {
    fn name(&self) -> &'static str {
        MUL_MAT_ID
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32, I32};
        let [weights, x, ids] = sources(MUL_MAT_ID, node)?;
        let out = &node.output;
        match (weights.dtype, x.dtype) {
            (w, F32) if w.is_quantised() || FLOATS.contains(&w) => {}
            (F16, F16) | (BF16, BF16) => {}
            (w, other) if w.is_quantised() || FLOATS.contains(&w) => {
                return wrong_type(MUL_MAT_ID, "source 1", other, "f32; f16 with f16; bf16 with bf16");
            }
            (w, _) => return wrong_type(MUL_MAT_ID, "source 0", w, "f32, f16, bf16, quantised"),
        }
        typed(MUL_MAT_ID, "the ids", ids, I32)?;
        typed(MUL_MAT_ID, "the result", out, F32)?;
        let flat = weights.ne[3] == 1 && x.ne[3] == 1 && ids.ne[2] == 1 && ids.ne[3] == 1;
        require(MUL_MAT_ID, flat, || {
            let (weights, x, ids) = (weights.ne, x.ne, ids.ne);
            format!("weights {weights:?}, source 1 {x:?} and ids {ids:?} may have 3, 3 and 2 dimensions")
        })?;
        require(MUL_MAT_ID, weights.ne[0] == x.ne[0], || {
            format!("rows of {} and {} elements cannot be multiplied", weights.ne[0], x.ne[0])
        })?;
        let [used, tokens, ..] = ids.ne;
        require(MUL_MAT_ID, tokens == x.ne[2] && x.ne[1] > 0 && used.is_multiple_of(x.ne[1]), || {
            format!("ids with extents {:?} do not fit source 1 with {:?}", ids.ne, x.ne)
        })?;
        has_shape(MUL_MAT_ID, "the result", out, [weights.ne[1], used, tokens, 1])?;
        require(MUL_MAT_ID, weights.has_contiguous_rows(), || {
            "rows of source 0 have gaps; they must be contiguous".into()
        })?;
        separate_rows(MUL_MAT_ID, out)
    }

    /// Only the weights of experts that are chosen are read.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(0)
    }

    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        // A conversion would read the weights of all experts; the cores decode those that were chosen.
        match (index, node.source(0)) {
            (Some(0), Some(weights)) => weights.dtype,
            _ => default,
        }
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let weights = Some(Tensor::contiguous(dtype, [512, 8, 4, 1]));
        let x = Some(Tensor::contiguous(DataType::F32, [512, 1, 3, 1]));
        let ids = Some(Tensor::contiguous(DataType::I32, [2, 3, 1, 1]));
        let output = Tensor::contiguous(DataType::F32, [8, 2, 3, 1]);
        vec![Node::new(MUL_MAT_ID, OpParams::default(), output, vec![weights, x, ids])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [weights, x, ids] = arguments(node);
        let experts = Experts { weights: weights.tensor, x: x.tensor, ids: ids.tensor, out: node.output };
        Ok(kernel(node, None, move |inputs, output| {
            experts.run(inputs[weights.position], inputs[x.position], inputs[ids.position], output)
        }))
    }
}

impl Operation for AddId {
    fn name(&self) -> &'static str {
        ADD_ID
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a, b, ids] = sources(ADD_ID, node)?;
        for (operand, tensor) in [("source 0", a), ("source 1", b), ("the result", &node.output)] {
            typed(ADD_ID, operand, tensor, DataType::F32)?;
        }
        typed(ADD_ID, "the ids", ids, DataType::I32)?;
        require(ADD_ID, a.ne[0] == b.ne[0], || {
            format!("rows of {} and {} elements cannot be added", a.ne[0], b.ne[0])
        })?;
        let fits = a.ne[1] == ids.ne[0] && a.ne[2] == ids.ne[1];
        require(ADD_ID, fits, || format!("ids with extents {:?} do not fit source 0 with {:?}", ids.ne, a.ne))?;
        // Only the first matrix of ids and of rows is used; empty ones have none.
        require(ADD_ID, ids.ne[2..].iter().chain(&b.ne[2..]).all(|extent| *extent == 1), || {
            format!("ids {:?} and rows {:?} must be matrices", ids.ne, b.ne)
        })?;
        same_shape(ADD_ID, "source 0", a, &node.output)?;
        dense_rows(ADD_ID, &node.output)
    }

    /// Only the rows that are chosen are read.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(1)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let a = Tensor::contiguous(dtype, [64, 2, 3, 1]);
        let rows = Some(Tensor::contiguous(dtype, [64, 8, 1, 1]));
        let ids = Some(Tensor::contiguous(DataType::I32, [2, 3, 1, 1]));
        vec![Node::new(ADD_ID, OpParams::default(), a, vec![Some(a), rows, ids])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, b, ids] = arguments(node);
        let out = node.output;
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(
                &out,
                output,
                out.elements(),
                #[inline(always)]
                |scratch, row, target| {
                    let Row([slot, token, _]) = row;
                    let place = slot * ids.tensor.nb[0] + token * ids.tensor.nb[1];
                    let expert = chosen(ADD_ID, inputs[ids.position], place, b.tensor.ne[1])?;
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    let bias = read_row(&b, inputs, expert * b.tensor.nb[1], &mut scratch.b);
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| y.iter_mut().zip(x).zip(bias).for_each(|((y, x), bias)| *y = x + bias),
                    );
                    Ok(())
                },
            )
        }))
    }
}

#[cfg(test)]
mod tests;
