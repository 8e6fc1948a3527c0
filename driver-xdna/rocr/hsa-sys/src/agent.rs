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
        /// An AI Engine array.
        HSA_DEVICE_TYPE_AIE = 3,
    }

    /// Attributes of the system. The type of the answer is given with each; strings are zero-terminated.
    hsa_system_info_t {
        /// Ticks of that clock in a second: `u64`.
        HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY = 3,
        /// The runtime's build: `*const c_char`, a string the runtime owns.
        HSA_AMD_SYSTEM_INFO_BUILD_VERSION = 0x200,
        /// Major version of the AMD extension interface: `u16`. One of the signs by which a driver recognises which packets a
        /// runtime takes.
        HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR = 0x207,
        /// Minor version of the AMD extension interface: `u16`. 7 in ROCR 6.4.3, 15 in ROCR 7.2.4 (measured).
        HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR = 0x208,
    }

    /// Attributes of an agent. The type of the answer is given with each; strings are zero-terminated.
    hsa_agent_info_t {
        /// Name: 64 bytes. For an AIE agent `aie2` or `aie2p`.
        HSA_AGENT_INFO_NAME = 0,
        /// Most packets of a queue, a power of two: `u32`. 64 for an AIE agent.
        HSA_AGENT_INFO_QUEUE_MAX_SIZE = 14,
        /// [`hsa_device_type_t`].
        HSA_AGENT_INFO_DEVICE = 17,
    }
}
