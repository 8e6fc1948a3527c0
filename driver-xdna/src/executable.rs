//! Loaded kernels. Equal PDIs share one upload, one number, and so one place in a context.

use crate::npu::Npu;
use crate::pool::Block;
use aie_hal::artifact::{Digest, KernelArtifact};
use aie_hal::context_planner::PlannedPdi;
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A PDI in the device heap.
#[derive(Debug)]
pub(crate) struct LoadedPdi {
    /// Small and dense; the same for the same digest, also after unloading and loading again.
    number: usize,
    pub(crate) bytes: usize,
    pub(crate) memory: Arc<Block>,
}

impl PlannedPdi for LoadedPdi {
    fn number(&self) -> usize {
        self.number
    }
}

/// The PDIs of an NPU by digest.
#[derive(Debug, Default)]
pub(crate) struct PdiTable {
    known: HashMap<Digest, (usize, Weak<LoadedPdi>)>,
}

impl PdiTable {
    /// The loaded PDI of `artifact`; `upload` puts bytes into the device heap when it is not loaded.
    pub(crate) fn load(
        &mut self,
        artifact: &KernelArtifact,
        upload: impl FnOnce(&[u8]) -> Result<Block, DeviceError>,
    ) -> Result<Arc<LoadedPdi>, DeviceError> {
        let next = self.known.len();
        let (number, loaded) = self.known.get(artifact.digest()).map_or((next, None), |(n, weak)| (*n, weak.upgrade()));
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let memory = Arc::new(upload(artifact.pdi())?);
        let pdi = Arc::new(LoadedPdi { number, bytes: artifact.pdi().len(), memory });
        self.known.insert(*artifact.digest(), (number, Arc::downgrade(&pdi)));
        Ok(pdi)
    }
}

/// A kernel of a real NPU.
#[derive(Debug)]
pub(crate) struct XdnaExecutable {
    pub(crate) artifact: KernelArtifact,
    pub(crate) pdi: Arc<LoadedPdi>,
    pub(crate) instructions: Block,
    /// Contexts and heap are those of the NPU, so all its logical devices can run it; the HAL asks for one device.
    pub(crate) device: usize,
    pub(crate) _npu: Arc<Npu>,
}

impl Executable for XdnaExecutable {
    fn artifact(&self) -> &KernelArtifact {
        &self.artifact
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
