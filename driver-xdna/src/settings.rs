//! The environment variables of this driver.

/// Why there is no helper process.
pub const NO_HELPER: &str =
    "AMD's runtime is always in this process (docs/rocr.md says what can still end the process)";

aie_hal::settings! {
    prefix "AIE_HAL";

    section "Devices" {
        /// The real NPUs that a program may see, in this order. Set but empty: none.
        AIE_HAL_VISIBLE_DEVICES: "ordinals or ids, separated by commas" => "all";
        /// Most PDIs of a hardware context. 1 is for machines where several of them time out (amd/xdna-driver issue 906); it costs a context
        /// switch wherever the kernel file changes.
        AIE_HAL_PDIS_PER_CONTEXT: "a number of at least 1" => "32, what the generation has";
    }

    section "AMD's runtime" {
        /// AMD's runtime library, ROCR. When it cannot be loaded, nothing else is tried.
        AIE_HAL_LIBHSA_PATH: "a file, or a directory that has `libhsa-runtime64.so.1`"
            => "`IREE_HAL_AMDGPU_LIBHSA_PATH`, then `ROCM_PATH`, `/opt/rocm`, the system's loader", read by ["aie-driver-xdna", "dispatch-cost"];
        /// The same, under the name that IREE's driver for AMD GPUs reads.
        IREE_HAL_AMDGPU_LIBHSA_PATH: "a file or a directory" => "none";
        /// Where ROCm is installed; its `lib` and `lib64` are looked into.
        ROCM_PATH: "a directory" => "`/opt/rocm`";
        /// Which packets the runtime library takes; for development builds whose version says something else.
        AIE_HAL_PACKET_INTERFACE: "`ert`, `kernel-dispatch`" => "what the library's version says";
        /// How long a doorbell may take.
        AIE_HAL_TIME_LIMIT_MS: "milliseconds, at least 1" => "30000";
    }

    removed {
        "AIE_HAL_RUNTIME_HOST" => NO_HELPER;
    }
}
