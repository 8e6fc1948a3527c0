//! How this kernel lets one wait for a chain, found out with a context that does nothing.

use super::packets::device_address;
use super::{ErtAgent, Ring};
use crate::agent::{Agent, AgentError, Allocation, ContextId, PdiRef};
use aie_device_memory::Region;
use aie_hal::MemoryPool;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::instructions::{Header, InstructionWriter};
use aie_hal::format::pdi;
use std::sync::Arc;
use std::time::Duration;

/// How long the trial may take: contexts and firmware need tens of milliseconds, the kernel driver's watchdog two seconds.
const LIMIT: Duration = Duration::from_secs(10);

impl ErtAgent {
    /// Makes a context with a PDI that configures nothing, and looks at how the end of a chain in it can be known.
    ///
    /// # Errors
    /// [`AgentError::Unsupported`] for a kernel that has no way, with what was tried; those of the memory and of the context.
    pub(super) fn find_way(&self) -> Result<(), AgentError> {
        let no_kernel =
            |cause: String| AgentError::Unsupported(format!("the kernel for a trial cannot be made: {cause}"));
        let pdi = pdi::write(CdoBuilder::new().nop(&[])).map_err(|cause| no_kernel(cause.to_string()))?;
        let header = if self.info.name == "aie2" { Header::aie2(1) } else { Header::aie2p(1) };
        let instructions = InstructionWriter::new(header).finish().map_err(|cause| no_kernel(cause.to_string()))?;
        let memory = self.upload(&pdi)?;
        let result = self.upload(&instructions).and_then(|stream| {
            let context = self.create_context(&[PdiRef { address: memory.device_address, bytes: pdi.len() }]);
            let found = context.and_then(|context| {
                let found = self.try_out(context, &stream, instructions.len());
                self.destroy_context(context);
                found
            });
            self.free(stream);
            found
        });
        self.free(memory);
        result
    }

    fn try_out(&self, context: ContextId, stream: &Allocation, bytes: usize) -> Result<(), AgentError> {
        let mut ring = self.lock()?;
        let Ring { buffers, contexts, way, .. } = &mut *ring;
        let Some(context) = contexts.get(&context).copied() else { return Ok(()) };
        let memory = |cause: std::io::Error| AgentError::OutOfMemory(format!("command buffers: {cause}"));
        self.gate.reserve(buffers, 1).map_err(memory)?;
        let (at, words) = (device_address(stream.device_address), (bytes / 4) as u32);
        let found = self.gate.way_to_wait(buffers, context, at, words, self.limit.min(LIMIT));
        *way = found.map_err(AgentError::Unsupported)?;
        tracing::debug!("chains are waited for by {way}");
        Ok(())
    }

    /// Puts bytes into the device heap.
    fn upload(&self, bytes: &[u8]) -> Result<Allocation, AgentError> {
        let allocation = self.allocate(MemoryPool::DeviceHeap, bytes.len())?;
        // SAFETY: the allocation is as long, mapped for reading and writing, and given back by the caller later.
        let region = unsafe { Region::mapped(allocation.host, bytes.len(), Arc::new(())) };
        if let Some(span) = region.span(0, bytes.len()) {
            span.write(bytes);
            span.write_back();
        }
        Ok(allocation)
    }
}
