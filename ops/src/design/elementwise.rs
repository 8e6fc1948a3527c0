//! Operations that go through their output element by element.

use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer, bytes_of, sources, streams};
use crate::node::Node;
use crate::operation::Unsupported;
use crate::tensor::DataType;
use aie_hal::Arch;

/// Tiles are at most so large (the C++ backend's rule, which kernel sources are written for).
const TILE_BYTES: usize = 512;

/// The number of elements in a tile: as many as 512 bytes hold, halved until it divides the element count.
pub(super) fn tile_elements(dtype: DataType, elements: usize) -> usize {
    let mut tile = (TILE_BYTES / dtype.block_bytes() * dtype.block_elements()).max(dtype.block_elements());
    while tile > dtype.block_elements() && !elements.is_multiple_of(tile) {
        tile /= 2;
    }
    tile
}

/// Plans one core in each column, since one core keeps up with the memory of its column. Tiles of the output are dealt out
/// to the columns. Sources as large as the output, or a multiple of it, pass in tiles beside it; a smaller one, which is
/// repeated, stays in the core when a quarter of the core holds it, in the mem tile when that holds it, and is read again
/// from memory otherwise.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn elementwise(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let elements = node.output.elements();
    let tile = tile_elements(node.output.dtype, elements);
    let mut core_buffers = Vec::new();
    let mut mem_tile_buffers = Vec::new();
    let count = sources(node).count();
    let (core_inputs, joined) = streams(count, arch);
    let mut joined_bytes = 0;
    for (slot, source) in sources(node) {
        let whole = bytes_of(source.dtype, source.elements());
        let ratio = source.elements().div_ceil(elements.max(1)).max(1);
        let part = bytes_of(source.dtype, tile.saturating_mul(ratio));
        let resident = source.elements() < elements && whole <= arch.core.data_bytes / 4;
        if resident {
            core_buffers.push(TileBuffer::new(format!("source {slot}, whole"), whole, 1));
            continue;
        }
        if source.elements() < elements && whole <= arch.mem_tile.data_bytes / 2 / count {
            mem_tile_buffers.push(TileBuffer::new(format!("source {slot}, whole"), whole, 1));
        }
        if joined && slot > 0 {
            joined_bytes += part.next_multiple_of(4);
        } else {
            core_buffers.push(TileBuffer::new(format!("source {slot}"), part, 2));
        }
    }
    if joined_bytes > 0 {
        core_buffers.push(TileBuffer::new("sources joined", joined_bytes, 2));
        mem_tile_buffers.push(TileBuffer::new("sources joined", joined_bytes, 2));
    }
    core_buffers.push(TileBuffer::new("output", bytes_of(node.output.dtype, tile), 2));
    let design = Design {
        flow: Flow::Elements,
        columns: (elements / tile).clamp(1, arch.array.columns),
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

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::{BF16, F32, I8};
    use crate::tensor::Tensor;
    use rstest::rstest;

    #[rstest]
    #[case(F32, 4096, 128)]
    #[case(BF16, 4096, 256)]
    #[case(I8, 4096, 512)]
    #[case(F32, 576, 64)]
    #[case(F32, 3001, 1)]
    fn tiles_divide_the_tensor(#[case] dtype: DataType, #[case] elements: usize, #[case] expected: usize) {
        assert_eq!(tile_elements(dtype, elements), expected);
    }

    fn node(output: [usize; 4], sources: &[[usize; 4]]) -> Node {
        Node::new(
            "ADD",
            OpParams::default(),
            Tensor::contiguous(F32, output),
            sources.iter().map(|ne| Some(Tensor::contiguous(F32, *ne))).collect(),
        )
    }

    #[test]
    fn a_sum_uses_every_column_and_both_streams() {
        let flat = [4096, 1, 1, 1];
        let design = elementwise("ADD", &node(flat, &[flat, flat]), &arch("aie2p")).unwrap();
        assert_eq!((design.columns, design.cores_per_column, design.core_inputs, design.passes), (8, 1, 2, 1));
        let buffers: Vec<_> = design.core_buffers.iter().map(|b| (b.role.as_str(), b.bytes, b.depth)).collect();
        assert_eq!(buffers, [("source 0", 512, 2), ("source 1", 512, 2), ("output", 512, 2)]);
        let design = elementwise("ADD", &node([128, 1, 1, 1], &[[128, 1, 1, 1]]), &arch("aie2p")).unwrap();
        assert_eq!(design.columns, 1);
    }

    #[rstest]
    #[case::core(576, "source 1, whole", 2304, 0)]
    #[case::mem_tile(8192, "source 1", 512, 32768)]
    #[case::memory(65536, "source 1", 512, 0)]
    fn a_repeated_source_stays_near(
        #[case] row: usize,
        #[case] role: &str,
        #[case] core: usize,
        #[case] mem_tile: usize,
    ) {
        let design = elementwise("ADD", &node([row, 9, 1, 1], &[[row, 9, 1, 1], [row, 1, 1, 1]]), &arch("aie2p"));
        let design = design.unwrap();
        let buffer = &design.core_buffers[1];
        assert!(buffer.role == role && buffer.bytes <= core, "{buffer:?}");
        assert_eq!(design.mem_tile_buffers.iter().map(|b| b.bytes).sum::<usize>(), mem_tile);
    }

    #[test]
    fn both_halves_of_a_gated_source_arrive_together() {
        let design = elementwise("SWIGLU", &node([512, 4, 1, 1], &[[1024, 4, 1, 1]]), &arch("aie2")).unwrap();
        assert_eq!((design.core_buffers[0].bytes, design.core_inputs), (1024, 1));
    }

    #[test]
    fn a_third_source_is_joined_in_the_mem_tile() {
        let ne = [1024, 1, 1, 1];
        let design = elementwise("ADD", &node(ne, &[ne, ne, ne]), &arch("aie2")).unwrap();
        assert_eq!(design.core_inputs, 2);
        assert_eq!((design.core_buffers[1].role.as_str(), design.core_buffers[1].bytes), ("sources joined", 1024));
        assert_eq!(design.mem_tile_buffers.len(), 1);
    }
}
