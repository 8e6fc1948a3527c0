//! Memory of buffers: cut from the NPU's pools, or the program's own, used in place.

use crate::agent::{Agent, AgentError, Held};
use crate::npu::OpenNpu;
use crate::pool::Block;
use aie_device_memory::{Region, Span};
use aie_hal::HostMemory;
use aie_hal::backend::DeviceMemory;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Memory of a buffer of a real NPU.
#[derive(Debug)]
pub(crate) struct XdnaMemory {
    pub(crate) block: Block,
    pub(crate) npu: Arc<OpenNpu>,
}

impl Drop for XdnaMemory {
    fn drop(&mut self) {
        self.npu.written.forget(self.device_range(0..self.block.region.length()));
    }
}

impl DeviceMemory for XdnaMemory {
    fn host(&self) -> &Region {
        &self.block.region
    }

    fn device_address(&self) -> u64 {
        self.block.device_address
    }
}

impl XdnaMemory {
    /// A range as the NPU sees it.
    pub(crate) fn device_range(&self, range: Range<usize>) -> Range<u64> {
        self.block.device_address + range.start as u64..self.block.device_address + range.end as u64
    }
}

/// Memory of somebody else that an agent knows. The agent forgets it when this is dropped, before the memory goes.
struct Imported {
    _allocation: Held,
    memory: Arc<dyn HostMemory>,
}

impl HostMemory for Imported {
    fn span(&self) -> Span<'_> {
        self.memory.span()
    }
}

/// Makes `memory`, which is not empty, known to `agent`.
///
/// The kernel driver takes whole pages. The first and the last one may hold other things of the program beside the memory that is
/// imported; the NPU touches only what it is given as an argument.
pub(crate) fn import(agent: &Arc<dyn Agent>, memory: Arc<dyn HostMemory>) -> Result<Block, AgentError> {
    let (start, length) = (memory.span().address(), memory.span().length());
    let before = start % PAGE;
    let pages = (before + length).next_multiple_of(PAGE);
    // In the first page that the memory touches.
    let first = NonNull::new(std::ptr::with_exposed_provenance_mut(start - before))
        .ok_or_else(|| AgentError::Unsupported("memory in the first page".into()))?;
    // SAFETY: pages that hold memory of the owner stay mapped as long as it does, which the object below keeps.
    let allocation = unsafe { agent.import(first, pages) }?;
    let device_address = allocation.device_address + before as u64;
    let imported = Imported { _allocation: Held::new(agent, allocation), memory };
    let region = Region::borrowed(Arc::new(imported));
    if let (Some(caches), Some(span)) = (agent.caches(), region.span(0, length)) {
        // What the host has written so far is what the NPU is to see.
        caches.write_back(span);
    }
    Ok(Block { region, device_address })
}
