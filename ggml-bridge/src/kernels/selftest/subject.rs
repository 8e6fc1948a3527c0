//! What a self-test is of.

use aie_hal::Arch;
use aie_jit_native::families::elements::ELEMENTWISE;
use aie_jit_native::families::{self, HARDWARE_LOOPS, copies};
use aie_jit_native::kit::Family;
use std::borrow::Cow;

/// Families in the order in which they are tested. Sums need shims and cores with their locks; rings in mem tiles that a stream starts,
/// as the others from copies on have them, are what has hung on an NPU; those that the PDI starts have not.
const BY_RISK: [&str; 12] = [
    "elementwise",
    "rows",
    "rope",
    "vectors",
    "rings-attention",
    "rings",
    "rings-products",
    "copies",
    "product",
    "prompts",
    "token",
    "attention",
];

/// What has streams that start channels of mem tiles.
const STARTED_BY_STREAMS: [&str; 6] = ["copies", "product", "prompts", "token", "attention", "imported-memory"];

/// A family of native kernels, or what a machine has to do right for all of them.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// Its kernels, with arguments in memory of the device.
    Family(&'static Family),
    /// Zero-overhead loops of cores. Where they are wrong, native kernels branch back.
    HardwareLoops,
    /// Dispatches that are submitted together and executed as one, with up to as many arguments as one can have: firmware translates
    /// the addresses of the first few alone.
    JoinedDispatches,
    /// Memory of the program as a model is given: a file that is mapped for reading, which the device is to use in place. Copies read
    /// it, since they are exact to the byte and every generation with native kernels has them.
    ImportedMemory,
}

impl Subject {
    /// All there are: that on which others depend comes first, then what asks least of an NPU.
    pub fn all() -> impl Iterator<Item = Self> {
        let rank =
            |family: &&'static Family| BY_RISK.iter().position(|name| *name == family.name).unwrap_or(BY_RISK.len());
        let mut families: Vec<&'static Family> = families::all().collect();
        families.sort_by_key(rank);
        let families = families.into_iter().map(Self::Family);
        [Self::HardwareLoops].into_iter().chain(families).chain([Self::JoinedDispatches, Self::ImportedMemory])
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Family(family) => family.name,
            Self::HardwareLoops => HARDWARE_LOOPS.name,
            Self::JoinedDispatches => "joined-dispatches",
            Self::ImportedMemory => "imported-memory",
        }
    }

    /// Its name in the record: what is known of kernels with hardware loops says nothing about those without.
    pub fn key(self, arch: &Arch) -> Cow<'static, str> {
        match self {
            Self::Family(family) if !arch.hardware_loops => format!("{}-jnz", family.name).into(),
            _ => self.name().into(),
        }
    }

    /// The family whose nodes are computed.
    pub fn family(self) -> &'static Family {
        match self {
            Self::Family(family) => family,
            Self::HardwareLoops => &HARDWARE_LOOPS,
            Self::JoinedDispatches => &ELEMENTWISE,
            Self::ImportedMemory => &copies::FAMILY,
        }
    }

    /// Whether what a trial shows says nothing about the time after the next start of the machine.
    pub fn is_for_one_boot(self, arch: &Arch) -> bool {
        !arch.mem_tile_starts && STARTED_BY_STREAMS.contains(&self.name())
    }

    /// Whether there is a program for a generation.
    pub fn is_for(self, arch: &Arch) -> bool {
        self.family().is_for(arch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_place() {
        let names: Vec<&str> = Subject::all().map(Subject::name).collect();
        let found = &names[1..names.len() - 2];
        assert_eq!(found, BY_RISK);
        assert_eq!(found.len(), families::all().count());
    }
}
