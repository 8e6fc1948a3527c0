//! The self-test of families: small nodes that a family has to get right on an NPU before its kernels are used there.
//!
//! What only silicon can show (ports, the order of memory between neighbours, approximations of units) shows in small nodes as well as
//! in large ones. So each family names [`Case`]s ([`Family::cases`](crate::kernels::Family::cases)): a few nodes that take every
//! PDI of it and the main paths of its programs. This module says what goes in and what has to come out; whoever has a
//! device runs them.

pub mod attention;
mod case;
pub mod copies;
pub mod lanes;
pub mod loops;
pub mod products;

pub use case::{Case, Exactness, Input, Material};

use crate::kernels::Family;
use aie_hal::Arch;

/// What `family` has to get right on a generation; nothing where it has no program.
pub fn cases(family: &Family, arch: &Arch) -> Vec<Case> {
    if family.is_for(arch) { (family.cases)(arch) } else { Vec::new() }
}

#[cfg(test)]
mod tests;
