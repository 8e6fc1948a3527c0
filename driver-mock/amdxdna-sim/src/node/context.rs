//! Hardware contexts.

use super::bo::Bo;
use aie_driver_mock::npu::ContextId;
use aie_hal::artifact::Digest;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A PDI as it was when it was configured: the firmware loads it then.
#[derive(Debug)]
pub(super) struct Pdi {
    pub(super) digest: Digest,
    pub(super) bytes: Arc<[u8]>,
}

/// A context of an open file.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) npu: ContextId,
    pub(super) columns: usize,
    pub(super) priority: u32,
    /// Compute units, by index.
    pub(super) units: Option<Vec<Arc<Pdi>>>,
    /// Chain buffers of the kernel: they only take their place in the heap.
    pub(super) _chain_buffers: Vec<Arc<Bo>>,
    pub(super) submitted: u64,
    pub(super) completed: Arc<AtomicU64>,
}
