//! Operations whose cores keep something while the rest passes: queries past which keys and values stream, and states that are
//! carried from token to token.

use super::{CoreMemory, DEFAULT_STACK_BYTES, Design, Flow, all_cores, bytes_of};
use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::Arch;

/// The fewest rows (query heads of a group times tokens) of a core, and keys of a block.
const FEWEST: usize = 4;

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

    let memory = |rows: usize, keys: usize| {
        let rows = rows.min(all_rows.div_ceil(cores));
        let words = |elements: usize| bytes_of(DataType::F32, elements);
        let row = |dtype: DataType, length: usize| bytes_of(dtype, length).next_multiple_of(4);
        let line = |mask: &Tensor| bytes_of(mask.dtype, keys).saturating_mul(rows * cores).next_multiple_of(4);
        let block = keys
            .saturating_mul(row(k.dtype, dk).saturating_add(row(v.dtype, dv)))
            .saturating_add(node.source(3).map_or(0, line));
        let sinks = if node.source(4).is_some() { rows } else { 0 };
        let memory = CoreMemory::new(DEFAULT_STACK_BYTES)
            .with(format!("queries, {rows} rows"), words(rows.saturating_mul(dk).saturating_add(sinks)), 1)
            .with(format!("block of {keys} keys, values, mask"), block, 2)
            .with("scores", words(rows * keys), 1)
            .with("maxima and totals", words(2 * rows), 1)
            // The running sums are the result in the end.
            .with("output", words(rows.saturating_mul(dv)), 1);
        let coded = [(k.dtype, dk), (v.dtype, dv)].into_iter().filter(|(dtype, _)| dtype.is_quantised());
        match coded.map(|(_, length)| length).max() {
            Some(length) => memory.with("row, decoded", words(length), 1),
            None => memory,
        }
    };
    // More rows would save passes over keys and values, longer blocks synchronisation; the smallest decide whether it fits.
    memory(FEWEST, FEWEST).check(op, arch)?;
    Ok(Design::new(Flow::Attention, (heads / shared).saturating_mul(batch), cores, arch))
}

/// A recurrence over the tokens of sequences. Rows of its states do not depend on each other.
#[derive(Debug, Clone, Copy)]
pub struct Recurrence {
    /// States: heads times sequences.
    pub units: usize,
    /// Rows of a state.
    pub rows: usize,
    /// Bytes of a row of state, in the type the cores compute in.
    pub row_bytes: usize,
    /// Bytes a core needs beside its state for all tokens.
    pub resident_bytes: usize,
    /// Bytes of a token that every core of a unit reads.
    pub shared_bytes: usize,
    /// Bytes of a token for one row of state.
    pub input_bytes: usize,
    /// Bytes a token gives for one row of state.
    pub output_bytes: usize,
}

/// Plans as many cores as there are blocks of rows. A block is a part of one state that stays in a core's memory while all tokens
/// of its sequence pass, so that state is read and written once; it is a whole state when half of the core holds it and enough
/// states keep all cores busy. What a unit's cores share is sent to all of them by the mem tile of their column. The state comes
/// in on the stream of the inputs and leaves on the stream of the outputs.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn recurrent(op: &'static str, recurrence: &Recurrence, arch: &Arch) -> Result<Design, Unsupported> {
    // Blocks are halved until every core has one, but not below what a vector of outputs fills.
    const FEWEST_ROWS: usize = 16;
    let mut rows = recurrence.rows.max(1);
    loop {
        let memory = recurrence.memory(rows);
        let blocks = recurrence.units.saturating_mul(recurrence.rows.div_ceil(rows)).max(1);
        let too_few = blocks < all_cores(arch) && rows > FEWEST_ROWS;
        if rows == 1 || (memory.fits(arch) && !too_few) {
            memory.check(op, arch)?;
            let cores = blocks.min(arch.array.core_rows);
            return Ok(Design::new(Flow::Recurrence, blocks.div_ceil(cores), cores, arch));
        }
        rows = rows.div_ceil(2);
    }
}

