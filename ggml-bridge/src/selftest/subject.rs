//! What a self-test is of.

use aie_hal::Arch;
use aie_jit_native::kernels::{FAMILIES, Family, copies};

/// A family of native kernels, or memory that is imported.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// Its kernels, with arguments in memory of the device.
    Family(&'static Family),
    /// Memory of the program as a model is given: a file that is mapped for reading, which the device is to use in place. Copies read
    /// it, since they are exact to the byte and every generation with native kernels has them.
    ImportedMemory,
}

impl Subject {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        FAMILIES.iter().map(|family| Self::Family(family)).chain([Self::ImportedMemory])
    }

    /// Its name in the record and for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Family(family) => family.name,
            Self::ImportedMemory => "imported-memory",
        }
    }

    /// The family whose nodes are computed.
    pub fn family(self) -> &'static Family {
        match self {
            Self::Family(family) => family,
            Self::ImportedMemory => &copies::FAMILY,
        }
    }

    /// Whether there is a program for a generation.
    pub fn is_for(self, arch: &Arch) -> bool {
        self.family().is_for(arch)
    }
}
