//! Memory pools. Each AIE agent has three; the CPU's agent has none.

use super::answer;
use crate::faults::LibraryFault;
use crate::memory::Pool;
use crate::process;
use crate::report::Counts;
use crate::runtime::{Agent, CPU_AGENT, Runtime};
use hsa_sys::*;
use std::ffi::c_void;

const POOLS: [Pool; 3] = [Pool::Kernarg, Pool::Heap, Pool::Data];

fn pool_handle(agent: hsa_agent_t, index: usize) -> hsa_amd_memory_pool_t {
    // Four numbers for each agent; 0 is never used.
    hsa_amd_memory_pool_t { handle: agent.handle * 4 + index as u64 }
}

fn pool_of(runtime: &Runtime, pool: hsa_amd_memory_pool_t) -> Option<(&Agent, Pool)> {
    let agent = runtime.agent(hsa_agent_t { handle: pool.handle / 4 })?;
    POOLS.get((pool.handle % 4) as usize).map(|pool| (agent, *pool))
}

/// Called for each pool.
pub type PoolCallback = Option<unsafe extern "C" fn(hsa_amd_memory_pool_t, *mut c_void) -> hsa_status_t>;

/// `hsa_amd_agent_iterate_memory_pools`.
///
/// # Safety
/// `callback` may be called with `data`.
pub unsafe fn agent_iterate_memory_pools(
    agent: hsa_agent_t,
    callback: PoolCallback,
    data: *mut c_void,
) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    let Some(callback) = callback else { return HSA_STATUS_ERROR_INVALID_ARGUMENT };
    if agent.handle == CPU_AGENT {
        return HSA_STATUS_SUCCESS;
    }
    if runtime.agent(agent).is_none() {
        return HSA_STATUS_ERROR_INVALID_AGENT;
    }
    for index in 0..POOLS.len() {
        // SAFETY: As the caller promises.
        let status = unsafe { callback(pool_handle(agent, index), data) };
        if status != HSA_STATUS_SUCCESS {
            return status;
        }
    }
    HSA_STATUS_SUCCESS
}

/// `hsa_amd_memory_pool_get_info`.
///
/// # Safety
/// `value` is null or has room for the attribute's type.
pub unsafe fn memory_pool_get_info(
    pool: hsa_amd_memory_pool_t,
    attribute: hsa_amd_memory_pool_info_t,
    value: *mut c_void,
) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    let Some((agent, pool)) = pool_of(&runtime, pool) else { return HSA_STATUS_ERROR_INVALID_MEMORY_POOL };
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
            _ => HSA_STATUS_ERROR_INVALID_ARGUMENT,
        }
    }
}

/// `hsa_amd_memory_pool_allocate`.
///
/// # Safety
/// `target` is null or has room for a pointer.
pub unsafe fn memory_pool_allocate(
    pool: hsa_amd_memory_pool_t,
    size: usize,
    flags: u32,
    target: *mut *mut c_void,
) -> hsa_status_t {
    let Some(runtime) = process::runtime() else { return HSA_STATUS_ERROR_NOT_INITIALIZED };
    if target.is_null() || size == 0 || flags != HSA_AMD_MEMORY_POOL_STANDARD_FLAG {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    let Some((agent, pool)) = pool_of(&runtime, pool) else { return HSA_STATUS_ERROR_INVALID_MEMORY_POOL };
    let address = if runtime.faults.hits(LibraryFault::Allocate) { None } else { agent.memory.allocate(pool, size) };
    let Some(address) = address else {
        runtime.log(&format!("no {size} bytes of {pool:?} memory"));
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    };
    Counts::add(&runtime.counts.allocations);
    // SAFETY: As the caller promises.
    unsafe { answer(target.cast(), std::ptr::with_exposed_provenance_mut::<c_void>(address)) }
}

/// `hsa_amd_memory_pool_free`.
pub fn memory_pool_free(address: *mut c_void) -> hsa_status_t {
    match process::runtime() {
        None => HSA_STATUS_ERROR_NOT_INITIALIZED,
        Some(runtime) if runtime.agents.iter().any(|agent| agent.memory.free(address.addr())) => HSA_STATUS_SUCCESS,
        Some(_) => HSA_STATUS_ERROR_INVALID_ALLOCATION,
    }
}
