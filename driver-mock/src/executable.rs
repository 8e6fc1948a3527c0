//! Loaded kernels. Equal PDIs share one copy in the device heap and one number.

use crate::device::DeviceShared;
use crate::npu::Npu;
use aie_hal::artifact::{Digest, KernelArtifact};
use aie_hal::error::DeviceError;
use aie_hal::executable::Executable;
use aie_hal::host_function::{HostFunction, HostFunctionError};
use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// Alignment of PDIs and instruction streams in the device heap: a page, as the kernel driver hands them out.
const HEAP_ALIGNMENT: usize = 4096;

/// A stretch of the device heap, given back when dropped.
#[derive(Debug)]
pub(crate) struct HeapAllocation {
    npu: Arc<Npu>,
    address: u64,
}

impl HeapAllocation {
    pub(crate) fn new(npu: &Arc<Npu>, bytes: usize, device: &str) -> Result<Self, DeviceError> {
        let address = npu.heap_allocate(bytes, HEAP_ALIGNMENT).map_err(|r| r.into_device_error(device))?;
        Ok(Self { npu: Arc::clone(npu), address })
    }
}

impl Drop for HeapAllocation {
    fn drop(&mut self) {
        self.npu.heap_free(self.address);
    }
}

/// A PDI in the device heap.
#[derive(Debug)]
pub(crate) struct LoadedPdi {
    pub(crate) digest: Digest,
    /// Small and dense; the same for the same digest, also after unloading and loading again.
    pub(crate) number: usize,
    _memory: HeapAllocation,
}

/// The PDIs of a device by digest.
#[derive(Debug, Default)]
pub(crate) struct PdiTable {
    known: HashMap<Digest, (usize, Weak<LoadedPdi>)>,
}

impl PdiTable {
    /// The loaded PDI of `artifact`, loading it when it is not.
    pub(crate) fn load(
        &mut self,
        npu: &Arc<Npu>,
        artifact: &KernelArtifact,
        device: &str,
    ) -> Result<Arc<LoadedPdi>, DeviceError> {
        let next = self.known.len();
        let (number, loaded) = self.known.get(artifact.digest()).map_or((next, None), |(n, weak)| (*n, weak.upgrade()));
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let memory = HeapAllocation::new(npu, artifact.pdi().len(), device)?;
        let pdi = Arc::new(LoadedPdi { digest: *artifact.digest(), number, _memory: memory });
        self.known.insert(pdi.digest, (number, Arc::downgrade(&pdi)));
        Ok(pdi)
    }
}

/// A kernel of the simulated device.
#[derive(Debug)]
pub(crate) struct MockExecutable {
    pub(crate) artifact: KernelArtifact,
    pub(crate) pdi: Arc<LoadedPdi>,
    pub(crate) _instructions: HeapAllocation,
    /// What the executor made of it; with an error, dispatches time out.
    pub(crate) kernel: Result<Arc<dyn HostFunction>, HostFunctionError>,
    pub(crate) device: Arc<DeviceShared>,
}

impl Executable for MockExecutable {
    fn artifact(&self) -> &KernelArtifact {
        &self.artifact
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
