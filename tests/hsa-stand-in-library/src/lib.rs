//! `libhsa_stand_in.so`: an HSA runtime for tests, see the package `hsa-stand-in`. It is not ROCR.

/// Starts the runtime, with the executors of the reference kernels. All other symbols are those of `hsa_stand_in_core`.
#[unsafe(no_mangle)]
pub extern "C" fn hsa_init() -> hsa_sys::hsa_status_t {
    hsa_stand_in_core::init(simulated_kernels::executor)
}
