//! Hardware contexts.

use super::bo::Bo;
use super::queue::Line;
use super::syncobj::Syncobj;
use aie_driver_mock::npu::ContextId;
use aie_driver_mock::npu::array::LoadedPdi;
use std::sync::Arc;

/// Where a context of this many columns goes beside others, as the driver of npu1 places it: the first free place, or the first one
/// when there is none. `columns` are those of the array, of which contexts do not get the first.
pub(super) fn place<'a>(columns: usize, wanted: usize, others: impl Iterator<Item = &'a Context> + Clone) -> usize {
    let is_free = |start: &usize| others.clone().all(|c| c.start + c.columns <= *start || start + wanted <= c.start);
    (1..=columns.saturating_sub(wanted)).find(is_free).unwrap_or(usize::from(wanted < columns))
}

/// A context of an open file.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) npu: ContextId,
    pub(super) columns: usize,
    /// The first of them.
    pub(super) start: usize,
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
