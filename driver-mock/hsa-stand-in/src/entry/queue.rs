//! Queues.

use crate::process;
use crate::queue::{ErrorCallback, Queue};
use hsa_sys::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn find(queue: *const hsa_queue_t) -> Option<Arc<Queue>> {
    process::runtime()?.queue(queue)
}

/// `hsa_queue_create`.
///
/// # Safety
/// `callback` may be called with `data` while the queue exists; `target` is null or has room for a pointer.
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn queue_create(
    agent: hsa_agent_t,
    size: u32,
    _queue_type: hsa_queue_type32_t,
    callback: Option<ErrorCallback>,
    data: *mut c_void,
    _private_segment_size: u32,
    _group_segment_size: u32,
    target: *mut *mut hsa_queue_t,
) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    if target.is_null() {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    match runtime.create_queue(agent, size, callback, data) {
        // SAFETY: As the caller promises.
        Ok(queue) => unsafe { super::answer(target.cast(), queue.handle()) },
        Err(status) => status,
    }
}

/// `hsa_queue_destroy`.
pub fn queue_destroy(queue: *mut hsa_queue_t) -> hsa_status_t {
    match process::runtime() {
        None => HSA_STATUS_ERROR_NOT_INITIALIZED,
        Some(runtime) if runtime.destroy_queue(queue) => HSA_STATUS_SUCCESS,
        Some(_) => HSA_STATUS_ERROR_INVALID_QUEUE,
    }
}

/// `hsa_queue_load_read_index_*`.
pub fn queue_load_read_index(queue: *const hsa_queue_t) -> u64 {
    find(queue).map_or(0, |queue| queue.read_index().load(Ordering::Acquire))
}

/// `hsa_queue_load_write_index_*`.
pub fn queue_load_write_index(queue: *const hsa_queue_t) -> u64 {
    find(queue).map_or(0, |queue| queue.write_index().load(Ordering::Acquire))
}

/// `hsa_queue_store_write_index_*`.
pub fn queue_store_write_index(queue: *const hsa_queue_t, value: u64) {
    if let Some(queue) = find(queue) {
        queue.write_index().store(value, Ordering::Release);
    }
}

/// `hsa_queue_add_write_index_*`.
pub fn queue_add_write_index(queue: *const hsa_queue_t, value: u64) -> u64 {
    find(queue).map_or(0, |queue| queue.write_index().fetch_add(value, Ordering::AcqRel))
}
