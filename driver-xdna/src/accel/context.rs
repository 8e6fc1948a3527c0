//! Hardware contexts: creating and destroying them.

use super::call_error::CallError;
use super::node::Node;
use amdxdna_sys::{
    AMDXDNA_INVALID_FENCE_HANDLE, DRM_AMDXDNA_HWCTX_CONFIG_CU, Request, amdxdna_cu_config, amdxdna_drm_config_hwctx,
    amdxdna_drm_create_hwctx, amdxdna_drm_destroy_hwctx, amdxdna_qos_info, drm_syncobj_destroy,
};

/// Operations per cycle that a context requests: what AMD's ROCR requests.
const MAX_OPC: u32 = 0x800;

/// A hardware context of the kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareContext {
    /// Its handle.
    pub handle: u32,
    /// Handle of the timeline on which its submissions complete; 0 when it has none.
    pub timeline: u32,
}

impl HardwareContext {
    /// Creates a context of `tiles` core tiles that holds the PDIs in the BOs with these handles.
    ///
    /// # Errors
    /// The kernel's; nothing is left then.
    pub(crate) fn create(node: &Node, tiles: u32, pdis: &[u32]) -> Result<Self, CallError> {
        let qos = amdxdna_qos_info::default();
        let mut create = amdxdna_drm_create_hwctx {
            qos_p: (&raw const qos).expose_provenance() as u64,
            max_opc: MAX_OPC,
            num_tiles: tiles,
            ..Default::default()
        };
        node.request(&mut create)?;
        let context = Self { handle: create.handle, timeline: create.syncobj_handle };
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
        node.note_beside(|fields| fields.push_data(bytemuck::cast_slice(&config)));
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
    pub fn destroy(self, node: &Node) -> Result<(), CallError> {
        let destroyed = node.request(&mut amdxdna_drm_destroy_hwctx { handle: self.handle, pad: 0 });
        if self.timeline != AMDXDNA_INVALID_FENCE_HANDLE
            && let Err(cause) = node.request(&mut drm_syncobj_destroy { handle: self.timeline, pad: 0 })
        {
            tracing::debug!("the timeline of a context was not released: {cause}");
        }
        destroyed
    }
}

/// Whether `cause` is one of the errors with which kernels say that there is no further context.
pub(crate) fn is_exhausted(cause: &CallError) -> bool {
    cause.call == amdxdna_drm_create_hwctx::NAME
        && matches!(
            cause.errno(),
            // AMD's module: the run queue is full.
            libc::ENOENT
            // Mainline: the firmware has none.
            | libc::EINVAL
            // npu1: no free columns.
            | libc::ENODEV
            | libc::EBUSY | libc::ENOSPC | libc::EAGAIN | libc::EMFILE
        )
}
