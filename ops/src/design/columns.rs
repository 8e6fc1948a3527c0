//! One core in each column, since one core keeps up with the memory of its column: rows or tiles are distributed over the columns
//! and stream through.

use super::{CoreMemory, DEFAULT_STACK_BYTES, Design, Flow, bytes_of, resources};
use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::Arch;

/// Tiles are at most so large (the C++ backend's rule, which kernel sources are written for).
const TILE_BYTES: usize = 512;
/// Bytes of the piece of a row that a core works on when the row itself does not fit.
const PIECE_BYTES: usize = 4096;
/// Bytes of a value with its index.
const PAIR_BYTES: usize = 8;

/// The number of elements in a tile: as many as 512 bytes hold, halved until it divides the element count.
fn tile_elements(dtype: DataType, elements: usize) -> usize {
    let mut tile = (TILE_BYTES / dtype.block_bytes() * dtype.block_elements()).max(dtype.block_elements());
    while tile > dtype.block_elements() && !elements.is_multiple_of(tile) {
        tile /= 2;
    }
    tile
}

/// Plans an operation that goes through its output element by element. Sources as large as the output, or a multiple of it, pass
/// in tiles beside it; a smaller one, which is repeated, stays in the core when a quarter of the core holds it, and is read again
/// from the mem tile or from memory otherwise.
///
/// # Errors
/// [`Unsupported::Resources`] when a source is so much larger than the output that its part of a tile does not fit a core.
pub fn elementwise(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let elements = node.output.elements();
    let tile = tile_elements(node.output.dtype, elements);
    let tiles = CoreMemory::new(DEFAULT_STACK_BYTES).with("output", bytes_of(node.output.dtype, tile), 2);
    let memory = node.inputs().fold(tiles, |memory, source| {
        let whole = bytes_of(source.dtype, source.elements());
        if source.elements() < elements && whole <= arch.core.data_bytes / 4 {
            return memory.with("a source, whole", whole, 1);
        }
        let ratio = source.elements().div_ceil(elements.max(1)).max(1);
        memory.with("a source", bytes_of(source.dtype, tile.saturating_mul(ratio)), 2)
    });
    memory.check(op, arch)?;
    Ok(Design::new(Flow::Elements, elements / tile, 1, arch))
}

/// Plans an operation that needs a whole row before it can write its first element: norms, softmax, rotary embeddings. The rows
/// of all tensors stay in the core when they fit, with ping-pong buffers or without; otherwise they are staged in the mem tile
/// and the core sees pieces of them; a row that is too long for that is read again from memory.
pub fn rowwise(rows: usize, arch: &Arch) -> Design {
    Design::new(Flow::Rows, rows, 1, arch)
}

/// Plans an operation that makes one element of each of the `parts` that the sources are distributed in, or one of all of them. A
/// core has to keep nothing but a running result, so sources pass once, in tiles. For one result there is a chain from column
/// to column: each core merges what its neighbour has found into its own result and passes it on, and the last one writes.
pub fn reduction(parts: usize, arch: &Arch) -> Design {
    Design::new(Flow::Reduction, parts, 1, arch)
}

/// Plans a sort of each row of source 0, as pairs of value and index. A run that fits the core is sorted there; longer rows are
/// runs that a mem tile keeps and the core merges two by two. Between two merges the whole row is kept twice, so a row that a
/// mem tile cannot keep so would need scratch memory outside the array, which kernels do not have.
///
/// # Errors
/// [`Unsupported::Resources`] for rows that a mem tile cannot keep twice as pairs.
pub fn sort(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let length = node.output.ne[0];
    let pairs = length.saturating_mul(PAIR_BYTES);
    let core = CoreMemory::new(DEFAULT_STACK_BYTES).with("source 0", source_row(node), 2).with("pairs", pairs, 1).with(
        "output",
        bytes_of(node.output.dtype, length),
        2,
    );
    let (needed, available) = (pairs.saturating_mul(2), arch.mem_tile.data_bytes);
    if !core.fits(arch) && needed > available {
        let reason = format!("a mem tile needs {needed} bytes (pairs 2 x {pairs}), it has {available}");
        return Err(resources(op, arch, reason));
    }
    Ok(Design::new(Flow::Sort, node.output.rows(), 1, arch))
}

