//! One core in each column, since one core keeps up with the memory of its column: rows or tiles are dealt out to the columns
//! and stream through.

use super::{Design, Flow, TileBuffer, bytes_of, sources, streams};
use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::Arch;

/// Tiles are at most so large (the C++ backend's rule, which kernel sources are written for).
const TILE_BYTES: usize = 512;
/// Bytes of the piece of a row that a core works on when the row itself does not fit.
const PIECE_BYTES: usize = 4096;
/// Bytes of a running result: a sum with its correction, a count, or the largest element and its position.
const RUNNING_BYTES: usize = 16;
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
/// in tiles beside it; a smaller one, which is repeated, stays in the core when a quarter of the core holds it, in the mem tile
/// when that holds it, and is read again from memory otherwise.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn elementwise(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let elements = node.output.elements();
    let tile = tile_elements(node.output.dtype, elements);
    let mut design = Design::new(Flow::Elements, elements / tile, arch);
    let count = sources(node).count();
    let (core_inputs, joined) = streams(count, arch);
    let mut joined_bytes = 0;
    for (slot, source) in sources(node) {
        let whole = bytes_of(source.dtype, source.elements());
        let ratio = source.elements().div_ceil(elements.max(1)).max(1);
        let part = bytes_of(source.dtype, tile.saturating_mul(ratio));
        let repeated = source.elements() < elements;
        if repeated && whole <= arch.core.data_bytes / 4 {
            design.core_buffers.push(TileBuffer::new(format!("source {slot}, whole"), whole, 1));
            continue;
        }
        if repeated && whole <= arch.mem_tile.data_bytes / 2 / count {
            design.mem_tile_buffers.push(TileBuffer::new(format!("source {slot}, whole"), whole, 1));
        }
        if joined && slot > 0 {
            joined_bytes += part.next_multiple_of(4);
        } else {
            design.core_buffers.push(TileBuffer::new(format!("source {slot}"), part, 2));
        }
    }
    if joined_bytes > 0 {
        let joined = TileBuffer::new("sources joined", joined_bytes, 2);
        design.core_buffers.push(joined.clone());
        design.mem_tile_buffers.push(joined);
    }
    design.core_buffers.push(TileBuffer::new("output", bytes_of(node.output.dtype, tile), 2));
    Design { core_inputs, ..design }.check(op, arch)
}

/// Plans an operation that needs a whole row before it can write its first element: norms, softmax, rotary embeddings. The rows
/// of all tensors stay in the core when they fit, with ping-pong buffers or without; otherwise they are staged in the mem tile
/// and the core sees pieces of them; a row that is too long for that is read again from memory.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn rowwise(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let (core_inputs, joined) = streams(sources(node).count(), arch);
    let mut rows: Vec<_> = sources(node).map(|(slot, source)| (format!("source {slot}"), source)).collect();
    rows.push(("output".into(), &node.output));
    let whole = |tensor: &Tensor| bytes_of(tensor.dtype, tensor.ne[0]);
    let piece = |tensor: &Tensor| {
        let tile = bytes_of(tensor.dtype, tile_elements(tensor.dtype, tensor.ne[0])).max(1);
        whole(tensor).min(PIECE_BYTES / tile * tile).max(tile.min(whole(tensor)))
    };
    let buffers = |bytes: &dyn Fn(&Tensor) -> usize, depth| {
        rows.iter().map(|(role, tensor)| TileBuffer::new(role.as_str(), bytes(tensor), depth)).collect::<Vec<_>>()
    };
    // What shares a stream passes the mem tile together.
    let joints = |bytes: &dyn Fn(&Tensor) -> usize| {
        let sum = rows[1..rows.len() - 1].iter().map(|(_, tensor)| bytes(tensor).next_multiple_of(4)).sum();
        if joined { vec![TileBuffer::new("sources joined", sum, 2)] } else { vec![] }
    };
    let design = |core_buffers, mem_tile_buffers| {
        let design = Design::new(Flow::Rows, node.output.rows(), arch);
        Design { core_inputs, core_buffers, mem_tile_buffers, ..design }
    };
    [2, 1]
        .map(|depth| design(buffers(&whole, depth), joints(&whole)))
        .into_iter()
        .find(|design| design.fits_core(arch))
        .or_else(|| Some(design(buffers(&piece, 2), buffers(&whole, 1))).filter(|design| design.fits(arch)))
        .unwrap_or_else(|| design(buffers(&piece, 2), joints(&piece)))
        .check(op, arch)
}

/// A tile of each source, ping-pong. Nothing has to be kept but a running result, so sources pass once, however long a row is.
fn tiles(node: &Node) -> Vec<TileBuffer> {
    let tile = |(slot, source): (usize, &Tensor)| {
        let elements = tile_elements(source.dtype, source.ne[0]);
        TileBuffer::new(format!("source {slot}"), bytes_of(source.dtype, elements), 2)
    };
    sources(node).map(tile).collect()
}

