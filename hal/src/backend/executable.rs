//! Loaded kernels.

use super::DeviceBackend;
use crate::artifact::KernelArtifact;
use crate::executable::Executable;
use crate::loaded_pdi::LoadedPdi;
use std::sync::Arc;

/// A kernel that the device `B` has loaded.
#[derive(Debug)]
pub struct LoadedKernel<B: DeviceBackend> {
    /// What was loaded.
    pub artifact: KernelArtifact,
    /// Its PDI.
    pub pdi: Arc<LoadedPdi<B::Heap>>,
    /// Its instruction stream.
    pub instructions: B::Heap,
    /// What the backend made of it.
    pub kernel: B::Kernel,
    pub(super) device: Arc<B>,
}

impl<B: DeviceBackend> Executable for LoadedKernel<B> {
    fn artifact(&self) -> &KernelArtifact {
        &self.artifact
    }
}
