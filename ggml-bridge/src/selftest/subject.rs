//! What a self-test is of.

use aie_hal::Arch;
use aie_jit_native::kernels::{FAMILIES, Family, copies};
use aie_jit_native::selftest::loops::HARDWARE_LOOPS;
use std::borrow::Cow;

/// A family of native kernels, or what a machine has to do right for all of them.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// Its kernels, with arguments in memory of the device.
    Family(&'static Family),
    /// Zero-overhead loops of cores. Where they are wrong, native kernels branch back.
    HardwareLoops,
    /// Memory of the program as a model is given: a file that is mapped for reading, which the device is to use in place. Copies read
    /// it, since they are exact to the byte and every generation with native kernels has them.
    ImportedMemory,
}

impl Subject {
    /// All there are: that on which others depend comes first.
    pub fn all() -> impl Iterator<Item = Self> {
        let families = FAMILIES.iter().map(|family| Self::Family(family));
        [Self::HardwareLoops].into_iter().chain(families).chain([Self::ImportedMemory])
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Family(family) => family.name,
            Self::HardwareLoops => HARDWARE_LOOPS.name,
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
            Self::ImportedMemory => &copies::FAMILY,
        }
    }

    /// Whether there is a program for a generation.
    pub fn is_for(self, arch: &Arch) -> bool {
        self.family().is_for(arch)
    }
}
