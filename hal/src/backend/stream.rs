//! Instruction streams in the device heap.

use super::{DeviceBackend, HeapContent};
use crate::artifact::KernelArtifact;
use crate::error::DeviceError;
use crate::format::instructions::InstructionStream;

/// A stream that is not the kernel's own, in a piece `H` of the device heap.
#[derive(Debug)]
pub(super) struct Stream<H> {
    pub(super) artifact: KernelArtifact,
    pub(super) instructions: H,
}

impl<H> Stream<H> {
    /// Puts the stream of `artifact` into the device heap, as firmware has to get it.
    ///
    /// # Errors
    /// As [`DeviceBackend::upload`], and when the stream has an address that no stream for firmware can have.
    pub(super) fn load<B: DeviceBackend<Heap = H>>(device: &B, artifact: &KernelArtifact) -> Result<Self, DeviceError> {
        let bytes = InstructionStream::for_firmware(artifact.instructions())
            .map_err(|error| DeviceError::Unsupported(format!("kernel `{}`: {error}", artifact.name())))?;
        Ok(Self { artifact: artifact.clone(), instructions: device.upload(&bytes, HeapContent::Instructions)? })
    }
}
