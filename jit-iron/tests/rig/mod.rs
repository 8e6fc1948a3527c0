//! The kernel that most tests make.

use aie_hal::{Arch, ArchRegistry};
use aie_ops::{DataType, Node, OpParams, Operation, Tensor, table};
use std::sync::Arc;

/// The generation of the kernels.
pub fn arch() -> Arc<Arch> {
    ArchRegistry::builtin().get("aie2p").unwrap()
}

/// The sum of two tensors of so many floats.
pub fn sum(elements: usize) -> (&'static dyn Operation, Node) {
    let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
    (table::lookup("ADD").unwrap(), Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]))
}
