//! Operations that make one element of a row or of a whole tensor: sums, counts, the position of the largest.
//!
//! Nothing has to be kept but a running result, so sources pass once, in tiles, however long a row is.

use super::elementwise::tile_elements;
use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer, bytes_of, sources};
use crate::node::Node;
use crate::operation::Unsupported;
use crate::tensor::Tensor;
use aie_hal::Arch;

/// Bytes of a running result: a sum with its correction, a count, or the largest element and its position.
const RUNNING_BYTES: usize = 16;

/// Plans one core in each column, rows dealt out to the columns; each row of source 0 gives one element of the result. A core
/// collects its results and sends as many at once as fit a tile.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn row_reduction(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let rows = node.source(0).map_or(1, Tensor::rows);
    let results = tile_elements(node.output.dtype, node.output.elements());
    let mut core_buffers = tiles(node);
    let core_inputs = core_buffers.len();
    core_buffers.push(TileBuffer::new("running result", RUNNING_BYTES, 1));
    core_buffers.push(TileBuffer::new("output", bytes_of(node.output.dtype, results), 2));
    let design = Design {
        flow: Flow::Reduction,
        columns: rows.clamp(1, arch.array.columns),
        cores_per_column: 1,
        core_buffers,
        mem_tile_buffers: vec![],
        core_inputs,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: 1,
    };
    design.check(op, arch)?;
    Ok(design)
}

/// Plans one core in each column, `pieces` of the sources dealt out to the columns, and a chain from column to column: each
/// core merges what its neighbour has found into its own result and passes it on, and the last one writes. The chain takes one
/// input stream, so two sources are joined in the mem tile.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn whole_reduction(op: &'static str, node: &Node, arch: &Arch, pieces: usize) -> Result<Design, Unsupported> {
    let columns = pieces.clamp(1, arch.array.columns);
    let chained = usize::from(columns > 1);
    let mut core_buffers = tiles(node);
    let mut mem_tile_buffers = Vec::new();
    if core_buffers.len() + chained > arch.core.dma.s2mm {
        let bytes = core_buffers.iter().map(|buffer| buffer.bytes).sum();
        core_buffers = vec![TileBuffer::new("sources joined", bytes, 2)];
        mem_tile_buffers = core_buffers.clone();
    }
    let core_inputs = core_buffers.len() + chained;
    core_buffers.push(TileBuffer::new("running result", RUNNING_BYTES, 1));
    if chained > 0 {
        core_buffers.push(TileBuffer::new("result of the neighbour", RUNNING_BYTES, 1));
    }
    core_buffers.push(TileBuffer::new("output", RUNNING_BYTES.max(bytes_of(node.output.dtype, 1)), 1));
    let design = Design {
        flow: Flow::Reduction,
        columns,
        cores_per_column: 1,
        core_buffers,
        mem_tile_buffers,
        core_inputs,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: 1,
    };
    design.check(op, arch)?;
    Ok(design)
}

/// A tile of each source, ping-pong.
fn tiles(node: &Node) -> Vec<TileBuffer> {
    let tile = |(slot, source): (usize, &Tensor)| {
        let elements = tile_elements(source.dtype, source.ne[0]);
        TileBuffer::new(format!("source {slot}"), bytes_of(source.dtype, elements), 2)
    };
    sources(node).map(tile).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::{self, F32, I32, I64};
    use rstest::rstest;

    fn node(output: (DataType, [usize; 4]), sources: &[(DataType, [usize; 4])]) -> Node {
        let tensor = |(dtype, ne)| Tensor::contiguous(dtype, ne);
        let sources = sources.iter().map(|source| Some(tensor(*source))).collect();
        Node::new("SUM", OpParams::default(), tensor(output), sources)
    }

    #[rstest]
    #[case(1, 1)]
    #[case(5, 5)]
    #[case(3000, 8)]
    fn rows_are_dealt_out(#[case] rows: usize, #[case] columns: usize) {
        // No row is too long.
        let node = node((I32, [rows, 1, 1, 1]), &[(F32, [1 << 20, rows, 1, 1])]);
        let design = row_reduction("ARGMAX", &node, &arch("aie2p")).unwrap();
        assert_eq!((design.columns, design.core_inputs, design.passes), (columns, 1, 1));
        assert_eq!(design.core_buffers[0].bytes, 512);
        assert!(design.core_buffers.last().unwrap().bytes <= 512);
    }

    #[test]
    fn partial_results_pass_from_column_to_column() {
        let one = [1; 4];
        let node_of = |count| node((I64, one), &vec![(I32, [4096, 2, 1, 1]); count]);
        let design = whole_reduction("SUM", &node_of(1), &arch("aie2p"), 64).unwrap();
        assert_eq!((design.columns, design.core_inputs, design.mem_tile_buffers.len()), (8, 2, 0));
        // Two sources and the neighbour need three streams; a core has two.
        let design = whole_reduction("COUNT_EQUAL", &node_of(2), &arch("aie2"), 64).unwrap();
        assert_eq!((design.columns, design.core_inputs), (4, 2));
        assert_eq!((design.mem_tile_buffers[0].bytes, design.mem_tile_buffers[0].depth), (1024, 2));
        // A single column has no neighbour.
        let design = whole_reduction("COUNT_EQUAL", &node_of(2), &arch("aie2"), 1).unwrap();
        assert_eq!((design.columns, design.core_inputs, design.mem_tile_buffers.len()), (1, 2, 0));
    }
}
