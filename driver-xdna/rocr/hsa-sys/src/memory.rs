//! Memory pools.

c_handles! {
    /// A memory pool of an agent. Valid as long as the agent.
    hsa_amd_memory_pool_t,
}

c_enums! {
    /// Attributes of a memory pool. The type of the answer is given with each.
    hsa_amd_memory_pool_info_t {
        /// A mask of [`HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT`] and the like: `u32`.
        HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS = 1,
        /// Bytes in the pool: `usize`.
        HSA_AMD_MEMORY_POOL_INFO_SIZE = 2,
        /// Recommended multiple of an allocation: `usize`, bytes. The pool of an AIE agent that answers 0 is its device
        /// heap, for PDIs and instructions; the one that answers 4096 is for data (measured on ROCR 7.2.4).
        HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE = 18,
    }
}

c_constants! {
    /// Kernel arguments may be put into this pool, and the agent sees the CPU's writes at once.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT: u32 = 1,
    /// Writes become visible to other agents at the ends of dispatches.
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED: u32 = 4,
    /// No wishes for an allocation.
    HSA_AMD_MEMORY_POOL_STANDARD_FLAG: u32 = 0,
}
