//! A family of kernels: a group of operations with one design.

use super::{Case, NativeError};
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
    /// What it has to get right on an NPU before its kernels are used there. Every operation is among them.
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

    /// What it has to get right on a generation; nothing where it has no program.
    pub fn cases_on(&self, arch: &Arch) -> Vec<Case> {
        if self.is_for(arch) { (self.cases)(arch) } else { Vec::new() }
    }
}
