//! Attention: keys and values stream past queries that stay.

use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer, bytes_of};
use crate::node::Node;
use crate::operation::Unsupported;
use crate::tensor::DataType;
use aie_hal::Arch;

/// Rows (query heads of a group times tokens) of a core and keys of a block that are tried, largest first.
const EXTENTS: [usize; 5] = [64, 32, 16, 8, 4];

/// Plans attention of ggml's form: source 0 are queries, 1 keys, 2 values, 3 a mask, 4 sinks.
///
/// Columns take heads of keys (of all batches). A column's rows, the query heads that share its keys times the tokens, are
/// spread over its cores. Queries, running sums, maxima and totals of a core's rows stay in it. Blocks of keys, the same keys'
/// values and the mask for them come joined through the column's mem tile, one copy for all its cores, in the types they are
/// stored in; cores convert them, quantised ones row by row. With more rows than its cores hold a column reads its keys and
/// values once for each set of rows. Sinks come with the queries.
///
/// Limits: four rows and four keys of the head's size must fit a core beside each other, about 1000 elements for f16 keys and
/// values with 64 KiB; a single row for each core leaves room for 1600.
///
/// # Errors
/// [`Unsupported::Resources`] when no block fits.
pub fn attention(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let (Some(q), Some(k), Some(v)) = (node.source(0), node.source(1), node.source(2)) else {
        return Err(Unsupported::Shape { op, reason: "attention needs sources 0, 1 and 2".into() });
    };
    let [dk, tokens, heads, batch] = q.ne;
    let dv = node.output.ne[0];
    // Rows that share keys and values.
    let shared = (heads / k.ne[2].max(1)).min(heads / v.ne[2].max(1)).max(1);
    let all_rows = shared.saturating_mul(tokens).max(1);
    let cores = all_rows.clamp(1, arch.array.core_rows);
    let columns = (heads / shared).saturating_mul(batch).clamp(1, arch.array.columns);

    let design = |rows: usize, keys: usize| {
        let rows = rows.min(all_rows.div_ceil(cores));
        let words = |elements: usize| bytes_of(DataType::F32, elements);
        let row = |dtype: DataType, length: usize| bytes_of(dtype, length).next_multiple_of(4);
        let line = |mask: &crate::Tensor| bytes_of(mask.dtype, keys).saturating_mul(rows * cores).next_multiple_of(4);
        let block = keys
            .saturating_mul(row(k.dtype, dk).saturating_add(row(v.dtype, dv)))
            .saturating_add(node.source(3).map_or(0, line));
        let sinks = if node.source(4).is_some() { rows } else { 0 };
        let queries = words(rows.saturating_mul(dk).saturating_add(sinks));
        let results = words(rows.saturating_mul(dv));
        let mut core_buffers = vec![
            TileBuffer::new(format!("queries, {rows} rows"), queries, 1),
            TileBuffer::new(format!("block of {keys} keys, values, mask"), block, 2),
            TileBuffer::new("scores", words(rows * keys), 1),
            TileBuffer::new("maxima and totals", words(2 * rows), 1),
            // The running sums are the result in the end.
            TileBuffer::new("output", results, 1),
        ];
        let longest = [(k.dtype, dk), (v.dtype, dv)].into_iter().filter(|(dtype, _)| dtype.is_quantised());
        if let Some(length) = longest.map(|(_, length)| length).max() {
            core_buffers.push(TileBuffer::new("row, decoded", words(length), 1));
        }
        Design {
            flow: Flow::Attention,
            columns,
            cores_per_column: cores,
            core_buffers,
            mem_tile_buffers: vec![
                TileBuffer::new("queries", queries.saturating_mul(cores), 1),
                TileBuffer::new("keys, values, mask", block, 2),
                TileBuffer::new("output", results.saturating_mul(cores), 1),
            ],
            core_inputs: 2,
            core_outputs: 1,
            stack_bytes: DEFAULT_STACK_BYTES,
            passes: all_rows.div_ceil(rows * cores),
        }
    };
    // More rows save passes over keys and values; longer blocks only save synchronisation.
    let candidates = EXTENTS.into_iter().flat_map(|rows| EXTENTS.into_iter().map(move |keys| (rows, keys)));
    let fitting = candidates.map(|(rows, keys)| design(rows, keys)).find(|design| design.fits(arch));
    let design = fitting.unwrap_or_else(|| design(EXTENTS[4], EXTENTS[4]));
    design.check(op, arch)?;
    Ok(design)
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::{F16, F32, Q4_0};
    use crate::tensor::Tensor;
    use rstest::rstest;

    fn node(dtype: DataType, size: usize, tokens: usize, heads: usize, kv_heads: usize) -> Node {
        let cache = Some(Tensor::contiguous(dtype, [size, 256, kv_heads, 1]));
        let q = Tensor::contiguous(F32, [size, tokens, heads, 1]);
        let mask = Tensor::contiguous(F16, [256, tokens, 1, 1]);
        let output = Tensor::contiguous(F32, [size, heads, tokens, 1]);
        Node::new("FLASH_ATTN_EXT", OpParams::default(), output, vec![Some(q), cache, cache, Some(mask)])
    }

    /// Columns, cores in each, passes over the keys.
    #[rstest]
    #[case::a_token(node(F16, 64, 1, 9, 3), (3, 3, 1))]
    #[case::a_prompt(node(F16, 64, 128, 9, 3), (3, 4, 2))]
    #[case::many_heads(node(F16, 128, 1, 32, 8), (8, 4, 1))]
    #[case::shared_by_all(node(F16, 576, 1, 128, 1), (1, 4, 4))]
    #[case::quantised(node(Q4_0, 128, 32, 32, 8), (8, 4, 1))]
    #[case::large_heads(node(F32, 512, 1, 8, 4), (4, 2, 1))]
    fn heads_are_spread_over_columns(#[case] node: Node, #[case] expected: (usize, usize, usize)) {
        let design = attention("FLASH_ATTN_EXT", &node, &arch("aie2p")).unwrap();
        assert_eq!((design.columns, design.cores_per_column, design.passes), expected, "{design:?}");
        assert_eq!((design.core_inputs, design.core_outputs), (2, 1));
    }

    #[test]
    fn the_smaller_generation_has_fewer_columns() {
        let design = attention("FLASH_ATTN_EXT", &node(F16, 128, 1, 32, 8), &arch("aie2")).unwrap();
        assert_eq!(design.columns, 4);
    }

    #[test]
    fn heads_beyond_a_core_are_refused() {
        let result = attention("FLASH_ATTN_EXT", &node(F32, 4096, 8, 8, 8), &arch("aie2p"));
        let message = result.unwrap_err().to_string();
        assert!(message.contains("block of 4 keys, values, mask 2 x"), "{message}");
    }
}
