//! Loaded kernels.

use super::DeviceBackend;
use crate::artifact::KernelArtifact;
use crate::executable::Executable;
use crate::format::extent::Traffic;
use crate::format::instructions::InstructionStream;
use crate::loaded_pdi::LoadedPdi;
use std::sync::{Arc, OnceLock};

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
    pub(super) traffic: OnceLock<Option<Traffic>>,
}

impl<B: DeviceBackend> LoadedKernel<B> {
    /// What its stream moves, if the streams of its dispatches can be put behind others of the same PDI. Found when it is first
    /// asked for.
    pub(super) fn joinable(&self) -> Option<Traffic> {
        *self.traffic.get_or_init(|| {
            let stream = InstructionStream::parse(self.artifact.instructions()).ok()?;
            if self.artifact.is_description() || !stream.can_be_joined() {
                return None;
            }
            let extents = self.artifact.argument_extents().ok()?;
            let parts = extents.iter().flat_map(|extent| [&extent.read, &extent.written]).flatten();
            Some(parts.fold(Traffic::default(), |sum, part| sum.and(part.moved)))
        })
    }
}

impl<B: DeviceBackend> Executable for LoadedKernel<B> {
    fn artifact(&self) -> &KernelArtifact {
        &self.artifact
    }
}
