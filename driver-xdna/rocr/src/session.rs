//! A started HSA runtime: `hsa_init` to `hsa_shut_down`, its AIE agents and their pools.

use crate::interface::{self, PacketInterface, RuntimeVersion};
use aie_driver_xdna::agent::{AgentError, AgentInfo};
use aie_hal::OwningProcess;
use hsa_sys::*;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A started runtime. Shut down when dropped by the process that started it.
#[derive(Debug)]
pub struct Session {
    api: HsaApi,
    library: PathBuf,
    version: RuntimeVersion,
    interface: PacketInterface,
    owner: OwningProcess,
}

/// An AIE agent with its pools.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The agent.
    pub agent: hsa_agent_t,
    /// Who it is.
    pub info: AgentInfo,
    /// For kernel arguments.
    pub kernarg: hsa_amd_memory_pool_t,
    /// For PDIs and instructions.
    pub heap: hsa_amd_memory_pool_t,
    /// For tensors.
    pub data: hsa_amd_memory_pool_t,
    /// Packets of a queue.
    pub queue_packets: u32,
}

impl Session {
    /// Starts the runtime of `api`, the library at `library`. If no one in the process has started it, it opens its devices
    /// now; only after that it can be asked for its version.
    ///
    /// The caller has checked that the machine has what the runtime asserts: see the discovery.
    ///
    /// # Errors
    /// [`AgentError::Lost`] with the runtime's message, [`AgentError::Unsupported`] as [`interface::detect`].
    pub fn start(api: HsaApi, library: &Path) -> Result<Self, AgentError> {
        // SAFETY: may be called at any time; counts its users.
        let status = unsafe { (api.hsa_init)() };
        if status != HSA_STATUS_SUCCESS {
            return Err(AgentError::Lost(format!(
                "{} found no device to work with (hsa_init: {})",
                library.display(),
                api.describe(status)
            )));
        }
        let known = RuntimeVersion::of(&api).and_then(|version| Ok((interface::detect(&version)?, version)));
        let (interface, version) = known.map_err(|cause| {
            shut_down(&api);
            match cause {
                AgentError::Unsupported(reason) => AgentError::Unsupported(format!("{}: {reason}", library.display())),
                other => other,
            }
        })?;
        Ok(Self { api, library: library.to_owned(), version, interface, owner: OwningProcess::current() })
    }

    /// The runtime's functions.
    pub fn api(&self) -> &HsaApi {
        &self.api
    }

    /// The library's file.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// What the runtime says of itself.
    pub fn version(&self) -> &RuntimeVersion {
        &self.version
    }

    /// The packets it takes.
    pub fn interface(&self) -> PacketInterface {
        self.interface
    }

    /// The AIE agents, in the runtime's order.
    ///
    /// # Errors
    /// [`AgentError::Lost`] when the runtime does not answer, [`AgentError::Unsupported`] for an agent without the known
    /// pools.
    pub fn agents(&self) -> Result<Vec<Discovered>, AgentError> {
        let mut agents: Vec<hsa_agent_t> = Vec::new();
        // SAFETY: `collect` takes the vector it is passed with.
        let status = unsafe { (self.api.hsa_iterate_agents)(Some(collect::<hsa_agent_t>), (&raw mut agents).cast()) };
        self.check("hsa_iterate_agents", status)?;
        let mut found = Vec::new();
        for agent in agents {
            let mut kind = HSA_DEVICE_TYPE_CPU;
            self.agent_info(agent, HSA_AGENT_INFO_DEVICE, &mut kind)?;
            if kind == HSA_DEVICE_TYPE_AIE {
                found.push(self.discover(agent)?);
            }
        }
        Ok(found)
    }

    /// Turns a status into an error that names the call.
    ///
    /// # Errors
    /// [`AgentError::OutOfMemory`] or [`AgentError::Failed`].
    pub fn check(&self, call: &str, status: hsa_status_t) -> Result<(), AgentError> {
        let text = || format!("{call}: {}", self.api.describe(status));
        match status {
            HSA_STATUS_SUCCESS | HSA_STATUS_INFO_BREAK => Ok(()),
            HSA_STATUS_ERROR_OUT_OF_RESOURCES => Err(AgentError::OutOfMemory(text())),
            _ => Err(AgentError::failed(text())),
        }
    }

    /// Allocates `bytes` bytes of a pool.
    ///
    /// # Errors
    /// As [`Session::check`]; [`AgentError::Unsupported`] for an allocation without an address.
    pub fn allocate(&self, pool: hsa_amd_memory_pool_t, bytes: usize) -> Result<NonNull<c_void>, AgentError> {
        let mut address: *mut c_void = std::ptr::null_mut();
        let flags = HSA_AMD_MEMORY_POOL_STANDARD_FLAG;
        // SAFETY: a pool that does not exist is an error of the call, and `address` a place for one pointer.
        let status = unsafe { (self.api.hsa_amd_memory_pool_allocate)(pool, bytes, flags, &raw mut address) };
        self.check(&format!("hsa_amd_memory_pool_allocate of {bytes} bytes"), status)?;
        NonNull::new(address).ok_or_else(|| AgentError::Unsupported("an allocation without an address".into()))
    }

