//! Operations that order the elements of a row: sorting all of it, or finding the largest few.
//!
//! A core sorts pairs of value and index. A run that fits the core is sorted there; longer rows are runs that a mem tile keeps
//! and the core merges two by two. Between two merges the whole row is kept twice, so a row that a mem tile cannot keep so
//! would need scratch memory outside the array, which kernels do not have.

use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer, bytes_of};
use crate::node::Node;
use crate::operation::Unsupported;
use aie_hal::Arch;

/// Bytes of a value with its index.
const PAIR_BYTES: usize = 8;
/// Bytes of a piece of a row that streams through a core.
const PIECE_BYTES: usize = 4096;

/// Bytes of a row of source 0; 0 without one.
fn source_row(node: &Node) -> usize {
    node.source(0).map_or(0, |source| bytes_of(source.dtype, source.ne[0]))
}

/// Plans a sort of each row of source 0, one core in each column, rows dealt out to the columns.
///
/// # Errors
/// [`Unsupported::Resources`] for rows that a mem tile cannot keep twice as pairs.
pub fn sort(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let length = node.output.ne[0];
    let pairs = length.saturating_mul(PAIR_BYTES);
    let (source, output) = (source_row(node), bytes_of(node.output.dtype, length));
    let mut design = Design {
        flow: Flow::Sort,
        columns: node.output.rows().clamp(1, arch.array.columns),
        cores_per_column: 1,
        core_buffers: vec![
            TileBuffer::new("source 0", source, 2),
            TileBuffer::new("pairs", pairs, 1),
            TileBuffer::new("output", output, 2),
        ],
        mem_tile_buffers: vec![],
        core_inputs: 1,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: 1,
    };
    if !design.fits_core(arch) {
        // Two sorted runs come in, one goes out; the row enters and leaves in pieces of the same streams.
        design.core_buffers = vec![
            TileBuffer::new("first run", PIECE_BYTES, 2),
            TileBuffer::new("second run", PIECE_BYTES, 2),
            TileBuffer::new("pairs", 2 * PIECE_BYTES, 1),
            TileBuffer::new("output", PIECE_BYTES, 2),
        ];
        design.mem_tile_buffers = vec![TileBuffer::new("pairs", pairs, 2)];
        design.core_inputs = 2;
    }
    design.check(op, arch)?;
    Ok(design)
}

/// Plans the search for the largest elements of each row of source 0, as many as a row of the output has. The row streams
/// through a core, which keeps the candidates; it can be of any length.
///
/// # Errors
/// [`Unsupported::Resources`] when the candidates do not fit a core; they would have to be sorted.
pub fn select(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let count = node.output.ne[0];
    let design = Design {
        flow: Flow::Selection,
        columns: node.output.rows().clamp(1, arch.array.columns),
        cores_per_column: 1,
        core_buffers: vec![
            TileBuffer::new("source 0", source_row(node).min(PIECE_BYTES), 2),
            TileBuffer::new("candidates", count.saturating_mul(2 * PAIR_BYTES), 1),
            TileBuffer::new("output", bytes_of(node.output.dtype, count), 1),
        ],
        mem_tile_buffers: vec![],
        core_inputs: 1,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: 1,
    };
    design.check(op, arch)?;
    Ok(design)
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::{F32, I32};
    use crate::tensor::Tensor;
    use rstest::rstest;

    fn node(from: usize, to: usize) -> Node {
        let tensor = |dtype, row| Tensor::contiguous(dtype, [row, 6, 1, 1]);
        Node::new("ARGSORT", OpParams::default(), tensor(I32, to), vec![Some(tensor(F32, from))])
    }

    #[rstest]
    #[case::in_the_core(2048, Some((1, 0)))]
    #[case::in_the_mem_tile(32_768, Some((2, 524_288)))]
    #[case::nowhere(32_769, None)]
    fn long_rows_are_merged_in_the_mem_tile(#[case] row: usize, #[case] expected: Option<(usize, usize)>) {
        let design = sort("ARGSORT", &node(row, row), &arch("aie2p")).ok();
        let found = design.map(|d| (d.core_inputs, d.mem_tile_buffers.iter().map(TileBuffer::total).sum()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_vocabulary_streams_past_the_candidates() {
        let design = select("TOP_K", &node(151_936, 40), &arch("aie2")).unwrap();
        let buffers: Vec<_> = design.core_buffers.iter().map(|b| (b.role.as_str(), b.bytes, b.depth)).collect();
        assert_eq!(buffers, [("source 0", 4096, 2), ("candidates", 640, 1), ("output", 160, 1)]);
        assert!(select("TOP_K", &node(151_936, 10_000), &arch("aie2")).is_err());
    }
}
