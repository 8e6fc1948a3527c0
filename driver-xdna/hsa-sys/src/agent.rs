//! The system and its agents: what can be asked of them.

c_handles! {
    /// An agent: a CPU, a GPU, or the array of one NPU. Valid from `hsa_init` to the last `hsa_shut_down`; may be used
    /// from any thread.
    hsa_agent_t,
}

c_enums! {
    /// What an agent is; the answer to [`HSA_AGENT_INFO_DEVICE`].
    hsa_device_type_t {
        /// A CPU.
        HSA_DEVICE_TYPE_CPU = 0,
        /// A GPU.
        HSA_DEVICE_TYPE_GPU = 1,
        /// A digital signal processor.
        HSA_DEVICE_TYPE_DSP = 2,
        /// An AI Engine array.
        HSA_DEVICE_TYPE_AIE = 3,
    }

    /// Attributes of the system. The type of the answer is given with each; strings are zero-terminated.
    hsa_system_info_t {
        /// Major version of the HSA specification: `u16`.
        HSA_SYSTEM_INFO_VERSION_MAJOR = 0,
        /// Minor version of the HSA specification: `u16`.
        HSA_SYSTEM_INFO_VERSION_MINOR = 1,
        /// The clock's present value: `u64`, in ticks.
        HSA_SYSTEM_INFO_TIMESTAMP = 2,
        /// Ticks of that clock in a second: `u64`.
        HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY = 3,
        /// The longest a wait for a signal lasts: `u64`, in ticks.
        HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT = 4,
        /// Byte order: `u32`, 0 is little.
        HSA_SYSTEM_INFO_ENDIANNESS = 5,
        /// Machine model: `u32`, 1 is large (64-bit addresses).
        HSA_SYSTEM_INFO_MACHINE_MODEL = 6,
        /// Which extensions there are: a mask of 128 bytes.
        HSA_SYSTEM_INFO_EXTENSIONS = 7,
        /// The runtime's build: `*const c_char`, a string the runtime owns.
        HSA_AMD_SYSTEM_INFO_BUILD_VERSION = 0x200,
        /// Whether shared virtual memory works: `bool`.
        HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED = 0x201,
        /// Whether every agent reaches ordinary memory: `bool`.
        HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT = 0x202,
        /// Whether waiting uses `mwaitx`: `bool`.
        HSA_AMD_SYSTEM_INFO_MWAITX_ENABLED = 0x203,
        /// Whether memory can be exported as a dma-buf: `bool`.
        HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED = 0x204,
        /// Whether the `hsa_amd_vmem` functions work: `bool`.
        HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED = 0x205,
        /// Whether GPUs retry page faults: `bool`.
        HSA_AMD_SYSTEM_INFO_XNACK_ENABLED = 0x206,
        /// Major version of the AMD extension interface: `u16`. One of the signs by which a driver tells which packets a
        /// runtime takes.
        HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR = 0x207,
        /// Minor version of the AMD extension interface: `u16`. 7 in ROCR 6.4.3, 15 in ROCR 7.2.4 (measured).
        HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR = 0x208,
    }

    /// Attributes of an agent. The type of the answer is given with each; strings are zero-terminated.
    ///
    /// Those from 0xA000 on are AMD's; C has them in an enumeration of their own, `hsa_amd_agent_info_t`, and passes them
    /// to the same function.
    hsa_agent_info_t {
        /// Name: 64 bytes. For an AIE agent `aie2` or `aie2p`.
        HSA_AGENT_INFO_NAME = 0,
        /// Vendor: 64 bytes.
        HSA_AGENT_INFO_VENDOR_NAME = 1,
        /// Mask of [`HSA_AGENT_FEATURE_KERNEL_DISPATCH`] and [`HSA_AGENT_FEATURE_AGENT_DISPATCH`]: `u32`.
        HSA_AGENT_INFO_FEATURE = 2,
        /// Machine model: `u32`, 1 is large.
        HSA_AGENT_INFO_MACHINE_MODEL = 3,
        /// Profile: `u32`, 0 is base, 1 is full.
        HSA_AGENT_INFO_PROFILE = 4,
        /// Number of queues that can be open at once: `u32`.
        HSA_AGENT_INFO_QUEUES_MAX = 12,
        /// Fewest packets of a queue, a power of two: `u32`. 64 for an AIE agent.
        HSA_AGENT_INFO_QUEUE_MIN_SIZE = 13,
        /// Most packets of a queue, a power of two: `u32`. 64 for an AIE agent.
        HSA_AGENT_INFO_QUEUE_MAX_SIZE = 14,
        /// The kind of queue: `hsa_queue_type32_t`.
        HSA_AGENT_INFO_QUEUE_TYPE = 15,
        /// NUMA node: `u32`.
        HSA_AGENT_INFO_NODE = 16,
        /// [`hsa_device_type_t`].
        HSA_AGENT_INFO_DEVICE = 17,
        /// Which extensions there are: a mask of 128 bytes.
        HSA_AGENT_INFO_EXTENSIONS = 20,
        /// Major version of the HSA specification: `u16`.
        HSA_AGENT_INFO_VERSION_MAJOR = 21,
        /// Minor version of the HSA specification: `u16`.
        HSA_AGENT_INFO_VERSION_MINOR = 22,
        /// Chip: `u32`. 0 for an AIE agent (measured), so no identity.
        HSA_AMD_AGENT_INFO_CHIP_ID = 0xA000,
        /// Bytes of a cache line: `u32`.
        HSA_AMD_AGENT_INFO_CACHELINE_SIZE = 0xA001,
        /// Compute units: `u32`.
        HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT = 0xA002,
        /// Highest clock: `u32`, MHz.
        HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY = 0xA003,
        /// The runtime's own number for the agent's node: `u32`.
        HSA_AMD_AGENT_INFO_DRIVER_NODE_ID = 0xA004,
        /// PCI bus, device and function: `u32`. 0 for an AIE agent (measured), so no identity.
        HSA_AMD_AGENT_INFO_BDFID = 0xA006,
        /// Product name: 64 bytes.
        HSA_AMD_AGENT_INFO_PRODUCT_NAME = 0xA009,
        /// PCI domain: `u32`.
        HSA_AMD_AGENT_INFO_DOMAIN = 0xA00F,
        /// Unique name: 21 bytes. The constant `AIE-XX` for every AIE agent (measured), so no identity.
        HSA_AMD_AGENT_INFO_UUID = 0xA011,
        /// Stepping: `u32`.
        HSA_AMD_AGENT_INFO_ASIC_REVISION = 0xA012,
        /// Free memory: `u64`, bytes.
        HSA_AMD_AGENT_INFO_MEMORY_AVAIL = 0xA015,
        /// Ticks of the agent's clock in a second: `u64`.
        HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY = 0xA016,
        /// Firmware version: `u32`.
        HSA_AMD_AGENT_INFO_UCODE_VERSION = 0xA108,
        /// The closest CPU: [`hsa_agent_t`].
        HSA_AMD_AGENT_INFO_NEAREST_CPU = 0xA113,
        /// Properties of the memory: a mask of 8 bytes.
        HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES = 0xA114,
    }
}

c_constants! {
    /// The agent takes kernel dispatch packets.
    HSA_AGENT_FEATURE_KERNEL_DISPATCH: u32 = 1,
    /// The agent takes agent dispatch packets.
    HSA_AGENT_FEATURE_AGENT_DISPATCH: u32 = 2,
}
