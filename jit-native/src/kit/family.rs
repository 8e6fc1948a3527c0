//! A family of kernels: a group of operations with one design.

use super::{Case, NativeError};
use crate::codegen::isa_of;
use aie_hal::arch::Estimate;
use aie_hal::{Arch, KernelArtifact};
use aie_isa::{InstructionSet, Isa};
use aie_ops::Node;

/// A group of operations with one design.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Short name, for messages and statistics: "elementwise".
    pub name: &'static str,
    /// ggml's descriptions of the operations it has kernels for, in upper case.
    pub operations: &'static [&'static str],
    /// The instruction sets that it has a program for.
    pub instruction_sets: &'static [InstructionSet],
    /// What it has to get right on an NPU before its kernels are used there. Every operation is among them.
    pub cases: fn(&Arch) -> Vec<Case>,
    /// Makes the kernel of a normalised node ([`aie_ops::normalise::normalise`]): PDI and instruction stream. The arguments are
    /// those of [`Node::arguments`], in that order.
    pub build: fn(&Node, &Arch) -> Result<KernelArtifact, NativeError>,
}

impl Family {
    /// Whether it has a program for a generation.
    pub fn is_for(&self, arch: &Arch) -> bool {
        isa_for(self.name, self.instruction_sets, arch).is_ok()
    }

    /// What it has to get right on a generation, every other one on all columns; nothing where it has no program.
    pub fn cases_on(&self, arch: &Arch) -> Vec<Case> {
        let cases = if self.is_for(arch) { (self.cases)(arch) } else { Vec::new() };
        cases.into_iter().enumerate().map(|(index, case)| Case { is_spread: index % 2 == 1, ..case }).collect()
    }

    /// The kernel of a case.
    ///
    /// # Errors
    /// As [`Family::build`].
    pub fn kernel_of(&self, case: &Case, arch: &Arch) -> Result<KernelArtifact, NativeError> {
        if !case.is_spread {
            return (self.build)(&case.node, arch);
        }
        (self.build)(&case.node, &spread(arch))
    }
}

/// The generation as if operations of streams cost nothing: what plans by costs then takes as many columns as save any time.
pub(crate) fn spread(arch: &Arch) -> Arch {
    let mut arch = arch.clone();
    arch.cost.operation_ns = Estimate::exactly(0);
    arch
}

/// The instruction set of a generation, for a family that has programs for `instruction_sets`.
///
/// # Errors
/// [`NativeError::Generation`], if it is none of these: a program is never made for another instruction set than it was written for.
pub fn isa_for(
    family: &'static str,
    instruction_sets: &[InstructionSet],
    arch: &Arch,
) -> Result<&'static Isa, NativeError> {
    isa_of(arch).filter(|isa| instruction_sets.contains(&isa.set())).ok_or_else(|| {
        let possible: Vec<&str> = instruction_sets.iter().map(|set| set.name()).collect();
        NativeError::Generation { family, arch: arch.name.clone(), possible: possible.join(", ") }
    })
}

/// Those of some families that have kernels for the operation `op`.
pub fn families_of<'a>(families: &'a [&'static Family], op: &'a str) -> impl Iterator<Item = &'static Family> + 'a {
    families.iter().copied().filter(move |family| family.operations.contains(&op))
}

/// Makes the kernel of a normalised node with the first of some families that takes it.
///
/// # Errors
/// [`NativeError::Unsupported`] of the last family with a program, [`NativeError::Generation`] where there is none, or that there is no family;
/// other errors as they come.
pub fn build(families: &[&'static Family], node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let mut rejected = None;
    for family in families_of(families, &node.op) {
        match (family.build)(node, arch) {
            Err(error @ NativeError::Unsupported { .. }) => rejected = Some(error),
            // What it would have to be says nothing where another family has a program.
            Err(error @ NativeError::Generation { .. }) => rejected = rejected.or(Some(error)),
            result => return result,
        }
    }
    Err(rejected.unwrap_or_else(|| NativeError::NoFamily { op: node.op.clone() }))
}