/// Plans an operation that makes one element of each row of source 0. A core collects its results and sends as many at once as
/// fit a tile.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn row_reduction(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let results = tile_elements(node.output.dtype, node.output.elements());
    let mut core_buffers = tiles(node);
    let core_inputs = core_buffers.len();
    core_buffers.push(TileBuffer::new("running result", RUNNING_BYTES, 1));
    core_buffers.push(TileBuffer::new("output", bytes_of(node.output.dtype, results), 2));
    let design = Design::new(Flow::Reduction, node.source(0).map_or(1, Tensor::rows), arch);
    Design { core_inputs, core_buffers, ..design }.check(op, arch)
}

/// Plans an operation that makes one element of all `pieces` of the sources, with a chain from column to column: each core merges
/// what its neighbour has found into its own result and passes it on, and the last one writes. The chain takes one input
/// stream, so two sources are joined in the mem tile.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn whole_reduction(op: &'static str, node: &Node, arch: &Arch, pieces: usize) -> Result<Design, Unsupported> {
    let mut design = Design::new(Flow::Reduction, pieces, arch);
    let chained = usize::from(design.columns > 1);
    let mut core_buffers = tiles(node);
    if core_buffers.len() + chained > arch.core.dma.s2mm {
        let bytes = core_buffers.iter().map(|buffer| buffer.bytes).sum();
        core_buffers = vec![TileBuffer::new("sources joined", bytes, 2)];
        design.mem_tile_buffers.clone_from(&core_buffers);
    }
    let core_inputs = core_buffers.len() + chained;
    core_buffers.push(TileBuffer::new("running result", RUNNING_BYTES, 1));
    if chained > 0 {
        core_buffers.push(TileBuffer::new("result of the neighbour", RUNNING_BYTES, 1));
    }
    core_buffers.push(TileBuffer::new("output", RUNNING_BYTES.max(bytes_of(node.output.dtype, 1)), 1));
    Design { core_inputs, core_buffers, ..design }.check(op, arch)
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
    let core_buffers = vec![
        TileBuffer::new("source 0", source_row(node), 2),
        TileBuffer::new("pairs", pairs, 1),
        TileBuffer::new("output", bytes_of(node.output.dtype, length), 2),
    ];
    let mut design = Design { core_buffers, ..Design::new(Flow::Sort, node.output.rows(), arch) };
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
    design.check(op, arch)
}

/// Plans the search for the largest elements of each row of source 0, as many as a row of the output has. The row streams
/// through a core, which keeps the candidates; it can be of any length.
///
/// # Errors
/// [`Unsupported::Resources`] when the candidates do not fit a core; they would have to be sorted.
pub fn select(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let count = node.output.ne[0];
    let core_buffers = vec![
        TileBuffer::new("source 0", source_row(node).min(PIECE_BYTES), 2),
        TileBuffer::new("candidates", count.saturating_mul(2 * PAIR_BYTES), 1),
        TileBuffer::new("output", bytes_of(node.output.dtype, count), 1),
    ];
    Design { core_buffers, ..Design::new(Flow::Selection, node.output.rows(), arch) }.check(op, arch)
}

