//! The functions of the C interface, by their names in `hsa.h` and `hsa_ext_amd.h`, and two of this library. Only `hsa_init` is
//! missing: the library that is made of this crate has it.
//!
//! Each takes what the headers say. Handles that name nothing give an error, or do nothing where a function has no status.

#![allow(missing_docs, clippy::missing_safety_doc, reason = "the C headers say what the functions do and ask for")]

use crate::faults::LibraryFault;
use crate::memory::Pool;
use crate::queue::{ErrorCallback, Queue};
use crate::runtime::{Agent, CPU_AGENT, Runtime};
use crate::{process, processor};
use hsa_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

type Outcome = Result<(), hsa_status_t>;

/// Runs a function on the runtime, if the program has started it.
fn call(function: impl FnOnce(&Runtime) -> Outcome) -> hsa_status_t {
    let outcome = process::runtime().ok_or(HSA_STATUS_ERROR_NOT_INITIALIZED).and_then(|runtime| function(&runtime));
    outcome.err().unwrap_or(HSA_STATUS_SUCCESS)
}

/// Success if there was such an object.
fn existed(existed: bool, otherwise: hsa_status_t) -> Outcome {
    existed.then_some(()).ok_or(otherwise)
}

/// Writes an answer where the program wants it.
///
/// # Safety
/// `target` is null or has room for a `T`, at any alignment.
unsafe fn answer<T>(target: *mut c_void, value: T) -> Outcome {
    if target.is_null() {
        return Err(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: Not null, and with room for a `T`, as the caller promises.
    unsafe { target.cast::<T>().write_unaligned(value) };
    Ok(())
}

/// A zero-terminated text in an array of `N` bytes; cut if it is longer.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (target, byte) in bytes.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *target = byte;
    }
    bytes
}

