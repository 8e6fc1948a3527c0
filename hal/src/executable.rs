//! A kernel that a device has loaded.

use crate::artifact::KernelArtifact;
use std::any::Any;
use std::fmt::Debug;

/// A loaded [`KernelArtifact`]: its PDI and instructions are in the device heap. Thread-safe. Unloaded when the last reference
/// goes; command lists hold references.
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
pub trait Executable: Any + Send + Sync + Debug {
    /// What was loaded.
    fn artifact(&self) -> &KernelArtifact;
}
