//! FLASH_ATTN_EXT: attention in one operation.
//!
//! The kernel reads queries, keys, values and the mask in the types and with the strides they have. In llama.cpp they are views
//! of the KV cache; a packed or converted copy of them would move the whole cache for every token.

use super::cpu::attention::{Attention, Sources};
use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&FlashAttention];

const NAME: &str = "FLASH_ATTN_EXT";
/// `GGML_PREC_DEFAULT` and `GGML_PREC_F32` (ggml.h), in word 3 of the parameters. Sums are f32 for both.
const PRECISIONS: [i32; 2] = [0, 10];

/// Sources: queries f32 `[dk, tokens, heads, batch]`, keys `[dk, keys, k heads, k batch]`, values `[dv, keys, v heads, v batch]`,
/// mask f16 `[>= keys, >= tokens, m2, m3]` and sinks f32 `[heads]`, the last two optional. Result: f32
/// `[dv, heads, tokens, batch]`. Parameters: scale, ALiBi's largest bias, soft cap, precision.
struct FlashAttention;

impl Operation for FlashAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 5)?;
        let (q, k, v) = (source(NAME, node, 0)?, source(NAME, node, 1)?, source(NAME, node, 2)?);
        for (operand, tensor) in [("the queries", q), ("the result", &node.output)] {
            typed(NAME, operand, tensor, DataType::F32)?;
        }
        for (operand, tensor) in [("the keys", k), ("the values", v)] {
            if !FLOATS.contains(&tensor.dtype) && !tensor.dtype.is_quantised() {
                return wrong_type(NAME, operand, tensor.dtype, "f32, f16, bf16 and quantised types");
            }
            dense_rows(NAME, tensor)?;
        }
        dense_rows(NAME, q)?;
        require(NAME, q.ne[0] > 0 && q.ne[0] == k.ne[0], || {
            format!("queries have {} elements, keys {}; they must be equal and not 0", q.ne[0], k.ne[0])
        })?;
        require(NAME, k.ne[1] == v.ne[1], || format!("there are {} keys and {} values", k.ne[1], v.ne[1]))?;
        for (operand, tensor) in [("keys", k), ("values", v)] {
            require(NAME, divides(tensor, q), || {
                format!("heads and batch of {operand} {:?} do not divide those of the queries {:?}", tensor.ne, q.ne)
            })?;
        }
        let expected = [v.ne[0], q.ne[2], q.ne[1], q.ne[3]];
        require(NAME, node.output.ne == expected && node.output.is_contiguous(), || {
            format!("the result has extents {:?}; they must be {expected:?}, without gaps", node.output.ne)
        })?;
        let precision = node.params.int(3);
        require(NAME, PRECISIONS.contains(&precision), || format!("precision {precision} is not known"))?;
        if let Some(mask) = node.source(3) {
            typed(NAME, "the mask", mask, DataType::F16)?;
            dense_rows(NAME, mask)?;
            require(NAME, mask.ne[0] >= k.ne[1] && mask.ne[1] >= q.ne[1] && divides(mask, q), || {
                let (keys, tokens) = (k.ne[1], q.ne[1]);
                format!(
                    "a mask with extents {:?} does not fit {keys} keys and {tokens} tokens; further extents must divide {:?}",
                    mask.ne,
                    &q.ne[2..]
                )
            })?;
        } else {
            let bias = node.params.float(1);
            require(NAME, bias <= 0.0, || format!("ALiBi (max_bias {bias}) needs a mask"))?;
        }
        if let Some(sinks) = node.source(4) {
            typed(NAME, "the sinks", sinks, DataType::F32)?;
            require(NAME, sinks.ne[0] >= q.ne[2], || format!("{} sinks given for {} heads", sinks.ne[0], q.ne[2]))?;
            dense_rows(NAME, sinks)?;
        }
        Ok(())
    }

    /// A mask can have more rows than there are queries.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(3)
    }

    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        index.and_then(|index| node.source(index)).map_or(default, |tensor| tensor.dtype)
    }

    fn keeps_strides(&self, _: &Node, index: usize) -> bool {
        index < 4
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        // The table lists types of source 0. For this operation the type of keys and values is what matters, which are
        // documented beside the table; queries have one type.
        let tensor = Tensor::contiguous;
        let (q, output) = (tensor(dtype, [256, 4, 8, 1]), tensor(DataType::F32, [256, 8, 4, 1]));
        let cache = tensor(DataType::F16, [256, 64, 2, 1]);
        let mask = tensor(DataType::F16, [64, 4, 1, 1]);
        vec![Node::new(NAME, OpParams::default(), output, vec![Some(q), Some(cache), Some(cache), Some(mask)])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [q, k, v] = arguments(node);
        let [mask, sinks] = [3, 4].map(|slot| KernelInput::of(node, slot));
        let attention = Attention {
            q: q.tensor,
            k: k.tensor,
            v: v.tensor,
            mask: mask.map(|mask| mask.tensor),
            scale: node.params.float(0),
            max_bias: node.params.float(1),
            softcap: node.params.float(2),
        };
        Ok(kernel(node, None, move |inputs, output| {
            let [mask, sinks] = [mask, sinks].map(|source| source.map(|source| inputs[source.position]));
            attention.run(NAME, Sources { q: inputs[0], k: inputs[1], v: inputs[2], mask, sinks }, output)
        }))
    }
}

/// Whether heads and batch of `tensor` divide those of the queries.
fn divides(tensor: &Tensor, q: &Tensor) -> bool {
    (2..4).all(|d| tensor.ne[d] > 0 && q.ne[d].is_multiple_of(tensor.ne[d]))
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
