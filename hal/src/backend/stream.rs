//! Instruction streams in the device heap.

use super::{DeviceBackend, HeapContent};
use crate::artifact::KernelArtifact;
use crate::error::DeviceError;
use crate::format::instructions::{HEADER_BYTES, InstructionStream};
use std::ops::Range;

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
        let instructions = device.upload(&bytes, HeapContent::Instructions)?;
        device.state().count(|counters| counters.stream_bytes += bytes.len() as u64);
        Ok(Self { artifact: artifact.clone(), instructions })
    }

    /// Puts the operations of `stream` in the place of those at `place`, a range of bytes, also in the device heap. No chain has
    /// it. False where they cannot take it; nothing has changed then.
    pub(super) fn replace<B: DeviceBackend<Heap = H>>(
        &mut self,
        device: &B,
        place: Range<usize>,
        stream: &[u8],
    ) -> bool {
        let (Ok(bytes), Some(operations)) = (InstructionStream::for_firmware(stream), stream.get(HEADER_BYTES..))
        else {
            return false;
        };
        if self.artifact.instructions().get(place.clone()) == Some(operations) {
            return true;
        }
        if !self.artifact.replace_operations(place.clone(), operations) {
            return false;
        }
        device.rewrite(&self.instructions, place.start, &bytes[HEADER_BYTES..]);
        device.state().count(|counters| counters.stream_bytes += operations.len() as u64);
        true
    }
}