/// Calls back for each item until an answer is not success.
///
/// # Safety
/// `callback` may be called with `data`.
unsafe fn iterate<T>(
    items: impl IntoIterator<Item = T>,
    callback: Option<unsafe extern "C" fn(T, *mut c_void) -> hsa_status_t>,
    data: *mut c_void,
) -> Outcome {
    let callback = callback.ok_or(HSA_STATUS_ERROR_INVALID_ARGUMENT)?;
    items.into_iter().try_for_each(|item| {
        // SAFETY: As the caller promises.
        let status = unsafe { callback(item, data) };
        existed(status == HSA_STATUS_SUCCESS, status)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_shut_down() -> hsa_status_t {
    process::shut_down()
}

/// Takes settings in place of the environment, as lines of `NAME=VALUE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_stand_in_configure(settings: *const c_char) {
    if !settings.is_null() {
        // SAFETY: A C string, as the caller promises.
        process::configure(&unsafe { CStr::from_ptr(settings) }.to_string_lossy());
    }
}

/// Writes the report as zero-terminated JSON, cut to the `size` bytes of `buffer`; returns the bytes it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_stand_in_report(buffer: *mut c_char, size: usize) -> usize {
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_status_string(status: hsa_status_t, target: *mut *const c_char) -> hsa_status_t {
    let text = match status {
        HSA_STATUS_SUCCESS => c"The function has been executed successfully.",
        _ if status.name().is_some() => c"A status without a text in this library.",
        _ => return HSA_STATUS_ERROR_INVALID_ARGUMENT,
    };
    // SAFETY: As the caller promises.
    unsafe { answer(target.cast(), text.as_ptr()) }.err().unwrap_or(HSA_STATUS_SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_system_get_info(attribute: hsa_system_info_t, value: *mut c_void) -> hsa_status_t {
    // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
    call(|runtime| unsafe {
        match attribute {
            HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY => answer(value, 1_000_000_000_u64),
            HSA_AMD_SYSTEM_INFO_BUILD_VERSION => answer(value, runtime.build.as_ptr()),
            HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR => answer(value, runtime.settings.extension.0),
            HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR => answer(value, runtime.settings.extension.1),
            _ => Err(HSA_STATUS_ERROR_INVALID_ARGUMENT),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_iterate_agents(
    callback: Option<unsafe extern "C" fn(hsa_agent_t, *mut c_void) -> hsa_status_t>,
    data: *mut c_void,
) -> hsa_status_t {
    let cpu = hsa_agent_t { handle: CPU_AGENT };
    // SAFETY: As the caller promises.
    call(|runtime| unsafe { iterate(std::iter::once(cpu).chain(runtime.agent_handles()), callback, data) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_agent_get_info(
    agent: hsa_agent_t,
    attribute: hsa_agent_info_t,
    value: *mut c_void,
) -> hsa_status_t {
    call(|runtime| {
        let (kind, name, packets) = match runtime.agent(agent) {
            Some(agent) => (HSA_DEVICE_TYPE_AIE, agent.npu.arch().name.as_str(), agent.npu.limits().queue_packets),
            None if agent.handle == CPU_AGENT => (HSA_DEVICE_TYPE_CPU, "CPU", 0),
            None => return Err(HSA_STATUS_ERROR_INVALID_AGENT),
        };
        // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
        unsafe {
            match attribute {
                HSA_AGENT_INFO_DEVICE => answer(value, kind),
                HSA_AGENT_INFO_NAME => answer(value, text::<64>(name)),
                HSA_AGENT_INFO_QUEUE_MAX_SIZE => answer(value, u32::try_from(packets).unwrap_or(u32::MAX)),
                _ => Err(HSA_STATUS_ERROR_INVALID_ARGUMENT),
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_queue_create(
    agent: hsa_agent_t,
    size: u32,
    _queue_type: hsa_queue_type32_t,
    callback: Option<ErrorCallback>,
    data: *mut c_void,
    _private_segment_size: u32,
    _group_segment_size: u32,
    target: *mut *mut hsa_queue_t,
) -> hsa_status_t {
    call(|runtime| {
        existed(!target.is_null(), HSA_STATUS_ERROR_INVALID_ARGUMENT)?;
        let queue = runtime.create_queue(agent, size, callback, data)?;
        // SAFETY: As the caller promises.
        unsafe { answer(target.cast(), queue.handle()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_queue_destroy(queue: *mut hsa_queue_t) -> hsa_status_t {
    call(|runtime| existed(runtime.destroy_queue(queue), HSA_STATUS_ERROR_INVALID_QUEUE))
}

fn find(queue: *const hsa_queue_t) -> Option<Arc<Queue>> {
    process::runtime()?.queue(queue)
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_queue_load_read_index_scacquire(queue: *const hsa_queue_t) -> u64 {
    find(queue).map_or(0, |queue| queue.read.load(Ordering::Acquire))
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_queue_load_write_index_relaxed(queue: *const hsa_queue_t) -> u64 {
    find(queue).map_or(0, |queue| queue.write.load(Ordering::Acquire))
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_queue_store_write_index_screlease(queue: *const hsa_queue_t, value: u64) {
    if let Some(queue) = find(queue) {
        queue.write.store(value, Ordering::Release);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_queue_add_write_index_screlease(queue: *const hsa_queue_t, value: u64) -> u64 {
    find(queue).map_or(0, |queue| queue.write.fetch_add(value, Ordering::AcqRel))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_signal_create(
    value: hsa_signal_value_t,
    _consumers: u32,
    _agents: *const hsa_agent_t,
    target: *mut hsa_signal_t,
) -> hsa_status_t {
    call(|runtime| {
        existed(!target.is_null(), HSA_STATUS_ERROR_INVALID_ARGUMENT)?;
        // SAFETY: As the caller promises.
        unsafe { answer(target.cast(), runtime.create_signal(value)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_signal_destroy(signal: hsa_signal_t) -> hsa_status_t {
    call(|runtime| existed(runtime.destroy_signal(signal), HSA_STATUS_ERROR_INVALID_SIGNAL))
}

/// Orderings make no difference: every access of a signal takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn hsa_signal_load_scacquire(signal: hsa_signal_t) -> hsa_signal_value_t {
    process::runtime().and_then(|runtime| runtime.signal(signal)).map_or(0, |signal| signal.load())
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_signal_store_relaxed(signal: hsa_signal_t, value: hsa_signal_value_t) {
    hsa_signal_store_screlease(signal, value);
}

/// For a doorbell, processes what its queue holds.
#[unsafe(no_mangle)]
pub extern "C" fn hsa_signal_store_screlease(signal: hsa_signal_t, value: hsa_signal_value_t) {
    let Some(runtime) = process::runtime() else { return };
    let Some(signal) = runtime.signal(signal) else { return };
    signal.update(|_| value);
    let queue = signal.doorbell_of.as_ref().and_then(Weak::upgrade);
    if let Some(queue) = queue
        && let Some(agent) = runtime.agents.get(queue.agent)
    {
        processor::ring(&runtime, agent, &queue);
    }
}

/// A tick is a nanosecond, and the largest number of ticks means no limit.
#[unsafe(no_mangle)]
pub extern "C" fn hsa_signal_wait_scacquire(
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

/// Each AIE agent has three; the CPU's agent has none.
const POOLS: [Pool; 3] = [Pool::Kernarg, Pool::Heap, Pool::Data];

/// The pool with a handle: four numbers for each agent, of which 0 is never used.
fn pool_of(runtime: &Runtime, pool: hsa_amd_memory_pool_t) -> Result<(&Agent, Pool), hsa_status_t> {
    let agent = runtime.agent(hsa_agent_t { handle: pool.handle / 4 });
    agent.zip(POOLS.get((pool.handle % 4) as usize).copied()).ok_or(HSA_STATUS_ERROR_INVALID_MEMORY_POOL)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_amd_agent_iterate_memory_pools(
    agent: hsa_agent_t,
    callback: Option<unsafe extern "C" fn(hsa_amd_memory_pool_t, *mut c_void) -> hsa_status_t>,
    data: *mut c_void,
) -> hsa_status_t {
    call(|runtime| {
        let pools = if agent.handle == CPU_AGENT { 0 } else { POOLS.len() as u64 };
        existed(pools == 0 || runtime.agent(agent).is_some(), HSA_STATUS_ERROR_INVALID_AGENT)?;
        let handles = (0..pools).map(|index| hsa_amd_memory_pool_t { handle: agent.handle * 4 + index });
        // SAFETY: As the caller promises.
        unsafe { iterate(handles, callback, data) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_amd_memory_pool_get_info(
    pool: hsa_amd_memory_pool_t,
    attribute: hsa_amd_memory_pool_info_t,
    value: *mut c_void,
) -> hsa_status_t {
    call(|runtime| {
        let (agent, pool) = pool_of(runtime, pool)?;
        let coarse = HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
        let flags = if pool == Pool::Kernarg { coarse | HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT } else { coarse };
        let size = usize::try_from(agent.memory.pool_bytes(pool)).unwrap_or(usize::MAX);
        let granule = if pool == Pool::Heap { 0 } else { agent.memory.limits().granule };
        // SAFETY: In each arm the value has the attribute's type, for which the caller has room.
        unsafe {
            match attribute {
                HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS => answer(value, flags),
                HSA_AMD_MEMORY_POOL_INFO_SIZE => answer(value, size),
                HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE => answer(value, granule),
                _ => Err(HSA_STATUS_ERROR_INVALID_ARGUMENT),
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_amd_memory_pool_allocate(
    pool: hsa_amd_memory_pool_t,
    size: usize,
    flags: u32,
    target: *mut *mut c_void,
) -> hsa_status_t {
    call(|runtime| {
        let is_valid = !target.is_null() && size != 0 && flags == HSA_AMD_MEMORY_POOL_STANDARD_FLAG;
        existed(is_valid, HSA_STATUS_ERROR_INVALID_ARGUMENT)?;
        let (agent, pool) = pool_of(runtime, pool)?;
        let fails = runtime.faults.hits(LibraryFault::Allocate);
        let address = if fails { None } else { agent.memory.allocate(pool, size) };
        let address = address.ok_or_else(|| {
            runtime.log(&format!("no {size} bytes of {pool:?} memory"));
            HSA_STATUS_ERROR_OUT_OF_RESOURCES
        })?;
        // SAFETY: As the caller promises.
        unsafe { answer(target.cast(), std::ptr::with_exposed_provenance_mut::<c_void>(address)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_amd_memory_pool_free(address: *mut c_void) -> hsa_status_t {
    let free = |agent: &Agent| agent.memory.free(address.addr());
    call(|runtime| existed(runtime.agents.iter().any(free), HSA_STATUS_ERROR_INVALID_ALLOCATION))
}
