//! The system and its agents.

use super::{answer, text};
use crate::process;
use crate::runtime::{CPU_AGENT, Runtime};
use aie_hal::host_function::KernelExecutor;
use hsa_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// `hsa_init`, with what runs kernels.
pub fn init(executor: impl FnOnce() -> Arc<dyn KernelExecutor>) -> hsa_status_t {
    LazyLock::force(&START);
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
        HSA_STATUS_ERROR => c"A generic error has occurred.",
        HSA_STATUS_ERROR_INVALID_ARGUMENT => c"One of the actual arguments does not meet a precondition.",
        HSA_STATUS_ERROR_OUT_OF_RESOURCES => c"The runtime failed to allocate the necessary resources.",
        HSA_STATUS_ERROR_INVALID_PACKET_FORMAT => c"The AQL packet is malformed.",
        HSA_STATUS_ERROR_NOT_INITIALIZED => c"The runtime has not been initialized.",
        HSA_STATUS_ERROR_INVALID_ALLOCATION => c"The requested allocation is not valid.",
        HSA_STATUS_ERROR_INVALID_AGENT => c"The agent is invalid.",
        HSA_STATUS_ERROR_INVALID_QUEUE => c"The queue is invalid.",
        HSA_STATUS_ERROR_INVALID_SIGNAL => c"The signal is invalid.",
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
            HSA_SYSTEM_INFO_VERSION_MAJOR | HSA_SYSTEM_INFO_VERSION_MINOR => answer(value, 1_u16),
            HSA_SYSTEM_INFO_TIMESTAMP => answer(value, u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY => answer(value, 1_000_000_000_u64),
            HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT => answer(value, u64::MAX),
            HSA_SYSTEM_INFO_ENDIANNESS => answer(value, 0_u32),
            HSA_SYSTEM_INFO_MACHINE_MODEL => answer(value, 1_u32),
            HSA_SYSTEM_INFO_EXTENSIONS => answer(value, [0_u8; 128]),
            HSA_AMD_SYSTEM_INFO_BUILD_VERSION => answer(value, runtime.build.as_ptr()),
            HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED => answer(value, true),
            HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED
            | HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT
            | HSA_AMD_SYSTEM_INFO_MWAITX_ENABLED
            | HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED
            | HSA_AMD_SYSTEM_INFO_XNACK_ENABLED => answer(value, false),
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
    // SAFETY: As the caller promises.
    unsafe {
        if agent.handle == CPU_AGENT { cpu_info(attribute, value) } else { aie_info(&runtime, agent, attribute, value) }
    }
}

/// # Safety
/// `value` is null or has room for the attribute's type.
unsafe fn cpu_info(attribute: hsa_agent_info_t, value: *mut c_void) -> hsa_status_t {
    // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
    unsafe {
        match attribute {
            HSA_AGENT_INFO_NAME | HSA_AMD_AGENT_INFO_PRODUCT_NAME => answer(value, text::<64>("CPU")),
            HSA_AGENT_INFO_VENDOR_NAME => answer(value, text::<64>("CPU")),
            HSA_AGENT_INFO_DEVICE => answer(value, HSA_DEVICE_TYPE_CPU),
            HSA_AGENT_INFO_FEATURE | HSA_AGENT_INFO_QUEUES_MAX => answer(value, 0_u32),
            HSA_AGENT_INFO_NODE | HSA_AMD_AGENT_INFO_DRIVER_NODE_ID => answer(value, 0_u32),
            HSA_AMD_AGENT_INFO_UUID => answer(value, text::<21>("CPU-XX")),
            _ => HSA_STATUS_ERROR_INVALID_ARGUMENT,
        }
    }
}

/// # Safety
/// `value` is null or has room for the attribute's type.
unsafe fn aie_info(
    runtime: &Runtime,
    handle: hsa_agent_t,
    attribute: hsa_agent_info_t,
    value: *mut c_void,
) -> hsa_status_t {
    let Some(agent) = runtime.agent(handle) else { return HSA_STATUS_ERROR_INVALID_AGENT };
    let (arch, limits) = (agent.npu.arch(), agent.npu.limits());
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    // The number of the agent; the CPU is 0.
    let node = number(usize::try_from(handle.handle - CPU_AGENT).unwrap_or(usize::MAX));
    // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
    unsafe {
        match attribute {
            HSA_AGENT_INFO_NAME => answer(value, text::<64>(&arch.name)),
            HSA_AGENT_INFO_VENDOR_NAME => answer(value, text::<64>("AMD")),
            HSA_AMD_AGENT_INFO_PRODUCT_NAME => answer(value, text::<64>(&arch.title)),
            HSA_AGENT_INFO_DEVICE => answer(value, HSA_DEVICE_TYPE_AIE),
            HSA_AGENT_INFO_FEATURE => answer(value, HSA_AGENT_FEATURE_AGENT_DISPATCH),
            HSA_AGENT_INFO_MACHINE_MODEL => answer(value, 1_u32),
            HSA_AGENT_INFO_PROFILE => answer(value, 0_u32),
            HSA_AGENT_INFO_QUEUES_MAX => answer(value, number(limits.queues)),
            HSA_AGENT_INFO_QUEUE_MIN_SIZE | HSA_AGENT_INFO_QUEUE_MAX_SIZE => {
                answer(value, number(limits.queue_packets))
            }
            HSA_AGENT_INFO_QUEUE_TYPE => answer(value, HSA_QUEUE_TYPE_SINGLE),
            HSA_AGENT_INFO_NODE | HSA_AMD_AGENT_INFO_DRIVER_NODE_ID => answer(value, node),
            HSA_AGENT_INFO_EXTENSIONS => answer(value, [0_u8; 128]),
            HSA_AGENT_INFO_VERSION_MAJOR | HSA_AGENT_INFO_VERSION_MINOR => answer(value, 1_u16),
            HSA_AMD_AGENT_INFO_CHIP_ID
            | HSA_AMD_AGENT_INFO_BDFID
            | HSA_AMD_AGENT_INFO_DOMAIN
            | HSA_AMD_AGENT_INFO_ASIC_REVISION => answer(value, 0_u32),
            HSA_AMD_AGENT_INFO_UUID => answer(value, text::<21>("AIE-XX")),
            HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT => answer(value, number(limits.pdis_per_context)),
            HSA_AMD_AGENT_INFO_NEAREST_CPU => answer(value, hsa_agent_t { handle: CPU_AGENT }),
            _ => HSA_STATUS_ERROR_INVALID_ARGUMENT,
        }
    }
}
