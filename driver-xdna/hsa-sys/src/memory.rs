//! Memory pools, access rights and virtual memory.

use crate::hsa_agent_t;

c_handles! {
    /// A memory pool of an agent. Valid as long as the agent.
    hsa_amd_memory_pool_t,
    /// A memory region: the HSA core's older word for a pool.
    hsa_region_t,
    /// Memory that `hsa_amd_vmem_handle_create` has allocated and that has no address yet.
    hsa_amd_vmem_alloc_handle_t,
}

c_enums! {
    /// Attributes of a memory pool. The type of the answer is given with each.
    hsa_amd_memory_pool_info_t {
        /// The segment: [`hsa_amd_segment_t`].
        HSA_AMD_MEMORY_POOL_INFO_SEGMENT = 0,
        /// A mask of [`HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT`] and the like: `u32`.
        HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS = 1,
        /// Bytes in the pool: `usize`.
        HSA_AMD_MEMORY_POOL_INFO_SIZE = 2,
        /// Whether programs may allocate from it: `bool`.
        HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED = 5,
        /// Allocations are rounded up to a multiple of this: `usize`, bytes.
        HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE = 6,
        /// Allocations are aligned to this: `usize`, bytes.
        HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT = 7,
        /// Whether every agent may be given access: `bool`.
        HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL = 15,
        /// The largest allocation: `usize`, bytes.
        HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE = 16,
        /// Where the memory is: [`hsa_amd_memory_pool_location_t`].
        HSA_AMD_MEMORY_POOL_INFO_LOCATION = 17,
        /// Recommended multiple of an allocation: `usize`, bytes. The pool of an AIE agent that answers 0 is its device
        /// heap, for PDIs and instructions; the one that answers 4096 is for data (measured on ROCR 7.2.4).
        HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE = 18,
    }

    /// Segments of memory.
    hsa_amd_segment_t {
        /// Shared by all agents.
        HSA_AMD_SEGMENT_GLOBAL = 0,
        /// Constant while a kernel runs.
        HSA_AMD_SEGMENT_READONLY = 1,
        /// Private to a work-item.
        HSA_AMD_SEGMENT_PRIVATE = 2,
        /// Shared by a workgroup.
        HSA_AMD_SEGMENT_GROUP = 3,
    }

    /// Where the memory of a pool is.
    hsa_amd_memory_pool_location_t {
        /// At the CPU.
        HSA_AMD_MEMORY_POOL_LOCATION_CPU = 0,
        /// At a GPU.
        HSA_AMD_MEMORY_POOL_LOCATION_GPU = 1,
    }

    /// Access an agent has to memory.
    hsa_access_permission_t {
        /// None.
        HSA_ACCESS_PERMISSION_NONE = 0,
        /// Reading.
        HSA_ACCESS_PERMISSION_RO = 1,
        /// Writing.
        HSA_ACCESS_PERMISSION_WO = 2,
        /// Both.
        HSA_ACCESS_PERMISSION_RW = 3,
    }

    /// How memory behind a [`hsa_amd_vmem_alloc_handle_t`] is kept.
    hsa_amd_memory_type_t {
        /// It may move.
        MEMORY_TYPE_NONE = 0,
        /// It stays where it is.
        MEMORY_TYPE_PINNED = 1,
    }
}

c_constants! {
    /// Kernel arguments may be put into this pool, and the agent sees the CPU's writes at once.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT: u32 = 1,
    /// Writes become visible to all agents without more ado.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED: u32 = 2,
    /// Writes become visible to other agents at the ends of dispatches.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED: u32 = 4,
    /// Fine-grained for all agents of the system.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED: u32 = 8,
    /// No wishes for an allocation.
    HSA_AMD_MEMORY_POOL_STANDARD_FLAG: u32 = 0,
    /// The address range is registered nowhere: for memory that is only mapped with the `hsa_amd_vmem` functions.
    HSA_AMD_VMEM_ADDRESS_NO_REGISTER: u32 = 1,
    /// The dma-buf does not say how it is mapped.
    HSA_AMD_DMABUF_MAPPING_TYPE_NONE: u32 = 0,
    /// The dma-buf is mapped over PCIe.
    HSA_AMD_DMABUF_MAPPING_TYPE_PCIE: u32 = 1,
}

c_structs! {
    /// The access one agent is to have to a mapped range.
    hsa_amd_memory_access_desc_t {
        /// The access.
        permissions: hsa_access_permission_t,
        /// The agent.
        agent_handle: hsa_agent_t,
    }
}