/// Bytes of a row of source 0; 0 without one.
fn source_row(node: &Node) -> usize {
    node.source(0).map_or(0, |source| bytes_of(source.dtype, source.ne[0]))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arch, listed, node};
    use super::*;
    use crate::tensor::DataType::{BF16, F32, I8, I32, I64};
    use rstest::rstest;

    fn f32s(ne: [usize; 4]) -> Tensor {
        Tensor::contiguous(F32, ne)
    }

    fn mem_tile_bytes(design: &Design) -> usize {
        design.mem_tile_buffers.iter().map(TileBuffer::total).sum()
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

    #[test]
    fn a_sum_uses_every_column_and_both_streams() {
        let flat = f32s([4096, 1, 1, 1]);
        let design = elementwise("ADD", &node(flat, &[flat, flat]), &arch("aie2p")).unwrap();
        assert_eq!((design.columns, design.cores_per_column, design.core_inputs), (8, 1, 2));
        assert_eq!(listed(&design.core_buffers), [("source 0", 512, 2), ("source 1", 512, 2), ("output", 512, 2)]);
        let short = f32s([128, 1, 1, 1]);
        assert_eq!(elementwise("ADD", &node(short, &[short]), &arch("aie2p")).unwrap().columns, 1);
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
        let (a, b) = (f32s([row, 9, 1, 1]), f32s([row, 1, 1, 1]));
        let design = elementwise("ADD", &node(a, &[a, b]), &arch("aie2p")).unwrap();
        let buffer = &design.core_buffers[1];
        assert!(buffer.role == role && buffer.bytes <= core, "{buffer:?}");
        assert_eq!(mem_tile_bytes(&design), mem_tile);
    }

    #[test]
    fn both_halves_of_a_gated_source_arrive_together() {
        let gated = node(f32s([512, 4, 1, 1]), &[f32s([1024, 4, 1, 1])]);
        let design = elementwise("SWIGLU", &gated, &arch("aie2")).unwrap();
        assert_eq!((design.core_buffers[0].bytes, design.core_inputs), (1024, 1));
    }

    #[test]
    fn a_third_source_is_joined_in_the_mem_tile() {
        let x = f32s([1024, 1, 1, 1]);
        let design = elementwise("ADD", &node(x, &[x, x, x]), &arch("aie2")).unwrap();
        assert_eq!(design.core_inputs, 2);
        assert_eq!(listed(&design.core_buffers)[1], ("sources joined", 1024, 2));
        assert_eq!(design.mem_tile_buffers.len(), 1);
        let row = f32s([64, 3, 1, 1]);
        let masked = rowwise("SOFT_MAX", &node(row, &[row, row]), &arch("aie2")).unwrap();
        assert_eq!((masked.core_inputs, masked.columns, masked.mem_tile_buffers.len()), (2, 3, 0));
        let sinks = rowwise("SOFT_MAX", &node(row, &[row, row, row]), &arch("aie2")).unwrap();
        assert_eq!((sinks.core_inputs, sinks.mem_tile_buffers[0].bytes), (2, 512));
    }

    /// 63 KiB are free beside the stack, and a mem tile has 512 KiB.
    #[rstest]
    #[case::ping_pong(576, 2, 2304, 0)]
    #[case::single(6000, 1, 24000, 0)]
    #[case::staged(32000, 2, 4096, 256_000)]
    #[case::streamed(131_072, 2, 4096, 0)]
    fn rows_stay_as_near_as_they_can(
        #[case] row: usize,
        #[case] depth: usize,
        #[case] core: usize,
        #[case] mem_tile: usize,
    ) {
        let x = f32s([row, 9, 1, 1]);
        let design = rowwise("SOFT_MAX", &node(x, &[x]), &arch("aie2p")).unwrap();
        assert_eq!(design.columns, 8);
        assert!(design.core_buffers.iter().all(|b| b.depth == depth && b.bytes <= core), "{design:?}");
        assert_eq!(mem_tile_bytes(&design), mem_tile);
    }

    #[rstest]
    #[case(1, 1)]
    #[case(5, 5)]
    #[case(3000, 8)]
    fn rows_are_dealt_out(#[case] rows: usize, #[case] columns: usize) {
        // No row is too long.
        let node = node(Tensor::contiguous(I32, [rows, 1, 1, 1]), &[f32s([1 << 20, rows, 1, 1])]);
        let design = row_reduction("ARGMAX", &node, &arch("aie2p")).unwrap();
        assert_eq!((design.columns, design.core_inputs), (columns, 1));
        assert_eq!(design.core_buffers[0].bytes, 512);
        assert!(design.core_buffers.last().unwrap().bytes <= 512);
    }

    #[rstest]
    #[case::one_source("aie2p", 1, 64, (8, 2), None)]
    // Two sources and the neighbour need three streams; a core has two.
    #[case::two_sources("aie2", 2, 64, (4, 2), Some(("sources joined", 1024, 2)))]
    #[case::a_single_column_has_no_neighbour("aie2", 2, 1, (1, 2), None)]
    fn partial_results_pass_from_column_to_column(
        #[case] generation: &str,
        #[case] sources: usize,
        #[case] pieces: usize,
        #[case] expected: (usize, usize),
        #[case] joined: Option<(&str, usize, usize)>,
    ) {
        let sources = vec![Tensor::contiguous(I32, [4096, 2, 1, 1]); sources];
        let node = node(Tensor::contiguous(I64, [1; 4]), &sources);
        let design = whole_reduction("SUM", &node, &arch(generation), pieces).unwrap();
        assert_eq!((design.columns, design.core_inputs), expected);
        assert_eq!(listed(&design.mem_tile_buffers), Vec::from_iter(joined));
    }

    fn ordered(from: usize, to: usize) -> Node {
        node(Tensor::contiguous(I32, [to, 6, 1, 1]), &[f32s([from, 6, 1, 1])])
    }

    #[rstest]
    #[case::in_the_core(2048, Some((1, 0)))]
    #[case::in_the_mem_tile(32_768, Some((2, 524_288)))]
    #[case::nowhere(32_769, None)]
    fn long_rows_are_merged_in_the_mem_tile(#[case] row: usize, #[case] expected: Option<(usize, usize)>) {
        let design = sort("ARGSORT", &ordered(row, row), &arch("aie2p")).ok();
        assert_eq!(design.map(|design| (design.core_inputs, mem_tile_bytes(&design))), expected);
    }

    #[test]
    fn a_vocabulary_streams_past_the_candidates() {
        let design = select("TOP_K", &ordered(151_936, 40), &arch("aie2")).unwrap();
        let expected = [("source 0", 4096, 2), ("candidates", 640, 1), ("output", 160, 1)];
        assert_eq!(listed(&design.core_buffers), expected);
        assert!(select("TOP_K", &ordered(151_936, 10_000), &arch("aie2")).is_err());
    }
}
