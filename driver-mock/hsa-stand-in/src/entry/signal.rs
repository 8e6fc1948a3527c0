//! Signals. Orderings are not told apart: every access takes a lock.

use crate::{process, processor};
use hsa_sys::*;
use std::ffi::c_void;
use std::sync::Weak;
use std::time::Duration;

/// `hsa_signal_create`.
///
/// # Safety
/// `target` is null or has room for a signal.
pub unsafe fn signal_create(
    value: hsa_signal_value_t,
    _consumers: u32,
    _agents: *const hsa_agent_t,
    target: *mut hsa_signal_t,
) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    if target.is_null() {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: As the caller promises.
    unsafe { super::answer(target.cast::<c_void>(), runtime.create_signal(value)) }
}

/// `hsa_signal_destroy`.
pub fn signal_destroy(signal: hsa_signal_t) -> hsa_status_t {
    match process::runtime() {
        None => HSA_STATUS_ERROR_NOT_INITIALIZED,
        Some(runtime) if runtime.destroy_signal(signal) => HSA_STATUS_SUCCESS,
        Some(_) => HSA_STATUS_ERROR_INVALID_SIGNAL,
    }
}

/// `hsa_signal_load_*`.
pub fn signal_load(signal: hsa_signal_t) -> hsa_signal_value_t {
    process::runtime().and_then(|runtime| runtime.signal(signal)).map_or(0, |signal| signal.load())
}

/// `hsa_signal_store_*`: for a doorbell, processes what its queue holds.
pub fn signal_store(signal: hsa_signal_t, value: hsa_signal_value_t) {
    let Some(runtime) = process::runtime() else { return };
    let Some(signal) = runtime.signal(signal) else { return };
    signal.update(|_| value);
    let queue = signal.doorbell_of().and_then(Weak::upgrade);
    if let Some(queue) = queue
        && let Some(agent) = runtime.agents.get(queue.agent)
    {
        processor::ring(&runtime, agent, &queue);
    }
}

/// `hsa_signal_wait_*`. A tick is a nanosecond, and the largest number of ticks means no limit.
pub fn signal_wait(
    signal: hsa_signal_t,
    condition: hsa_signal_condition_t,
    compared: hsa_signal_value_t,
    ticks: u64,
    _state: hsa_wait_state_t,
) -> hsa_signal_value_t {
    let timeout = (ticks != u64::MAX).then(|| Duration::from_nanos(ticks));
    let signal = process::runtime().and_then(|runtime| runtime.signal(signal));
    signal.map_or(0, |signal| signal.wait(condition, compared, timeout))
}
