//! Families of kernels: which nodes they take, what the cores compute, how the work is dealt and how data moves.
//!
//! A family is a group of operations that share a design. Everything that a node decides (extents, strides, scales, which
//! function) is in the instruction stream, so that a family has a PDI or two for all of its nodes, families can share one, and
//! a model loads it once.
//!
//! The entry point for compilers is [`build`]; [`FAMILIES`] is the table behind it.

pub mod attention;
pub mod copies;
mod error;
pub mod lanes;
pub mod mul_mat;
pub mod numerics;
#[cfg(test)]
mod testing;

pub use error::NativeError;

use crate::selftest::Case;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;

/// A group of operations with one design.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Short name, for messages and statistics: "elementwise".
    pub name: &'static str,
    /// ggml's descriptions of the operations it has kernels for, in upper case.
    pub operations: &'static [&'static str],
    /// The generations that it has a program for.
    pub generations: &'static [&'static str],
    /// What it has to get right on an NPU before its kernels are used there ([`crate::selftest`]). Every operation is among them.
    pub cases: fn(&Arch) -> Vec<Case>,
    /// Makes the kernel of a normalised node ([`aie_ops::normalise::normalise`]): PDI and instruction stream. The arguments are
    /// those of [`Node::arguments`], in that order.
    pub build: fn(&Node, &Arch) -> Result<KernelArtifact, NativeError>,
}

impl Family {
    /// Whether it has a program for a generation.
    pub fn is_for(&self, arch: &Arch) -> bool {
        self.generations.contains(&arch.name.as_str())
    }
}

/// Whether there is a family of products for a generation: without one, an NPU has nothing from native kernels.
pub fn has_products(arch: &Arch) -> bool {
    mul_mat::FAMILY.is_for(arch)
}

/// All families, in the order of the documentation. An operation may be in several; the first that takes a node has it.
pub static FAMILIES: &[&Family] = &[
    &mul_mat::vectors::FAMILY,
    &lanes::elementwise::FAMILY,
    &lanes::rows::FAMILY,
    &lanes::rope::FAMILY,
    &mul_mat::FAMILY,
    &attention::FAMILY,
    &copies::FAMILY,
];

/// The families that have kernels for the operation `op`.
pub fn families_of(op: &str) -> impl Iterator<Item = &'static Family> + '_ {
    FAMILIES.iter().copied().filter(move |family| family.operations.contains(&op))
}

/// Makes the kernel of a normalised node with the first family that takes it.
///
/// # Errors
/// [`NativeError::Unsupported`] or [`NativeError::Generation`] of the last family asked, or that there is none; other errors as
/// they come.
pub fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let mut rejected = None;
    for family in families_of(&node.op) {
        match (family.build)(node, arch) {
            Err(error @ (NativeError::Unsupported { .. } | NativeError::Generation { .. })) => rejected = Some(error),
            result => return result,
        }
    }
    Err(rejected.unwrap_or_else(|| NativeError::NoFamily { op: node.op.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn families_name_operations_of_the_table_once() {
        let mut names = HashSet::new();
        for family in FAMILIES {
            assert!(names.insert(family.name), "{} is listed twice", family.name);
            let mut operations = HashSet::new();
            for op in family.operations {
                assert!(operations.insert(op), "{}: {op} is listed twice", family.name);
                assert_eq!(aie_ops::table::lookup(op).map(|op| op.name()), Some(*op), "{}", family.name);
            }
            assert!(!family.generations.is_empty(), "{}", family.name);
        }
    }
}
