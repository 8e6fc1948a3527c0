//! A logical device: one NPU, opened.

use crate::arch::Arch;
pub use crate::arch::Limits;
use crate::artifact::KernelArtifact;
use crate::buffer::{Buffer, BufferParams, HostMemory};
use crate::counters::Counters;
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::queue::Queue;
use crate::semaphore::Semaphore;
use crate::uri::DeviceUri;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::Arc;

/// Who a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// A URI that opens this very device again, with its parameters.
    pub uri: DeviceUri,
    /// Product name for people.
    pub name: String,
    /// Driver name, e.g. `mock`.
    pub driver: &'static str,
    /// Whether the driver itself simulates it. A simulated kernel device is not recognised: to its driver it is an NPU.
    pub simulated: bool,
    /// Name of its generation, e.g. `aie2p`.
    pub arch: String,
    /// Whether host and device views of data memory always agree.
    pub coherent: bool,
    /// Why it cannot use all host memory of others in place ([`Device::import`]), mapped files included; `None` when it can.
    pub import_obstacle: Option<String>,
}

/// Words of a dispatch's payload: opcode and instruction address (two words each), instruction size, and three words for each
/// argument; below 15 one more where the number would be odd, because firmware of npu4 is said to abort chains with such a slot
/// (AMD's notes on ROCR's XDNA driver).
pub const fn dispatch_words(arguments: usize) -> usize {
    let words = 5 + 3 * arguments;
    if words < 15 { words.next_multiple_of(2) } else { words }
}

/// Bytes that a dispatch with `arguments` arguments takes in a chain's command buffer ([`Limits::chain_buffer_bytes`]).
///
/// A slot has a head of 52 bytes (amdxdna's packed `cmd_chain_slot_npu`: type, three 64-bit addresses, three sizes, property
/// count, unit index, argument count), then the payload ([`dispatch_words`]). With two arguments that is 100 bytes, so that 40
/// dispatches fill 4 KiB.
pub const fn chain_command_bytes(arguments: usize) -> usize {
    52 + 4 * dispatch_words(arguments)
}

/// Most bytes of the instruction stream of joined dispatches: 1 MiB, as streams of 2.18 MB have run on an NPU1, and no more than a sixteenth
/// of the device heap, which PDIs, other streams and command buffers are in, too.
pub fn joined_stream_bytes(limits: &Limits) -> usize {
    (1 << 20).min(limits.device_heap_bytes / 16)
}

/// Memory of the data pool, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReport {
    /// In all.
    pub total: u64,
    /// Not allocated.
    pub free: u64,
}

/// How fast a device runs, as its kernel driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Of the array, in MHz. The lowest step where no context is on the device.
    pub array_mhz: u32,
    /// Of the processor that runs the firmware, in MHz.
    pub processor_mhz: u32,
    /// The power mode by amdxdna's number: 0 default, 1 low, 2 medium, 3 high, 4 turbo. `None` where the driver does not say.
    pub power_mode: Option<u8>,
}

/// An opened NPU. Thread-safe; closed when the last reference goes. Everything it makes keeps it alive.
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
pub trait Device: Send + Sync + Debug {
    /// Who it is.
    fn info(&self) -> &DeviceInfo;
    /// Its generation's data.
    fn arch(&self) -> &Arc<Arch>;
    /// What it refuses to exceed.
    fn limits(&self) -> &Limits;
    /// Memory of the data pool.
    fn memory(&self) -> MemoryReport;
    /// Counters since opening.
    fn counters(&self) -> Counters;
    /// How fast it runs now, which differs between machines, power modes and moments; `None` where that is not known.
    fn clocks(&self) -> Option<Clocks> {
        None
    }
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::LimitExceeded`], [`DeviceError::InvalidArgument`] (size 0, alignment not a
    /// power of two), [`DeviceError::Lost`].
    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError>;
    /// Makes foreign memory usable in command lists, in place. Holds `memory` for the life of the buffer. The device's
    /// view starts as the host's is now; later host writes need [`Buffer::flush`].
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the device cannot reach such memory (then copy), [`DeviceError::Lost`].
    fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError>;
    /// Loads a kernel.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArtifact`] (another generation, malformed), [`DeviceError::OutOfMemory`] of the device heap,
    /// [`DeviceError::Lost`].
    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError>;
    /// Creates a queue with its own order.
    ///
    /// # Errors
    /// [`DeviceError::LimitExceeded`] for more than [`Limits::queues`], [`DeviceError::Lost`].
    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError>;
    /// Creates a timeline semaphore at `initial`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError>;
}
