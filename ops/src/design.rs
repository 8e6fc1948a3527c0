//! What a kernel occupies on the array: columns, cores, buffers and DMA channels, and the check against a generation.
//!
//! A design is a plan, not compiled code. It decides whether a node may be claimed for the array at all, it is what a kernel
//! compiler starts from, and a simulated device can account for it. The planners in the submodules cover the ways in which
//! data passes an array. Each returns a design that fits the generation or says what is short.
//!
//! Rules of the hardware (mlir-aie's target model): a core has two input and two output DMA channels, so a third source shares
//! a stream by being joined with another in the mem tile; every ObjectFifo element takes a buffer descriptor and a fifo two
//! locks; transfers are whole 32-bit words.

mod columns;
mod movement;
mod product;
mod resident;
mod selected;

pub use columns::{elementwise, row_reduction, rowwise, select, sort, whole_reduction};
pub use movement::{Movement, movement, whole_words};
pub use product::{Operands, matmul, matmul_with};
pub use resident::{Recurrence, attention, recurrent};
pub use selected::{selected_products, selected_rows};

use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::Arch;
use serde::{Deserialize, Serialize};

/// Why the array cannot read a source of the normalised `node`, if it cannot.
pub fn unreadable(node: &Node) -> Option<String> {
    let source = node.inputs().find(|source| source.shares_memory() && !whole_words(source))?;
    let Tensor { dtype, ne, nb } = source;
    Some(format!(
        "a {dtype} source whose elements share memory, with extents {ne:?} and strides {nb:?}, is not whole 32-bit words, and \
         shim DMAs move nothing smaller"
    ))
}

/// Stack of a core in bytes when nothing else is known (mlir-aie's default).
pub const DEFAULT_STACK_BYTES: usize = 1024;

/// One buffer of a design.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileBuffer {
    /// What it holds, e.g. "source 0".
    pub role: String,
    /// Bytes of one element of its ObjectFifo.
    pub bytes: usize,
    /// ObjectFifo depth (2 is ping-pong).
    pub depth: usize,
}

impl TileBuffer {
    /// A buffer of `bytes`, rounded up to the 32-bit words that DMAs move.
    fn new(role: impl Into<String>, bytes: usize, depth: usize) -> Self {
        Self { role: role.into(), bytes: bytes.saturating_add(3) & !3, depth }
    }

    fn total(&self) -> usize {
        self.bytes.saturating_mul(self.depth)
    }

    /// The ping-pong buffer of a mem tile that holds `count` of this one.
    fn staged(&self, count: usize) -> Self {
        Self::new(self.role.as_str(), self.bytes.saturating_mul(count), 2)
    }
}

/// The way in which data passes the array: which planner made a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// Tiles of all tensors pass side by side.
    Elements,
    /// Whole rows, gone over once or several times.
    Rows,
    /// Tiles of two matrices, on the matrix units.
    Product,
    /// Keys and values pass queries that stay.
    Attention,
    /// A state stays in a core while tokens pass.
    Recurrence,
    /// A running result stays in a core.
    Reduction,
    /// Runs that are sorted and merged.
    Sort,
    /// Candidates stay in a core while a row passes.
    Selection,
    /// Rows or matrices that ids name are fetched by the cores.
    Picked,
    /// Through the mem tiles, without a core.
    Movement,
}

impl Flow {
    /// In words, for tables.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Elements => "element by element",
            Self::Rows => "row by row",
            Self::Product => "matrix product",
            Self::Attention => "keys and values past queries",
            Self::Recurrence => "tokens past a state",
            Self::Reduction => "running result",
            Self::Sort => "sorted runs, merged",
            Self::Selection => "candidates kept",
            Self::Picked => "fetched by ids",
            Self::Movement => "movement by DMA",
        }
    }
}

/// Resources of one kernel. Counts are per core or per column as stated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// How data passes.
    pub flow: Flow,
    /// Columns used.
    pub columns: usize,
    /// Cores used in each column.
    pub cores_per_column: usize,
    /// Buffers in each core's data memory.
    pub core_buffers: Vec<TileBuffer>,
    /// Buffers in each column's mem tile.
    pub mem_tile_buffers: Vec<TileBuffer>,
    /// DMA input streams of each core.
    pub core_inputs: usize,
    /// DMA output streams of each core.
    pub core_outputs: usize,
    /// Stack of each core in bytes.
    pub stack_bytes: usize,
}

