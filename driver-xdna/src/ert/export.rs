//! Memory of this agent for another process.

use super::ErtAgent;
use super::packets::HEAP_ALIGNMENT;
use crate::agent::{AgentError, Allocation};
use crate::isolated::{Export, export_dmabuf};
use aie_hal::MemoryPool;
use std::os::fd::OwnedFd;

impl Export for ErtAgent {
    /// Data memory is exported by ROCR. A part of the device heap cannot be exported, so that is the whole heap, through the
    /// gate, with the part's offset.
    fn export(&self, allocation: &Allocation) -> Result<(OwnedFd, u64), AgentError> {
        self.alive()?;
        // ROCR looks the address up in a table without a lock.
        let _ring = self.lock()?;
        match allocation.pool {
            MemoryPool::Data => export_dmabuf(&self.session, allocation),
            MemoryPool::DeviceHeap => match self.gate.export_heap() {
                Some(Ok(heap)) => Ok((heap, allocation.device_address % HEAP_ALIGNMENT)),
                Some(Err(cause)) => {
                    Err(AgentError::OutOfMemory(format!("the device heap for another process: {cause}")))
                }
                None => Err(AgentError::Unsupported(format!(
                    "{} was started in this process before this driver came, so its device heap cannot be shared with \
                     another process; use it in this process, without isolation",
                    self.info.library.display()
                ))),
            },
        }
    }
}