impl Recurrence {
    /// What a core needs for `rows` rows of a state.
    fn memory(&self, rows: usize) -> CoreMemory {
        CoreMemory::new(DEFAULT_STACK_BYTES)
            .with("state", self.row_bytes.saturating_mul(rows), 1)
            .with("decay", self.resident_bytes, 1)
            .with("sources of a token, shared", self.shared_bytes, 2)
            .with("sources of a token, by row", self.input_bytes.saturating_mul(rows), 2)
            .with("output of a token", self.output_bytes.saturating_mul(rows), 2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::{F16, F32, Q4_0};
    use rstest::rstest;

    fn node(dtype: DataType, size: usize, tokens: usize, heads: usize, kv_heads: usize) -> Node {
        let cache = Some(Tensor::contiguous(dtype, [size, 256, kv_heads, 1]));
        let q = Tensor::contiguous(F32, [size, tokens, heads, 1]);
        let mask = Tensor::contiguous(F16, [256, tokens, 1, 1]);
        let output = Tensor::contiguous(F32, [size, heads, tokens, 1]);
        Node::new("FLASH_ATTN_EXT", OpParams::default(), output, vec![Some(q), cache, cache, Some(mask)])
    }

    #[rstest]
    #[case::a_token("aie2p", node(F16, 64, 1, 9, 3), (3, 3))]
    #[case::a_prompt("aie2p", node(F16, 64, 128, 9, 3), (3, 4))]
    #[case::many_heads("aie2p", node(F16, 128, 1, 32, 8), (8, 4))]
    #[case::fewer_columns("aie2", node(F16, 128, 1, 32, 8), (4, 4))]
    #[case::shared_by_all("aie2p", node(F16, 576, 1, 128, 1), (1, 4))]
    #[case::quantised("aie2p", node(Q4_0, 128, 32, 32, 8), (8, 4))]
    #[case::large_heads("aie2p", node(F32, 512, 1, 8, 4), (4, 2))]
    fn heads_are_spread_over_columns(#[case] generation: &str, #[case] node: Node, #[case] expected: (usize, usize)) {
        let design = attention("FLASH_ATTN_EXT", &node, &arch(generation)).unwrap();
        assert_eq!((design.columns, design.cores_per_column), expected, "{design:?}");
    }

    fn scan(units: usize, rows: usize, length: usize) -> Recurrence {
        Recurrence {
            units,
            rows,
            row_bytes: length * 4,
            resident_bytes: 4,
            shared_bytes: 2 * length * 4,
            input_bytes: 4,
            output_bytes: 4,
        }
    }

    /// Expected are columns and cores in each.
    #[rstest]
    #[case::mamba2("aie2p", scan(80, 64, 128), [8, 4])]
    #[case::too_large_for_a_core("aie2p", scan(32, 128, 128), [8, 4])]
    #[case::few_heads("aie2p", scan(8, 64, 256), [8, 4])]
    #[case::mamba1("aie2p", scan(1024, 1, 16), [8, 4])]
    #[case::single("aie2", scan(1, 16, 16), [1, 1])]
    fn state_stays_in_the_cores(
        #[case] generation: &str,
        #[case] recurrence: Recurrence,
        #[case] expected: [usize; 2],
    ) {
        let design = recurrent("SSM_SCAN", &recurrence, &arch(generation)).unwrap();
        assert_eq!([design.columns, design.cores_per_column], expected, "{design:#?}");
    }

    #[test]
    fn what_exceeds_a_core_is_rejected() {
        let heads = attention("FLASH_ATTN_EXT", &node(F32, 4096, 8, 8, 8), &arch("aie2p")).unwrap_err().to_string();
        assert!(heads.contains("block of 4 keys, values, mask 2 x"), "{heads}");
        let row = recurrent("SSM_SCAN", &scan(1, 4, 20_000), &arch("aie2p")).unwrap_err().to_string();
        assert!(row.contains("state 1 x 80000"), "{row}");
    }
}
