//! Hardware contexts.

use super::bo::Bo;
use super::queue::Line;
use super::syncobj::Syncobj;
use aie_driver_mock::npu::ContextId;
use aie_driver_mock::npu::array::LoadedPdi;
use std::sync::Arc;

/// A context of an open file.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) npu: ContextId,
    pub(super) columns: usize,
    pub(super) priority: u32,
    /// Compute units, by index.
    pub(super) units: Option<Vec<Arc<LoadedPdi>>>,
    /// Chain buffers of the kernel: they only take their place in the heap.
    pub(super) _chain_buffers: Vec<Arc<Bo>>,
    /// The list of compute units, when it was given and not yet looked at.
    pub(super) configuration: Option<Vec<u8>>,
    /// Its jobs.
    pub(super) line: Arc<Line>,
    /// Where they complete, when the kernel has that.
    pub(super) timeline: Option<Arc<Syncobj>>,
}
