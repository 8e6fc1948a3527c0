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
        /// How long a chain of dispatches on an NPU may take.
        AIE_HAL_TIME_LIMIT_MS: "milliseconds, at least 1" => "30000";
    }

    removed {
        "AIE_HAL_RUNTIME_HOST" => NO_HELPER;
    }
}