/// Plans the search for the largest elements of each row of source 0, as many as a row of the output has. The row streams
/// through a core, which keeps the candidates; it can be of any length.
///
/// # Errors
/// [`Unsupported::Resources`] when the candidates do not fit a core; they would have to be sorted.
pub fn select(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let count = node.output.ne[0];
    CoreMemory::new(DEFAULT_STACK_BYTES)
        .with("source 0", source_row(node).min(PIECE_BYTES), 2)
        .with("candidates", count.saturating_mul(2 * PAIR_BYTES), 1)
        .with("output", bytes_of(node.output.dtype, count), 1)
        .check(op, arch)?;
    Ok(Design::new(Flow::Selection, node.output.rows(), 1, arch))
}

/// Bytes of a row of source 0; 0 without one.
fn source_row(node: &Node) -> usize {
    node.source(0).map_or(0, |source: &Tensor| bytes_of(source.dtype, source.ne[0]))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arch, node};
    use super::*;
    use crate::tensor::DataType::{BF16, F32, I8, I32};
    use rstest::rstest;

    fn f32s(ne: [usize; 4]) -> Tensor {
        Tensor::contiguous(F32, ne)
    }

    #[rstest]
    #[case(F32, 4096, 128)]
    #[case(BF16, 4096, 256)]
    #[case(I8, 4096, 512)]
    #[case(F32, 576, 64)]
    #[case(F32, 3001, 1)]
    fn tiles_divide_the_tensor(#[case] dtype: DataType, #[case] elements: usize, #[case] expected: usize) {
        assert_eq!(tile_elements(dtype, elements), expected);
    }

    #[rstest]
    #[case::tiles(4096, 4096, Some(8))]
    #[case::one_tile(128, 128, Some(1))]
    #[case::repeated_from_the_core(9 * 576, 576, Some(8))]
    #[case::repeated_from_the_mem_tile(9 * 8192, 8192, Some(8))]
    #[case::repeated_from_memory(9 * 65536, 65536, Some(8))]
    #[case::halves_of_a_gated_source(2048, 4096, Some(8))]
    #[case::a_part_that_exceeds_a_core(128, 128 * 64, None)]
    fn tiles_are_dealt_out(#[case] elements: usize, #[case] source: usize, #[case] columns: Option<usize>) {
        let (x, y) = (f32s([elements, 1, 1, 1]), f32s([source, 1, 1, 1]));
        let design = elementwise("ADD", &node(x, &[x, y, y]), &arch("aie2p"));
        assert_eq!(
            design.ok().map(|design| (design.columns, design.cores())),
            columns.map(|columns| (columns, columns))
        );
    }

    #[rstest]
    #[case(1, 1)]
    #[case(5, 5)]
    #[case(3000, 8)]
    fn rows_are_dealt_out(#[case] rows: usize, #[case] columns: usize) {
        let arch = arch("aie2p");
        assert_eq!(rowwise(rows, &arch).columns, columns);
        assert_eq!(reduction(rows, &arch).columns, columns);
    }

    #[rstest]
    #[case::in_the_core(2048, true)]
    #[case::in_the_mem_tile(32_768, true)]
    #[case::nowhere(32_769, false)]
    fn long_rows_are_merged_in_the_mem_tile(#[case] row: usize, #[case] fits: bool) {
        let node = node(Tensor::contiguous(I32, [row, 6, 1, 1]), &[f32s([row, 6, 1, 1])]);
        let design = sort("ARGSORT", &node, &arch("aie2p"));
        assert_eq!(design.as_ref().ok().map(|design| design.columns), fits.then_some(6));
        assert!(fits || design.unwrap_err().to_string().contains("a mem tile needs 524304 bytes"));
    }

    #[rstest]
    #[case(40, true)]
    #[case(10_000, false)]
    fn a_vocabulary_streams_past_the_candidates(#[case] count: usize, #[case] fits: bool) {
        let node = node(Tensor::contiguous(I32, [count, 6, 1, 1]), &[f32s([151_936, 6, 1, 1])]);
        assert_eq!(select("TOP_K", &node, &arch("aie2")).is_ok(), fits);
    }
}
