//! The environment variables of this way to an NPU.

aie_hal::settings! {
    prefix "AIE_HAL";

    section "AMD's runtime" {
        /// AMD's runtime library, ROCR. When it cannot be loaded, nothing else is tried.
        AIE_HAL_LIBHSA_PATH: "a file, or a directory that has `libhsa-runtime64.so.1`"
            => "`IREE_HAL_AMDGPU_LIBHSA_PATH`, then `ROCM_PATH`, `/opt/rocm`, the system's loader", read by ["aie-driver-rocr", "dispatch-cost"];
        /// The same, under the name that IREE's driver for AMD GPUs reads.
        IREE_HAL_AMDGPU_LIBHSA_PATH: "a file or a directory" => "none";
        /// Where ROCm is installed; its `lib` and `lib64` are looked into.
        ROCM_PATH: "a directory" => "`/opt/rocm`";
        /// Which packets the runtime library takes; for development builds whose version says something else.
        AIE_HAL_PACKET_INTERFACE: "`ert`, `kernel-dispatch`" => "what the library's version says";
    }
}
