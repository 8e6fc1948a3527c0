//! Memory that host and device both see, and the rules for seeing the same bytes.
//!
//! AI Engine memory is coarse-grained. The host's view and the device's view of a buffer agree only after
//! [`Buffer::flush`] (host writes become visible to the device) and [`Buffer::invalidate`] (device writes become visible to the
//! host). On a coherent device both are free; callers call them anyway.
//!
//! Commands inside a command list need none of this between each other: the queue keeps dispatches, transfers and host calls
//! of one submission consistent. The rule is for the edges, before a submission and after it.

use crate::error::DeviceError;
pub use aie_device_memory::{HostMemory, Span};
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// The pools of an NPU (as ROCR lists them for an AIE agent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryPool {
    /// Host-visible system memory for tensors. Granule: 4096 bytes on known devices.
    Data,
    /// The device heap, 64 MiB on known devices: PDIs and instruction streams.
    DeviceHeap,
}

impl MemoryPool {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::DeviceHeap => "device heap",
        }
    }
}

/// What to allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferParams {
    /// Size in bytes, at least 1.
    pub size: usize,
    /// Alignment of the host and device address in bytes: a power of two, at most [`crate::Limits::max_alignment`].
    pub alignment: usize,
    /// Where.
    pub pool: MemoryPool,
}

impl BufferParams {
    /// `size` bytes of tensor memory with the alignment every driver offers (64 bytes).
    pub fn data(size: usize) -> Self {
        Self { size, alignment: 64, pool: MemoryPool::Data }
    }
}

/// How a command touches a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes some or all of it; bytes not written keep their value.
    Write,
}

/// A piece of memory. Thread-safe. Freed when the last reference goes; submissions in flight hold references.
///
/// Offsets and lengths are in bytes. The host-side methods access the host's view: see the module docs for coherence. The
/// caller must not access ranges that a submission in flight writes.
pub trait Buffer: Any + Send + Sync + Debug {
    /// Size in bytes, as requested.
    fn size(&self) -> usize;
    /// The pool it lies in.
    fn pool(&self) -> MemoryPool;
    /// The address kernels see. Aligned as requested.
    fn device_address(&self) -> u64;
    /// The host's view, mapped for the life of the buffer. `AtomicU8::as_ptr` gives C callers their pointer.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] when the range is outside the buffer, [`DeviceError::Unsupported`] when the pool is not
    /// host-visible, or the buffer is of memory that may only be read.
    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError>;
    /// Copies from the host's view at `offset` to `target`. Errors as [`Buffer::map`], but memory that may only be read is read.
    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError>;
    /// Copies `source` to the host's view at `offset`. Errors as [`Buffer::map`].
    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError>;
    /// Makes host writes in `range` visible to the device. Errors as [`Buffer::map`].
    fn flush(&self, range: Range<usize>) -> Result<(), DeviceError>;
    /// Makes device writes in `range` visible to the host. Errors as [`Buffer::map`].
    fn invalidate(&self, range: Range<usize>) -> Result<(), DeviceError>;
    /// As [`Buffer::invalidate`], but only for what dispatches have written since it was invalidated last, where the device keeps
    /// account of that: the few rows of a large cache. Errors as [`Buffer::map`].
    fn invalidate_written(&self, range: Range<usize>) -> Result<(), DeviceError> {
        self.invalidate(range)
    }
}