    /// Frees an allocation.
    ///
    /// # Errors
    /// As [`Session::check`].
    ///
    /// # Safety
    /// The allocation is of this runtime and no longer used.
    pub unsafe fn free(&self, address: *mut c_void) -> Result<(), AgentError> {
        // SAFETY: as the caller promises.
        let status = unsafe { (self.api.hsa_amd_memory_pool_free)(address) };
        self.check("hsa_amd_memory_pool_free", status)
    }

    fn discover(&self, agent: hsa_agent_t) -> Result<Discovered, AgentError> {
        let mut name = [0_u8; 64];
        self.agent_info(agent, HSA_AGENT_INFO_NAME, &mut name)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        let mut queue_packets = 0_u32;
        self.agent_info(agent, HSA_AGENT_INFO_QUEUE_MAX_SIZE, &mut queue_packets)?;
        let mut pools: Vec<hsa_amd_memory_pool_t> = Vec::new();
        let callback = Some(collect::<hsa_amd_memory_pool_t> as unsafe extern "C" fn(_, _) -> _);
        // SAFETY: `collect` takes the vector it is passed with.
        let status = unsafe { (self.api.hsa_amd_agent_iterate_memory_pools)(agent, callback, (&raw mut pools).cast()) };
        self.check("hsa_amd_agent_iterate_memory_pools", status)?;
        let (mut kernarg, mut heap, mut data) = (None, None, None);
        for pool in pools {
            let (mut flags, mut granule, mut size) = (0_u32, 0_usize, 0_usize);
            self.pool_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &mut flags)?;
            self.pool_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE, &mut granule)?;
            self.pool_info(pool, HSA_AMD_MEMORY_POOL_INFO_SIZE, &mut size)?;
            // The device heap is recognised by its granule of 0 (mlir-aie's HSA runtime does the same).
            let kind = match (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT != 0, granule) {
                (true, _) => &mut kernarg,
                (false, 0) => &mut heap,
                (false, _) => &mut data,
            };
            kind.get_or_insert((pool, size, granule));
        }
        let missing = |what: &str| {
            AgentError::Unsupported(format!(
                "{}: agent `{name}` has no {what} pool; this driver knows the three pools of ROCR 7",
                self.library.display()
            ))
        };
        let (kernarg, ..) = kernarg.ok_or_else(|| missing("kernel argument"))?;
        let (heap, heap_bytes, _) = heap.ok_or_else(|| missing("device heap"))?;
        let (data, data_bytes, data_granule) = data.ok_or_else(|| missing("data"))?;
        let info = AgentInfo {
            name,
            library: self.library.clone(),
            runtime: self.version.to_string(),
            // Later runtimes look instructions up by the address of their buffer.
            streams_apart: self.interface == PacketInterface::KernelDispatch,
            data_bytes: data_bytes as u64,
            data_granule,
            heap_bytes,
        };
        Ok(Discovered { agent, info, kernarg, heap, data, queue_packets })
    }

    /// Reads an attribute of an agent into `value`, whose type is the attribute's.
    fn agent_info<T>(&self, agent: hsa_agent_t, attribute: hsa_agent_info_t, value: &mut T) -> Result<(), AgentError> {
        // SAFETY: every caller passes the attribute's type.
        let status = unsafe { (self.api.hsa_agent_get_info)(agent, attribute, (value as *mut T).cast()) };
        self.check("hsa_agent_get_info", status)
    }

    fn pool_info<T>(
        &self,
        pool: hsa_amd_memory_pool_t,
        attribute: hsa_amd_memory_pool_info_t,
        value: &mut T,
    ) -> Result<(), AgentError> {
        // SAFETY: every caller passes the attribute's type.
        let status = unsafe { (self.api.hsa_amd_memory_pool_get_info)(pool, attribute, (value as *mut T).cast()) };
        self.check("hsa_amd_memory_pool_get_info", status)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.owner.is_current() {
            shut_down(&self.api);
        }
    }
}

/// Ends a session that [`Session::start`] has started.
fn shut_down(api: &HsaApi) {
    // SAFETY: the counterpart of `hsa_init`.
    let status = unsafe { (api.hsa_shut_down)() };
    if status != HSA_STATUS_SUCCESS {
        tracing::warn!("hsa_shut_down: {}", api.describe(status));
    }
}

/// Collects what an iteration shows.
unsafe extern "C" fn collect<T: Copy>(item: T, data: *mut c_void) -> hsa_status_t {
    // SAFETY: the data is the vector that the iteration was started with, and no one else uses it meanwhile.
    unsafe { &mut *data.cast::<Vec<T>>() }.push(item);
    HSA_STATUS_SUCCESS
}
