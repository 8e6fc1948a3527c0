//! Kernels loaded on a device, by the normalised node they compute. Names are not enough: the slope of LEAKY_RELU is in none.
//!
//! A kernel comes from the store, which finds or compiles it, and is loaded once. Loaded kernels occupy the device heap, so
//! those that no plan uses any more make room when it is full. A kernel that could not be had is remembered with the reason.

use crate::log;
use aie_hal::{Device, DeviceError, Executable};
use aie_jit_iron::{KernelStore, StoreError};
use aie_ops::{Node, Operation};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// There is no kernel, and its work goes to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Why.
    pub reason: String,
    /// The same without what names the kernel, so that it is the same for all kernels that are missing for one cause.
    pub cause: String,
    /// Whether there may be one when [`Kernels::arrivals`] has risen.
    pub pending: bool,
}

impl From<String> for Missing {
    fn from(reason: String) -> Self {
        Self { cause: reason.clone(), reason, pending: false }
    }
}

impl From<&StoreError> for Missing {
    fn from(error: &StoreError) -> Self {
        let cause = match error {
            StoreError::NotFound { tried, .. } => tried.clone(),
            StoreError::Pending { .. } => "the kernel is being compiled".into(),
            other => other.to_string(),
        };
        Self { reason: error.to_string(), cause, pending: matches!(error, StoreError::Pending { .. }) }
    }
}

type Entry = Result<Arc<dyn Executable>, Missing>;

/// Loaded kernels of one device. Thread-safe.
pub struct Kernels {
    store: Arc<KernelStore>,
    device: Arc<dyn Device>,
    loaded: Mutex<HashMap<Node, Entry>>,
}

impl Kernels {
    /// No kernels yet.
    pub fn new(store: Arc<KernelStore>, device: Arc<dyn Device>) -> Self {
        Self { store, device, loaded: Mutex::default() }
    }

    /// Where they come from.
    pub fn store(&self) -> &Arc<KernelStore> {
        &self.store
    }

    /// Unloads those that no plan uses.
    pub fn clear(&self) {
        self.loaded.lock().clear();
    }

    /// Rises when a kernel that was pending has been compiled, or could not be.
    pub fn arrivals(&self) -> u64 {
        self.store.arrivals()
    }

    /// Whether there is or will be a kernel of the normalised `node`, as far as that is known without compiling.
    pub fn expected(&self, op: &dyn Operation, node: &Node) -> bool {
        self.store.expects(op, node, self.device.arch())
    }

    /// The kernel of the normalised `node`.
    ///
    /// # Errors
    /// [`Missing`] with the reason.
    pub fn get(&self, op: &dyn Operation, node: &Node) -> Entry {
        if let Some(entry) = self.loaded.lock().get(node) {
            return entry.clone();
        }
        // Not under the lock: others need not wait for a compiler.
        let artifact = match self.store.get(op, node, self.device.arch()) {
            Ok(artifact) => artifact,
            Err(cause @ StoreError::Pending { .. }) => return Err(Missing::from(&cause)),
            Err(cause) => {
                let entry = Err(Missing::from(&cause));
                let known = self.loaded.lock().insert(node.clone(), entry.clone()).is_some();
                if let (StoreError::Directory(cause), false) = (&cause, known) {
                    log::error(&format!("{cause}; its work goes to the host"));
                }
                return entry;
            }
        };
        let mut loaded = self.loaded.lock();
        if let Some(entry) = loaded.get(node) {
            return entry.clone();
        }
        let mut result = self.device.load_executable(&artifact);
        if matches!(result, Err(DeviceError::OutOfMemory { .. })) {
            loaded.retain(|_, entry| entry.as_ref().is_ok_and(|executable| Arc::strong_count(executable) > 1));
            result = self.device.load_executable(&artifact);
        }
        let executable = result.map_err(|cause| Missing::from(cause.to_string()))?;
        loaded.insert(node.clone(), Ok(Arc::clone(&executable)));
        Ok(executable)
    }
}
