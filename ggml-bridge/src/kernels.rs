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

type Entry = Result<Arc<dyn Executable>, String>;

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

    /// Unloads those that no plan uses.
    pub fn clear(&self) {
        self.loaded.lock().clear();
    }

    /// The kernel of the normalised `node`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, op: &dyn Operation, node: &Node) -> Entry {
        let mut loaded = self.loaded.lock();
        if let Some(entry) = loaded.get(node) {
            return entry.clone();
        }
        let artifact = match self.store.get(op, node, self.device.arch()) {
            Ok(artifact) => artifact,
            Err(cause) => {
                if let StoreError::Directory(cause) = &cause {
                    log::error(&format!("{cause}; its work goes to the host"));
                }
                let entry = Err(cause.to_string());
                loaded.insert(node.clone(), entry.clone());
                return entry;
            }
        };
        let mut result = self.device.load_executable(&artifact);
        if matches!(result, Err(DeviceError::OutOfMemory { .. })) {
            loaded.retain(|_, entry| entry.as_ref().is_ok_and(|executable| Arc::strong_count(executable) > 1));
            result = self.device.load_executable(&artifact);
        }
        let executable = result.map_err(|cause| cause.to_string())?;
        loaded.insert(node.clone(), Ok(Arc::clone(&executable)));
        Ok(executable)
    }
}
