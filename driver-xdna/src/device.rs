//! A logical device, on an NPU that it may share.

mod chain;

use crate::agent::{AgentError, Caches, Chain};
use crate::contexts::AgentContexts;
use crate::discovery::SCHEME;
use crate::memory::{self, XdnaMemory};
use crate::npu::{OpenNpu, write_heap};
use crate::pool::Block;
use aie_hal::DeviceUri;
use aie_hal::artifact::KernelArtifact;
use aie_hal::backend::{
    Array, ChainFailure, ChainView, CommandOrder, DeviceBackend, DeviceMemory as _, DeviceState, HeapContent,
    OpenDevice,
};
use aie_hal::buffer::{BufferParams, HostMemory, MemoryPool};
use aie_hal::device::{Clocks, DeviceInfo, Limits};
use aie_hal::error::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// What everything made by one logical device refers to.
#[derive(Debug)]
pub(crate) struct XdnaDevice {
    state: DeviceState,
    pub(crate) npu: Arc<OpenNpu>,
}

impl XdnaDevice {
    /// A logical device on `npu`. `memory`: most bytes of data memory; `chain`: most dispatches in one doorbell.
    pub(crate) fn open(
        uri: DeviceUri,
        title: String,
        npu: Arc<OpenNpu>,
        memory: Option<usize>,
        chain: Option<usize>,
    ) -> OpenDevice<Self> {
        // Where the runtime maintains caches host and device agree whenever a chain starts or has ended.
        let info = DeviceInfo {
            uri,
            name: title,
            driver: SCHEME,
            simulated: false,
            arch: npu.arch.name.clone(),
            coherent: npu.agent.caches().is_none(),
            import_obstacle: npu.agent.why_files_are_copied().map(ToOwned::to_owned),
        };
        let limit = npu.limits.commands_per_chain;
        let limits = Limits { commands_per_chain: chain.unwrap_or(limit).clamp(1, limit.max(1)), ..npu.limits };
        let pool = usize::try_from(npu.agent.info().data_bytes).unwrap_or(usize::MAX);
        let state = DeviceState::new(info, Arc::clone(&npu.arch), limits, memory.unwrap_or(pool).min(pool));
        OpenDevice::new(Self { state, npu })
    }

    /// How cache lines are maintained, where the runtime does not do so.
    fn caches(&self) -> Option<&dyn Caches> {
        self.npu.agent.caches()
    }

    fn memory(&self, block: Block) -> XdnaMemory {
        XdnaMemory { block, npu: Arc::clone(&self.npu) }
    }
}

impl DeviceBackend for XdnaDevice {
    type Memory = XdnaMemory;
    type Heap = Arc<Block>;
    type Kernel = ();
    type Contexts = AgentContexts;
    type ChainScratch = Chain;

    // ROCR has no transfers for NPUs, and neither has the kernel driver.
    const TRANSFERS_ON_HOST: bool = true;
    // The runtime makes one chain of what is pending.
    const CHAINS_SHARE_DOORBELL: bool = false;
    const BATCH: usize = 256;
    // For the kernel driver a chain is one job, which it ends after 2 s on some versions.
    const CHAIN_NS: u64 = 2_000_000_000;
    const ARGUMENT_BYTES: usize = u32::MAX as usize;

    fn state(&self) -> &DeviceState {
        &self.state
    }

    fn array(&self) -> &Array<AgentContexts> {
        &self.npu.array
    }

    fn order(&self) -> CommandOrder {
        CommandOrder::ByContext
    }

    fn allocate(&self, params: &BufferParams) -> Result<XdnaMemory, DeviceError> {
        let block = match params.pool {
            MemoryPool::Data => self.npu.noticing_loss(self.npu.pool.allocate(params)),
            MemoryPool::DeviceHeap => self.npu.heap(params),
        };
        Ok(self.memory(block?))
    }

    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<XdnaMemory, DeviceError> {
        let bytes = memory.span().length();
        let block = memory::import(&self.npu.agent, memory).map_err(|cause| match cause {
            AgentError::Lost(cause) => self.npu.array.lose(cause),
            other => DeviceError::Unsupported(format!(
                "import of {bytes} bytes: {other}; copy them into a buffer of {}",
                self.state.name
            )),
        })?;
        Ok(self.memory(block))
    }

    fn upload(&self, bytes: &[u8], content: HeapContent) -> Result<Arc<Block>, DeviceError> {
        self.npu.upload(bytes, content).map(Arc::new)
    }

    fn rewrite(&self, stream: &Arc<Block>, offset: usize, bytes: &[u8]) {
        write_heap(stream, offset, bytes);
    }

    fn prepare(&self, _: &KernelArtifact) {}

    fn flush(&self, memory: &XdnaMemory, range: Range<usize>) {
        if let (Some(caches), Some(span)) = (self.caches(), memory.host().span(range.start, range.len())) {
            caches.write_back(span);
        }
    }

    fn invalidate(&self, memory: &XdnaMemory, range: Range<usize>) {
        if let (Some(caches), Some(span)) = (self.caches(), memory.host().span(range.start, range.len())) {
            caches.invalidate(span);
            self.npu.written.forget(memory.device_range(range));
        }
    }

    fn invalidate_written(&self, memory: &XdnaMemory, range: Range<usize>) -> u64 {
        let (Some(caches), Some(whole)) = (self.caches(), memory.host().span(range.start, range.len())) else {
            return 0;
        };
        let mut bytes = 0;
        self.npu.written.take(&memory.device_range(range), |part| {
            bytes += part.len() as u64;
            if let Some(stale) = whole.part(part) {
                caches.invalidate(stale);
            }
        });
        bytes
    }

    fn note_written<'r>(&self, ranges: impl Iterator<Item = &'r Range<u64>>) {
        if self.caches().is_some() {
            self.npu.written.note(ranges);
        }
    }

    fn contexts_created(&self) -> u64 {
        self.npu.agent.contexts_created()
    }

    fn clocks(&self) -> Option<Clocks> {
        self.npu.agent.clocks()
    }

    fn context_error(&self, cause: AgentError) -> DeviceError {
        self.npu.error("a hardware context for the kernels", cause)
    }

    fn chains_ahead(&self) -> usize {
        self.npu.agent.chains_ahead()
    }

    fn start(&self, packed: &mut Chain, chain: &ChainView<'_, Self>) -> Result<u64, ChainFailure> {
        chain::start(self, packed, chain)
    }

    fn finish(&self, number: u64, chain: &ChainView<'_, Self>) -> Result<(), ChainFailure> {
        chain::finish(self, number, chain)
    }
}

#[cfg(test)]
mod tests;
