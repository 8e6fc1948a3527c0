//! The simulated NPU as a library for `LD_PRELOAD`: `libamdxdna_preload.so`. How to use it is described in `amdxdna_sim`.

amdxdna_sim::preload!(simulated_kernels::executor());
