//! How much work a node is: the measure of how much of a graph runs where.

use crate::{Node, Operation, Tensor, table};

/// Multiply-accumulates of the products in a node; 0 for operations without products. Those of the functions around them
/// (scales, norms, exponentials) do not count.
pub fn multiply_accumulates(node: &Node) -> u64 {
    let elements = |tensor: &Tensor| tensor.elements() as u64;
    let contracted = |slot: usize| node.source(slot).map_or(0, |source| source.ne[0] as u64);
    match node.op.as_str() {
        "MUL_MAT" | "MUL_MAT_ID" => elements(&node.output).saturating_mul(contracted(0)),
        // Sums over the second dimension.
        "OUT_PROD" => elements(&node.output).saturating_mul(node.source(0).map_or(0, |source| source.ne[1] as u64)),
        // Each query with each key, and each weight with each value: `[dk, tokens, heads, batch]`, `[dk, keys, ...]`, `[dv, ...]`.
        "FLASH_ATTN_EXT" => {
            let (Some(queries), Some(keys)) = (node.source(0), node.source(1)) else { return 0 };
            let pairs =
                queries.ne[1..].iter().chain([&keys.ne[1]]).fold(1, |all: u64, n| all.saturating_mul(*n as u64));
            pairs.saturating_mul(contracted(0) + contracted(2))
        }
        op => table::lookup(op)
            .and_then(Operation::fused_form)
            .and_then(|form| form.nodes(node).ok())
            .map_or(0, |nodes| nodes.iter().map(multiply_accumulates).fold(0, u64::saturating_add)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, OpParams};
    use rstest::rstest;

    fn tensor(ne: [usize; 4]) -> Tensor {
        Tensor::contiguous(DataType::F32, ne)
    }

    #[rstest]
    #[case::product("MUL_MAT", [8, 3, 2, 1], &[[5, 8, 1, 1], [5, 3, 2, 1]], 8 * 3 * 2 * 5)]
    #[case::experts("MUL_MAT_ID", [8, 2, 3, 1], &[[5, 8, 4, 1], [5, 1, 3, 1], [2, 3, 1, 1]], 8 * 2 * 3 * 5)]
    #[case::sum("MUL_MAT_ADD", [8, 3, 1, 1], &[[5, 8, 1, 1], [5, 3, 1, 1], [8, 3, 1, 1]], 8 * 3 * 5)]
    #[case::two_products("MUL_MAT_SWIGLU", [8, 3, 1, 1], &[[5, 8, 1, 1], [5, 8, 1, 1], [5, 3, 1, 1]], 2 * 8 * 3 * 5)]
    #[case::outer("OUT_PROD", [5, 3, 1, 1], &[[5, 7, 1, 1], [3, 7, 1, 1]], 5 * 3 * 7)]
    #[case::attention("FLASH_ATTN_EXT", [32, 4, 2, 1], &[[16, 2, 4, 1], [16, 9, 1, 1], [32, 9, 1, 1]], 2 * 4 * 9 * (16 + 32))]
    #[case::none("ADD", [8, 3, 1, 1], &[[8, 3, 1, 1], [8, 3, 1, 1]], 0)]
    #[case::without_sources("MUL_MAT", [8, 3, 1, 1], &[], 0)]
    fn products_are_counted(#[case] op: &str, #[case] out: [usize; 4], #[case] sources: &[[usize; 4]], #[case] n: u64) {
        let sources = sources.iter().map(|ne| Some(tensor(*ne))).collect();
        assert_eq!(multiply_accumulates(&Node::new(op, OpParams::default(), tensor(out), sources)), n);
    }
}