impl Design {
    /// One core in each of as many columns as `parts` are dealt out to, with one stream in and one out, and no buffers yet.
    fn new(flow: Flow, parts: usize, arch: &Arch) -> Self {
        Self {
            flow,
            columns: parts.clamp(1, arch.array.columns),
            cores_per_column: 1,
            core_buffers: Vec::new(),
            mem_tile_buffers: Vec::new(),
            core_inputs: 1,
            core_outputs: 1,
            stack_bytes: DEFAULT_STACK_BYTES,
        }
    }

    /// The design, if every count is within what the generation has.
    ///
    /// # Errors
    /// [`Unsupported::Resources`] with everything that is short, how much is needed and how much there is.
    pub fn check(self, op: &'static str, arch: &Arch) -> Result<Self, Unsupported> {
        let short = self.shortages(arch);
        if short.is_empty() { Ok(self) } else { Err(resources(op, arch, short.join("; "))) }
    }

    /// Whether nothing is short.
    fn fits(&self, arch: &Arch) -> bool {
        self.shortages(arch).is_empty()
    }

    fn shortages(&self, arch: &Arch) -> Vec<String> {
        let core = &arch.core;
        let mut short = Vec::new();
        let mut limit = |what: &str, needed: usize, available: usize| {
            if needed > available {
                short.push(format!("{needed} {what} are needed, there are {available}"));
            }
        };
        limit("columns", self.columns, arch.array.columns);
        limit("cores in a column", self.cores_per_column, arch.array.core_rows);
        limit("input streams of a core", self.core_inputs, core.dma.s2mm);
        limit("output streams of a core", self.core_outputs, core.dma.mm2s);
        let elements = |buffers: &[TileBuffer]| buffers.iter().fold(0usize, |sum, b| sum.saturating_add(b.depth));
        limit("buffer descriptors of a core", elements(&self.core_buffers), core.dma.bds);
        limit("locks of a core", 2 * self.core_buffers.len(), core.dma.locks);
        limit("buffer descriptors of a mem tile", elements(&self.mem_tile_buffers), arch.mem_tile.dma.bds);
        limit("locks of a mem tile", 2 * self.mem_tile_buffers.len(), arch.mem_tile.dma.locks);
        let core_bytes = total(&self.core_buffers).saturating_add(self.stack_bytes);
        if core_bytes > core.data_bytes {
            let (stack, available) = (self.stack_bytes, core.data_bytes);
            let list = list(&self.core_buffers);
            short.push(format!("a core needs {core_bytes} bytes (stack {stack}, {list}), it has {available}"));
        }
        let mem_bytes = total(&self.mem_tile_buffers);
        if mem_bytes > arch.mem_tile.data_bytes {
            let (list, available) = (list(&self.mem_tile_buffers), arch.mem_tile.data_bytes);
            short.push(format!("a mem tile needs {mem_bytes} bytes ({list}), it has {available}"));
        }
        // What only moves data has no cores, and nothing in them.
        let moves = self.core_buffers.is_empty() && !self.mem_tile_buffers.is_empty();
        if self.columns == 0 || self.cores_per_column == 0 && !moves {
            short.push("the design uses no core".into());
        }
        short
    }

    /// Cores of the whole design.
    pub fn cores(&self) -> usize {
        self.columns * self.cores_per_column
    }

    /// Whether its core buffers and stack fit a core's data memory.
    fn fits_core(&self, arch: &Arch) -> bool {
        total(&self.core_buffers).saturating_add(self.stack_bytes) <= arch.core.data_bytes
    }
}

fn total(buffers: &[TileBuffer]) -> usize {
    buffers.iter().fold(0, |sum, buffer| sum.saturating_add(buffer.total()))
}

fn list(buffers: &[TileBuffer]) -> String {
    let parts: Vec<_> = buffers.iter().map(|b| format!("{} {} x {}", b.role, b.depth, b.bytes)).collect();
    parts.join(", ")
}

