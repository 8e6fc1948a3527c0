//! What a kernel occupies on the array, and whether it fits a generation.
//!
//! A design is a plan, not compiled code. It decides whether a node may be claimed for the array at all, it is what a kernel
//! compiler starts from, and a simulated device can account for it. The planners in the submodules cover the ways in which
//! data passes an array. Each returns a design that fits the generation or says what is short.
//!
//! Rules of the hardware (mlir-aie's target model): a core has two input and two output DMA channels, so a third source shares
//! a stream by being joined with another in the mem tile; every ObjectFifo element takes a buffer descriptor and a fifo two
//! locks; transfers are whole 32-bit words. What can be short is the data memory of a core, and for some operations the mem tile
//! or the descriptors of a shim: the planners keep to few enough streams and fifos for everything else.

mod columns;
mod movement;
mod product;
mod resident;
mod selected;

pub use columns::{elementwise, reduction, rowwise, select, sort};
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
const DEFAULT_STACK_BYTES: usize = 1024;
/// Stack of a core with a matrix product in bytes: what mlir-aie's kernels with emulated types need.
const PRODUCT_STACK_BYTES: usize = 0xD00;

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

/// What a kernel occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// How data passes.
    pub flow: Flow,
    /// Columns used.
    pub columns: usize,
    /// Cores used in each column.
    pub cores_per_column: usize,
}

impl Design {
    /// `cores` cores in each of as many columns as there are `parts`, at most all.
    fn new(flow: Flow, parts: usize, cores: usize, arch: &Arch) -> Self {
        Self { flow, columns: parts.clamp(1, arch.array.columns), cores_per_column: cores }
    }

    /// Cores of the whole design.
    pub fn cores(&self) -> usize {
        self.columns * self.cores_per_column
    }
}

/// The data memory that a core of a design needs.
#[derive(Debug)]
struct CoreMemory {
    stack: usize,
    /// What each buffer holds, bytes of one element of its ObjectFifo (whole words, which DMAs move), and depth (2 is ping-pong).
    buffers: Vec<(String, usize, usize)>,
}

impl CoreMemory {
    fn new(stack: usize) -> Self {
        Self { stack, buffers: Vec::new() }
    }

    fn with(mut self, role: impl Into<String>, bytes: usize, depth: usize) -> Self {
        self.buffers.push((role.into(), bytes.saturating_add(3) & !3, depth));
        self
    }

    fn bytes(&self) -> usize {
        self.buffers.iter().fold(self.stack, |sum, (_, bytes, depth)| sum.saturating_add(bytes.saturating_mul(*depth)))
    }

    fn fits(&self, arch: &Arch) -> bool {
        self.bytes() <= arch.core.data_bytes
    }

    fn check(&self, op: &'static str, arch: &Arch) -> Result<(), Unsupported> {
        if self.fits(arch) {
            return Ok(());
        }
        let list: Vec<_> =
            self.buffers.iter().map(|(role, bytes, depth)| format!("{role} {depth} x {bytes}")).collect();
        let (needed, stack, available) = (self.bytes(), self.stack, arch.core.data_bytes);
        let list = list.join(", ");
        Err(resources(op, arch, format!("a core needs {needed} bytes (stack {stack}, {list}), it has {available}")))
    }
}

fn resources(op: &'static str, arch: &Arch, reason: String) -> Unsupported {
    Unsupported::Resources { op, arch: arch.name.clone(), reason }
}

/// Bytes of `elements` consecutive elements, whole blocks.
fn bytes_of(dtype: DataType, elements: usize) -> usize {
    elements.div_ceil(dtype.block_elements()).saturating_mul(dtype.block_bytes())
}

fn all_cores(arch: &Arch) -> usize {
    arch.array.columns * arch.array.core_rows
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::node::OpParams;
    use aie_hal::ArchRegistry;
    use std::sync::Arc;

    pub(crate) fn arch(name: &str) -> Arc<Arch> {
        ArchRegistry::builtin().get(name).unwrap()
    }

    pub(super) fn node(output: Tensor, sources: &[Tensor]) -> Node {
        Node::new("TEST", OpParams::default(), output, sources.iter().copied().map(Some).collect())
    }

    #[test]
    fn what_fits_fits_exactly_and_what_is_short_is_named() {
        let arch = arch("aie2p");
        let memory = |bytes| CoreMemory::new(1024).with("source 0", bytes, 2).with("output", 1024, 2);
        let most = (arch.core.data_bytes - 1024 - 2048) / 2;
        memory(most).check("ADD", &arch).unwrap();
        let message = memory(most + 1).check("ADD", &arch).unwrap_err().to_string();
        let expected =
            "ADD on aie2p: a core needs 65544 bytes (stack 1024, source 0 2 x 31236, output 2 x 1024), it has 65536";
        assert_eq!(message, expected);
        let message = memory(usize::MAX - 3).check("ADD", &arch).unwrap_err().to_string();
        assert!(message.contains("a core needs 18446744073709551615 bytes"), "{message}");
    }
}
