//! The system and its agents.

use super::{answer, text};
use crate::process;
use crate::runtime::CPU_AGENT;
use aie_hal::host_function::KernelExecutor;
use hsa_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// `hsa_init`, with what runs kernels.
pub fn init(executor: impl FnOnce() -> Arc<dyn KernelExecutor>) -> hsa_status_t {
    process::init(executor)
}

/// `hsa_shut_down`.
pub fn shut_down() -> hsa_status_t {
    process::shut_down()
}

/// `hsa_stand_in_configure`: settings in place of the environment, as lines of `NAME=VALUE`.
///
/// # Safety
/// `settings` is null or a C string.
pub unsafe fn configure(settings: *const c_char) {
    if !settings.is_null() {
        // SAFETY: A C string, as the caller promises.
        process::configure(&unsafe { CStr::from_ptr(settings) }.to_string_lossy());
    }
}

/// `hsa_stand_in_report`: writes the report as zero-terminated JSON, cut to `size` bytes; returns the bytes it needs.
///
/// # Safety
/// `buffer` has room for `size` bytes, or `size` is 0.
pub unsafe fn report(buffer: *mut c_char, size: usize) -> usize {
    let report = process::report();
    if let Some(length) = size.checked_sub(1) {
        let length = length.min(report.len());
        // SAFETY: `length` is less than `size`, for which the caller has room; the report is another object.
        unsafe {
            std::ptr::copy_nonoverlapping(report.as_ptr().cast(), buffer, length);
            buffer.add(length).write(0);
        }
    }
    report.len() + 1
}

/// `hsa_status_string`.
///
/// # Safety
/// `target` is null or has room for a pointer.
pub unsafe fn status_string(status: hsa_status_t, target: *mut *const c_char) -> hsa_status_t {
    let text = match status {
        HSA_STATUS_SUCCESS => c"The function has been executed successfully.",
        _ if status.name().is_some() => c"A status without a text in this library.",
        _ => return HSA_STATUS_ERROR_INVALID_ARGUMENT,
    };
    // SAFETY: As the caller promises.
    unsafe { answer(target.cast(), text.as_ptr()) }
}

/// `hsa_system_get_info`.
///
/// # Safety
/// `value` is null or has room for the attribute's type.
pub unsafe fn system_get_info(attribute: hsa_system_info_t, value: *mut c_void) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
    unsafe {
        match attribute {
            HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY => answer(value, 1_000_000_000_u64),
            HSA_AMD_SYSTEM_INFO_BUILD_VERSION => answer(value, runtime.build.as_ptr()),
            HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR => answer(value, runtime.settings.extension.0),
            HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR => answer(value, runtime.settings.extension.1),
            _ => HSA_STATUS_ERROR_INVALID_ARGUMENT,
        }
    }
}

/// Called for each agent.
pub type AgentCallback = Option<unsafe extern "C" fn(hsa_agent_t, *mut c_void) -> hsa_status_t>;

/// `hsa_iterate_agents`.
///
/// # Safety
/// `callback` may be called with `data`.
pub unsafe fn iterate_agents(callback: AgentCallback, data: *mut c_void) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    let Some(callback) = callback else { return HSA_STATUS_ERROR_INVALID_ARGUMENT };
    for agent in std::iter::once(hsa_agent_t { handle: CPU_AGENT }).chain(runtime.agent_handles()) {
        // SAFETY: As the caller promises.
        let status = unsafe { callback(agent, data) };
        if status != HSA_STATUS_SUCCESS {
            return status;
        }
    }
    HSA_STATUS_SUCCESS
}

/// `hsa_agent_get_info`.
///
/// # Safety
/// `value` is null or has room for the attribute's type.
pub unsafe fn agent_get_info(agent: hsa_agent_t, attribute: hsa_agent_info_t, value: *mut c_void) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    let (kind, name, packets) = match runtime.agent(agent) {
        Some(agent) => (HSA_DEVICE_TYPE_AIE, agent.npu.arch().name.as_str(), agent.npu.limits().queue_packets),
        None if agent.handle == CPU_AGENT => (HSA_DEVICE_TYPE_CPU, "CPU", 0),
        None => return HSA_STATUS_ERROR_INVALID_AGENT,
    };
    // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
    unsafe {
        match attribute {
            HSA_AGENT_INFO_DEVICE => answer(value, kind),
            HSA_AGENT_INFO_NAME => answer(value, text::<64>(name)),
            HSA_AGENT_INFO_QUEUE_MAX_SIZE => answer(value, u32::try_from(packets).unwrap_or(u32::MAX)),
            _ => HSA_STATUS_ERROR_INVALID_ARGUMENT,
        }
    }
}
