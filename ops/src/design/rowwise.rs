//! Operations that need a whole row before they can write its first element: norms, softmax, rotary embeddings.

use super::elementwise::tile_elements;
use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer, bytes_of, sources, streams};
use crate::node::Node;
use crate::operation::Unsupported;
use aie_hal::Arch;

/// Bytes of the piece of a row that a core works on when the row itself does not fit.
const CHUNK_BYTES: usize = 4096;

/// Plans one core in each column, rows dealt out to the columns. The rows of all tensors stay in the core when they fit, with
/// ping-pong buffers or without; otherwise they are staged in the mem tile and the core sees pieces of them; a row that is too
/// long for that is read `row_passes` times from memory. `row_passes` is how often the operation goes over a row: 2 for
/// a norm (sum, scale), 3 for softmax (maximum, sum, scale).
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn rowwise(op: &'static str, node: &Node, arch: &Arch, row_passes: usize) -> Result<Design, Unsupported> {
    let (core_inputs, joined) = streams(sources(node).count(), arch);
    // A row of each tensor: role, its bytes, and the bytes of a piece of it.
    let mut rows = Vec::new();
    for (slot, source) in sources(node) {
        rows.push(row(format!("source {slot}"), source));
    }
    rows.push(row("output".into(), &node.output));

    let buffers = |bytes: fn(&Row) -> usize, depth| {
        rows.iter().map(|row| TileBuffer::new(row.role.as_str(), bytes(row), depth)).collect::<Vec<_>>()
    };
    // What shares a stream passes the mem tile together.
    let joints = |bytes: fn(&Row) -> usize| {
        let sum = rows[1..rows.len() - 1].iter().map(|row| bytes(row).next_multiple_of(4)).sum();
        if joined { vec![TileBuffer::new("sources joined", sum, 2)] } else { vec![] }
    };
    let mut design = Design {
        flow: Flow::Rows,
        columns: node.output.rows().clamp(1, arch.array.columns),
        cores_per_column: 1,
        core_buffers: buffers(|row| row.bytes, 2),
        mem_tile_buffers: joints(|row| row.bytes),
        core_inputs,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: 1,
    };
    if !design.fits_core(arch) {
        design.core_buffers = buffers(|row| row.bytes, 1);
    }
    if !design.fits_core(arch) {
        design.core_buffers = buffers(|row| row.chunk, 2);
        design.mem_tile_buffers = buffers(|row| row.bytes, 1);
        if !design.fits(arch) {
            design.mem_tile_buffers = joints(|row| row.chunk);
            design.passes = row_passes.max(1);
        }
    }
    design.check(op, arch)?;
    Ok(design)
}

struct Row {
    role: String,
    bytes: usize,
    chunk: usize,
}

fn row(role: String, tensor: &crate::Tensor) -> Row {
    let row = bytes_of(tensor.dtype, tensor.ne[0]);
    let tile = bytes_of(tensor.dtype, tile_elements(tensor.dtype, tensor.ne[0]));
    Row { role, bytes: row, chunk: row.min(CHUNK_BYTES / tile.max(1) * tile.max(1)).max(tile.min(row)) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::node::OpParams;
    use crate::tensor::DataType::F32;
    use crate::tensor::Tensor;
    use rstest::rstest;

    fn node(row: usize, rows: usize, sources: usize) -> Node {
        let tensor = Tensor::contiguous(F32, [row, rows, 1, 1]);
        Node::new("SOFT_MAX", OpParams::default(), tensor, vec![Some(tensor); sources])
    }

    /// 63 KiB are free beside the stack, and a mem tile has 512 KiB.
    #[rstest]
    #[case::ping_pong(576, 2, 2304, 0, 1)]
    #[case::single(6000, 1, 24000, 0, 1)]
    #[case::staged(32000, 2, 4096, 256_000, 1)]
    #[case::streamed(131_072, 2, 4096, 0, 3)]
    fn rows_stay_as_near_as_they_can(
        #[case] row: usize,
        #[case] depth: usize,
        #[case] core: usize,
        #[case] mem_tile: usize,
        #[case] passes: usize,
    ) {
        let design = rowwise("SOFT_MAX", &node(row, 9, 1), &arch("aie2p"), 3).unwrap();
        assert_eq!((design.columns, design.passes), (8, passes));
        assert!(design.core_buffers.iter().all(|b| b.depth == depth && b.bytes <= core), "{design:?}");
        assert_eq!(design.mem_tile_buffers.iter().map(|b| b.bytes).sum::<usize>(), mem_tile);
    }

    #[test]
    fn a_mask_has_a_stream_of_its_own_and_sinks_share_it() {
        let masked = rowwise("SOFT_MAX", &node(64, 3, 2), &arch("aie2"), 3).unwrap();
        assert_eq!((masked.core_inputs, masked.columns, masked.mem_tile_buffers.len()), (2, 3, 0));
        let sinks = rowwise("SOFT_MAX", &node(64, 3, 3), &arch("aie2"), 3).unwrap();
        assert_eq!((sinks.core_inputs, sinks.mem_tile_buffers[0].bytes), (2, 512));
    }
}
