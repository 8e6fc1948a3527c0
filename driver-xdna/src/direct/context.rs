//! Hardware contexts and the chains under way in them.

use super::command::CommandBuffer;
use super::completion::Submitted;
use super::node::{CallError, Node};
use amdxdna_sys::{
    AMDXDNA_INVALID_FENCE_HANDLE, DRM_AMDXDNA_HWCTX_CONFIG_CU, amdxdna_cu_config, amdxdna_drm_config_hwctx,
    amdxdna_drm_create_hwctx, amdxdna_drm_destroy_hwctx, amdxdna_qos_info, drm_syncobj_destroy,
};
use std::collections::VecDeque;
use std::time::Instant;

/// Operations per cycle that a context asks for: what AMD's ROCR asks for.
const MAX_OPC: u32 = 0x800;

/// A hardware context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) handle: u32,
    /// Its timeline; 0 when it has none.
    pub(super) timeline: u32,
    /// Chains that were submitted and not yet looked at, oldest first.
    pub(super) flights: VecDeque<Flight>,
}

/// A chain under way.
#[derive(Debug)]
pub(super) struct Flight {
    /// Number among the chains of the agent.
    pub(super) number: u64,
    /// Sequence number in the context.
    pub(super) sequence: u64,
    pub(super) since: Instant,
    /// Its commands, then the chain itself.
    pub(super) buffers: Vec<CommandBuffer>,
}

impl Context {
    /// Creates a context of `tiles` core tiles that holds the PDIs in the BOs with these handles.
    ///
    /// # Errors
    /// The kernel's; nothing is left then.
    pub(super) fn create(node: &Node, tiles: u32, pdis: &[u32]) -> Result<Self, CallError> {
        let qos = amdxdna_qos_info::default();
        let mut create = amdxdna_drm_create_hwctx {
            qos_p: (&raw const qos).expose_provenance() as u64,
            max_opc: MAX_OPC,
            num_tiles: tiles,
            ..Default::default()
        };
        node.request(&mut create)?;
        let context = Self { handle: create.handle, timeline: create.syncobj_handle, flights: VecDeque::new() };
        // The head is as long as an entry: the number of PDIs in its first two bytes.
        let head = amdxdna_cu_config { cu_bo: pdis.len() as u32, ..Default::default() };
        let entries = pdis.iter().map(|buffer| amdxdna_cu_config { cu_bo: *buffer, ..Default::default() });
        let config: Vec<amdxdna_cu_config> = std::iter::once(head).chain(entries).collect();
        let mut configure = amdxdna_drm_config_hwctx {
            handle: context.handle,
            param_type: DRM_AMDXDNA_HWCTX_CONFIG_CU,
            param_val: config.as_ptr().expose_provenance() as u64,
            param_val_size: size_of_val(config.as_slice()) as u32,
            pad: 0,
        };
        node.request(&mut configure).inspect_err(|_| {
            if let Err(second) = context.destroy(node) {
                tracing::warn!("a context that could not be configured was not destroyed either: {second}");
            }
        })?;
        Ok(context)
    }

    /// Destroys it. The kernel ends what it still runs.
    ///
    /// # Errors
    /// The kernel's; the device may then still run what was submitted.
    pub(super) fn destroy(&self, node: &Node) -> Result<(), CallError> {
        let destroyed = node.request(&mut amdxdna_drm_destroy_hwctx { handle: self.handle, pad: 0 });
        if self.timeline != AMDXDNA_INVALID_FENCE_HANDLE
            && let Err(cause) = node.request(&mut drm_syncobj_destroy { handle: self.timeline, pad: 0 })
        {
            tracing::debug!("the timeline of a context was not given back: {cause}");
        }
        destroyed
    }

    /// The submission with this sequence number.
    pub(super) fn submitted(&self, sequence: u64) -> Submitted {
        Submitted { context: self.handle, timeline: self.timeline, sequence }
    }
}
