//! What all drivers share: a whole [`Device`](crate::Device) but for what differs between drivers, which is a [`DeviceBackend`].
//!
//! [`OpenDevice`] is the device: accounts of memory, loaded kernels, queues. [`DeviceBuffer`] and [`LoadedKernel`] are its buffers and
//! executables. The executor runs the submissions of its queues: it places PDIs in hardware contexts, packs dispatches into
//! chains, keeps chains in flight, and runs everything else on the host. A backend supplies memory, contexts, and how a chain
//! is started and waited for.
//!
//! A backend trusts its arguments, as drivers do: [`crate::validation`] checks them. What would be memory-unsafe is checked here
//! anyway: the device of a buffer or kernel, and that ranges lie inside their buffer.

mod array;
mod buffer;
mod chain;
mod device;
mod executable;
mod executor;
mod joined;
mod objects;
mod pace;
mod stream;
mod touched;

pub use array::Array;
pub use buffer::DeviceBuffer;
pub use chain::{ChainFailure, ChainView, Dispatch};
pub use device::{DeviceState, OpenDevice};
pub use executable::LoadedKernel;
pub use executor::Scratch;

use crate::artifact::KernelArtifact;
use crate::buffer::{BufferParams, HostMemory};
use crate::context_planner::ContextHost;
use crate::device::Clocks;
use crate::error::DeviceError;
use aie_device_memory::{Region, Span};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a buffer. Freed when dropped.
pub trait DeviceMemory: Debug + Send + Sync {
    /// The host's view.
    fn host(&self) -> &Region;
    /// The address kernels see.
    fn device_address(&self) -> u64;
    /// A range of the device's view; `None` when it leaves the memory.
    fn device_span(&self, offset: usize, length: usize) -> Option<Span<'_>> {
        self.host().span(offset, length)
    }
}

/// What is put into the device heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapContent {
    /// A PDI: at the alignment of a page.
    Pdi,
    /// An instruction stream.
    Instructions,
}

/// The order of the commands between two barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrder {
    /// As recorded.
    Recorded,
    /// Backwards, which finds missing barriers.
    Reversed,
    /// Dispatches of one context together, so that contexts switch less often.
    ByContext,
}

/// The name of a hardware context of a backend.
pub type ContextOf<B> = <<B as DeviceBackend>::Contexts as ContextHost>::Context;

/// What a driver supplies for a logical device. Shared by everything that the device makes.
pub trait DeviceBackend: Debug + Send + Sync + Sized + 'static {
    /// Memory of a buffer.
    type Memory: DeviceMemory;
    /// A piece of the device heap, released when dropped.
    type Heap: Debug + Send + Sync;
    /// What [`DeviceBackend::prepare`] makes of a kernel.
    type Kernel: Debug + Send + Sync;
    /// Makes hardware contexts.
    type Contexts: ContextHost<Memory = Self::Heap>;
    /// What [`DeviceBackend::start`] keeps between chains, so that starting one seldom allocates.
    type ChainScratch: Default + Send;

    /// Whether fill, update and copy run on the host's view, as host calls do, and not on the device's.
    const TRANSFERS_ON_HOST: bool = true;
    /// Whether chains between two host commands are sent with one doorbell; otherwise each has its own.
    const CHAINS_SHARE_DOORBELL: bool = false;
    /// Most submissions that are considered for one chain.
    const BATCH: usize = 1;
    /// After how many nanoseconds the kernel driver ends a chain. Chains are kept within half of it, by what their dispatches are
    /// expected to take and how much longer work has taken on this NPU.
    const CHAIN_NS: u64 = u64::MAX;
    /// Most bytes of an argument.
    const ARGUMENT_BYTES: usize = usize::MAX;

    /// Identity, limits and accounts of the device.
    fn state(&self) -> &DeviceState;
    /// The array of its NPU.
    fn array(&self) -> &Array<Self::Contexts>;
    /// The order of the commands between two barriers.
    fn order(&self) -> CommandOrder {
        CommandOrder::Recorded
    }
    /// Time on the virtual clock in nanoseconds; 0 on hardware.
    fn virtual_ns(&self) -> u64 {
        0
    }
    /// How fast it runs now, where that is known.
    fn clocks(&self) -> Option<Clocks> {
        None
    }
    /// Instruction bundles that emulated cores have executed; 0 on hardware.
    fn bundles(&self) -> u64 {
        0
    }

    /// Allocates zeroed memory, which the account of the device has room for.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Lost`].
    fn allocate(&self, params: &BufferParams) -> Result<Self::Memory, DeviceError>;
    /// Makes foreign memory usable, at least one byte of it.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`], [`DeviceError::OutOfMemory`], [`DeviceError::Lost`].
    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Self::Memory, DeviceError>;
    /// Puts bytes into the device heap.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Lost`].
    fn upload(&self, bytes: &[u8], content: HeapContent) -> Result<Self::Heap, DeviceError>;
    /// Changes `bytes` of an instruction stream in the device heap, from byte `offset` on; they lie inside it. No chain in flight runs it.
    fn rewrite(&self, stream: &Self::Heap, offset: usize, bytes: &[u8]);
    /// What the backend needs of a kernel beside its PDI and instructions.
    fn prepare(&self, artifact: &KernelArtifact) -> Self::Kernel;

    /// Makes host writes in a range visible to the device.
    fn flush(&self, memory: &Self::Memory, range: Range<usize>);
    /// Makes device writes in a range visible to the host.
    fn invalidate(&self, memory: &Self::Memory, range: Range<usize>);
    /// As [`DeviceBackend::invalidate`], before a host command, on a device that is not coherent. Returns the bytes for which
    /// something was done.
    fn invalidate_written(&self, memory: &Self::Memory, range: Range<usize>) -> u64 {
        self.invalidate(memory, range.clone());
        range.len() as u64
    }
    /// As [`DeviceBackend::flush`], after a host command, on a device that is not coherent.
    fn flush_written(&self, memory: &Self::Memory, range: Range<usize>) {
        self.flush(memory, range);
    }
    /// A chain has ended, or failed, that may have written these device addresses.
    fn note_written<'r>(&self, ranges: impl Iterator<Item = &'r Range<u64>>) {
        let _ = ranges;
    }
    /// `bytes` have passed the memory interface for a transfer.
    fn note_transfer(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Contexts that were created on the array since it was opened.
    fn contexts_created(&self) -> u64;
    /// Why there is no context for the kernels of a list.
    fn context_error(&self, cause: <Self::Contexts as ContextHost>::Error) -> DeviceError;
    /// How many chains of one context can be in flight. With 1 a chain has ended when [`DeviceBackend::start`] returns.
    fn chains_ahead(&self) -> usize {
        1
    }
    /// Starts a chain; returns its number for [`DeviceBackend::finish`]. Chains of one context run in the order in which they were
    /// started. Called under the execution lock.
    ///
    /// # Errors
    /// The first failure. The chain was not started then, except where it has ended when this returns.
    fn start(&self, scratch: &mut Self::ChainScratch, chain: &ChainView<'_, Self>) -> Result<u64, ChainFailure>;
    /// Waits until a chain has ended.
    ///
    /// # Errors
    /// The first failure.
    fn finish(&self, number: u64, chain: &ChainView<'_, Self>) -> Result<(), ChainFailure> {
        let _ = (number, chain);
        Ok(())
    }
}