fn resources(op: &'static str, arch: &Arch, reason: String) -> Unsupported {
    Unsupported::Resources { op, arch: arch.name.clone(), reason }
}

/// Bytes of `elements` consecutive elements, whole blocks.
fn bytes_of(dtype: DataType, elements: usize) -> usize {
    elements.div_ceil(dtype.block_elements()).saturating_mul(dtype.block_bytes())
}

/// Present sources with their slot.
fn sources(node: &Node) -> impl Iterator<Item = (usize, &Tensor)> {
    node.sources.iter().enumerate().filter_map(|(slot, source)| source.as_ref().map(|source| (slot, source)))
}

/// Cores of a generation.
fn all_cores(arch: &Arch) -> usize {
    arch.array.columns * arch.array.core_rows
}

/// Input streams for so many sources, and whether some of them have to be joined in the mem tile.
fn streams(sources: usize, arch: &Arch) -> (usize, bool) {
    (sources.min(arch.core.dma.s2mm), sources > arch.core.dma.s2mm)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::node::OpParams;
    use aie_hal::ArchRegistry;
    use rstest::rstest;
    use std::sync::Arc;

    pub(crate) fn arch(name: &str) -> Arc<Arch> {
        ArchRegistry::builtin().get(name).unwrap()
    }

    pub(super) fn node(output: Tensor, sources: &[Tensor]) -> Node {
        Node::new("TEST", OpParams::default(), output, sources.iter().copied().map(Some).collect())
    }

    /// Role, bytes and depth of each.
    pub(super) fn listed(buffers: &[TileBuffer]) -> Vec<(&str, usize, usize)> {
        buffers.iter().map(|b| (b.role.as_str(), b.bytes, b.depth)).collect()
    }

    fn small() -> Design {
        let core_buffers = vec![TileBuffer::new("source 0", 1024, 2), TileBuffer::new("output", 1024, 2)];
        Design { core_buffers, ..Design::new(Flow::Elements, 1, &arch("aie2p")) }
    }

    #[test]
    fn what_fits_fits_exactly() {
        let mut design = small();
        let arch = arch("aie2p");
        design.core_buffers[0].bytes = (arch.core.data_bytes - DEFAULT_STACK_BYTES - 2048) / 2;
        let mut design = design.check("ADD", &arch).unwrap();
        design.core_buffers[0].bytes += 1;
        let message = design.check("ADD", &arch).unwrap_err().to_string();
        let expected =
            "ADD on aie2p: a core needs 65538 bytes (stack 1024, source 0 2 x 31233, output 2 x 1024), it has 65536";
        assert_eq!(message, expected);
    }

    #[rstest]
    #[case(|d: &mut Design| d.columns = 9, "9 columns are needed, there are 8")]
    #[case(|d: &mut Design| d.cores_per_column = 5, "5 cores in a column are needed, there are 4")]
    #[case(|d: &mut Design| d.core_inputs = 3, "3 input streams of a core are needed, there are 2")]
    #[case(|d: &mut Design| d.core_outputs = 3, "3 output streams of a core are needed, there are 2")]
    #[case(|d: &mut Design| d.core_buffers[0].depth = 20, "22 buffer descriptors of a core are needed, there are 16")]
    #[case(|d: &mut Design| d.columns = 0, "the design uses no core")]
    #[case(|d: &mut Design| d.core_buffers[0].bytes = usize::MAX, "a core needs 18446744073709551615 bytes")]
    #[case(
        |d: &mut Design| d.mem_tile_buffers.push(TileBuffer::new("rows", 600_000, 1)),
        "a mem tile needs 600000 bytes (rows 1 x 600000), it has 524288"
    )]
    fn what_is_short_is_named(#[case] change: fn(&mut Design), #[case] expected: &str) {
        let mut design = small();
        change(&mut design);
        let message = design.check("ADD", &arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn all_shortages_are_told_at_once() {
        let mut design = small();
        (design.columns, design.core_inputs) = (100, 100);
        let message = design.check("ADD", &arch("aie2")).unwrap_err().to_string();
        assert_eq!(
            message,
            "ADD on aie2: 100 columns are needed, there are 4; 100 input streams of a core are needed, there are 2"
        );
    }
}
