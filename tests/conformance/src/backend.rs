//! A driver in one mode, and what is known of it.

use crate::rig::Rig;
use aie_hal::{Driver, validation};
use std::fmt::{Display, Formatter};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

/// What a case needs and a mode may have. The case `enumeration::tags_match_the_device` checks a mode's tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Host and device views always agree.
    Coherent,
    /// They agree only after a flush or an invalidate, and the device shows it.
    NonCoherent,
    /// The parameter `devices=2` makes one URI open two devices.
    SeveralDevices,
    /// Host memory can be imported that may be written.
    HostImport,
    /// Files that are mapped for reading can be imported, too.
    FileImport,
    /// The parameter `fault=KIND@N` injects faults.
    Faults,
    /// The parameter `memory=BYTES` caps the data pool.
    MemoryCap,
    /// Kernels run through the executor of this crate, so a kernel can be made to fail.
    SoftwareKernels,
    /// The device heap can be allocated from, so that it can be exhausted.
    HeapAllocation,
    /// Machine code runs: there are tables of the generation's instructions.
    MachineCode,
}

impl Display for Tag {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Coherent => "a device with coherent memory",
            Self::NonCoherent => "a device with non-coherent memory",
            Self::SeveralDevices => "a driver with several devices (`devices=2`)",
            Self::HostImport => "a device that imports host memory",
            Self::FileImport => "a device that imports mapped files",
            Self::Faults => "a driver with fault plans (`fault=KIND@N`)",
            Self::MemoryCap => "a driver whose data pool can be capped (`memory=BYTES`)",
            Self::SoftwareKernels => "kernels that run in software",
            Self::HeapAllocation => "a device heap that can be allocated from",
            Self::MachineCode => "a generation with instruction tables",
        })
    }
}

/// A case that a driver is known to fail, and why. It still runs; when it passes, the suite fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exclusion {
    /// `area::case`.
    pub case: &'static str,
    /// A full sentence: what the driver cannot do and what that follows from.
    pub reason: &'static str,
}

/// One driver in one mode.
#[derive(Debug)]
pub struct Backend {
    pub(crate) name: String,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) uri: String,
    pub(crate) tags: Vec<Tag>,
    pub(crate) exclusions: Vec<Exclusion>,
    pub(crate) malformed_parameters: Vec<&'static str>,
    /// Time after which a case counts as hanging.
    pub(crate) deadline: Duration,
    pub(crate) shared: OnceLock<Rig>,
    /// Written by cases that run alone.
    pub(crate) turns: RwLock<()>,
}

impl Backend {
    /// A mode called `name`: `driver`, which this wraps in the validation layer, opened with `uri`.
    pub fn new(name: impl Into<String>, driver: Arc<dyn Driver>, uri: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            driver: validation::wrap_driver(driver),
            uri: uri.into(),
            tags: Vec::new(),
            exclusions: Vec::new(),
            malformed_parameters: Vec::new(),
            deadline: Duration::from_secs(120),
            shared: OnceLock::new(),
            turns: RwLock::new(()),
        }
    }

    /// Says what the mode has; cases that need anything else do not apply to it.
    #[must_use]
    pub fn tags(mut self, tags: &[Tag]) -> Self {
        self.tags.extend_from_slice(tags);
        self
    }

    /// Cases the driver is known to fail.
    #[must_use]
    pub fn exclusions(mut self, exclusions: &[Exclusion]) -> Self {
        self.exclusions.extend_from_slice(exclusions);
        self
    }

    /// URI parameters (`name=value`) that the driver knows by name and has to reject for their value.
    #[must_use]
    pub fn malformed_parameters(mut self, parameters: &[&'static str]) -> Self {
        self.malformed_parameters.extend_from_slice(parameters);
        self
    }

    /// Whether the mode has `tag`.
    pub fn has(&self, tag: Tag) -> bool {
        self.tags.contains(&tag)
    }
}
