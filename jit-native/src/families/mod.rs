//! Families of kernels: which nodes they take, what the cores compute, how the work is dealt and how data moves.
//!
//! A family is a group of operations that share a design. Everything that a node decides (extents, strides, scales, which
//! function) is in the instruction stream, so that a family has a PDI or two for all of its nodes, families can share one, and
//! a model loads it once.
//!
//! The entry point for compilers is [`build`]; [`FAMILIES`] is the table behind it.

pub mod attention;
#[cfg(test)]
mod case_tests;
pub mod copies;
pub mod elements;
mod hardware_loops;
pub mod products;
pub mod rings;
#[cfg(test)]
mod testing;

pub use hardware_loops::HARDWARE_LOOPS;

use crate::kit::{self, Family, NativeError};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;

/// Whether there are products for a generation: without them, an NPU has little from native kernels.
pub fn has_products(arch: &Arch) -> bool {
    families_of("MUL_MAT").any(|family| family.is_for(arch))
}

/// All families, in the order of the documentation. An operation may be in several; the first that takes a node has it.
pub static FAMILIES: &[&Family] = &[
    &products::vectors::FAMILY,
    &elements::ELEMENTWISE,
    &elements::ROWS,
    &elements::ROPE,
    &products::FAMILY,
    &rings::ALONE,
    &attention::FAMILY,
    &copies::FAMILY,
];

/// Families that a compiler asks only where they are chosen, before those that have their operations for all nodes.
pub static CHOSEN: &[&Family] =
    &[&rings::FAMILY, &products::prompts::FAMILY, &rings::vectors::FAMILY, &rings::attention::FAMILY];

/// All of both.
pub fn all() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(CHOSEN).copied()
}

/// The families that have kernels for the operation `op`.
pub fn families_of(op: &str) -> impl Iterator<Item = &'static Family> + '_ {
    kit::families_of(FAMILIES, op)
}

/// Makes the kernel of a normalised node with the first family that takes it.
///
/// # Errors
/// As [`kit::build`].
pub fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    kit::build(FAMILIES, node, arch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::{DataType, OpParams, Tensor, table};
    use rstest::rstest;
    use std::collections::HashSet;

    #[test]
    fn families_name_operations_of_the_table_once() {
        let mut names = HashSet::new();
        for family in all() {
            assert!(names.insert(family.name), "{} is listed twice", family.name);
            let mut operations = HashSet::new();
            for op in family.operations {
                assert!(operations.insert(op), "{}: {op} is listed twice", family.name);
                assert_eq!(table::lookup(op).map(|op| op.name()), Some(*op), "{}", family.name);
            }
            let has_programs = !family.instruction_sets.is_empty();
            assert!(has_programs || CHOSEN.iter().any(|chosen| chosen.name == family.name), "{}", family.name);
        }
    }

    /// Files of generations can share a name, as when a user tries another number of columns.
    #[rstest]
    fn kernels_are_for_the_columns_of_the_generation_asked_for(#[values("aie2", "aie2p")] generation: &str) {
        let wide = ArchRegistry::builtin().get(generation).unwrap();
        let mut narrow = (*wide).clone();
        narrow.array.columns = 2;
        for family in all().filter(|family| family.is_for(&wide)) {
            let node = (family.cases)(&wide).swap_remove(0).node;
            let [of_wide, of_narrow] = [&wide, &narrow].map(|arch| (family.build)(&node, arch).unwrap());
            assert_ne!(of_wide.pdi(), of_narrow.pdi(), "{}", family.name);
        }
    }

    /// What the operation table takes and no program computes.
    #[rstest]
    #[case("ADD", DataType::I8, 2, "source 0 is i8; possible: f32, bf16")]
    #[case("SUB", DataType::I16, 2, "source 0 is i16; possible: f32, bf16")]
    #[case("MUL", DataType::I32, 2, "source 0 is i32; possible: f32, bf16")]
    #[case("ABS", DataType::I8, 1, "source 0 is i8; possible: f32, bf16")]
    #[case("NEG", DataType::I32, 1, "source 0 is i32; possible: f32, bf16")]
    #[case("SQR", DataType::I16, 1, "source 0 is i16; possible: f32, bf16")]
    #[case("MUL_MAT", DataType::I16, 2, "source 0 is i16; possible: bf16")]
    #[case("MUL_MAT", DataType::I8, 2, "source 1 is i8 and the result i8; possible: i8 and i32")]
    fn whole_numbers_without_a_program_are_refused_by_name(
        #[case] op: &str,
        #[case] dtype: DataType,
        #[case] sources: usize,
        #[case] expected: &str,
        #[values("aie2", "aie2p")] generation: &str,
    ) {
        let arch = ArchRegistry::builtin().get(generation).unwrap();
        let tensor = Tensor::contiguous(dtype, [64, 64, 1, 1]);
        let node = Node::new(op, OpParams::default(), tensor, vec![Some(tensor); sources]);
        table::lookup(op).unwrap().check(&node).unwrap();
        let error = build(&node, &arch).unwrap_err();
        // Its products are of blocks alone.
        let of_blocks = format!("source 0 is {dtype}; possible: q4_1");
        let expected = if (op, generation) == ("MUL_MAT", "aie2p") { &of_blocks } else { expected };
        if families_of(op).any(|family| family.is_for(&arch)) {
            assert!(
                matches!(error, NativeError::Unsupported { .. }) && error.to_string().contains(expected),
                "{error}"
            );
        } else {
            assert!(matches!(error, NativeError::Generation { .. }), "{error}");
        }
    }
}
