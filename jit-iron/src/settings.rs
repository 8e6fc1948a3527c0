//! The environment variables of kernels: where they are found, and how they are compiled.
//!
//! Most are read by the code that builds a [`KernelStore`](crate::KernelStore); they are declared here because messages of this
//! crate name them.

aie_hal::settings! {
    prefix "GGML_HSA";

    section "Computing" {
        /// What f16 is computed in on the array, by the operations that do not decide it themselves
        /// (`docs/architecture.md`).
        GGML_HSA_F16: "`f32`, `bf16`" => "`f32`", read by ["aie-ggml-bridge"];
    }

    section "Kernels" {
        /// Compiled kernels, `ARCH/NAME.pdi` and `ARCH/NAME_insts.bin`, that are preferred over those of the cache. They
        /// are only read.
        GGML_HSA_KERNEL_DIR: "a directory" => "none", read by ["aie-ggml-bridge"];
        /// Where compiled kernels are cached.
        GGML_HSA_KERNEL_CACHE_DIR: "a directory; it is created if it does not exist"
            => "`$XDG_CACHE_HOME/ggml`, else `$HOME/.cache/ggml`, else `/tmp/ggml/ggml-hsa`";
        /// Whether the cache is emptied at the start. Only what the cache itself wrote is deleted. Under the older name every value
        /// but `0` empties it, as in the C++ backend.
        GGML_HSA_KERNEL_CACHE_CLEAR: "a switch" => "off", read by ["aie-ggml-bridge"], older "GGML_HSA_JIT_CLEAR_CACHE";
    }

    section "Compiling" {
        /// When missing kernels are compiled. `eager`: before a graph that needs them runs. `background`:
        /// while graphs run; the operation runs on the CPU until its kernel is ready. `off`: never.
        GGML_HSA_JIT: "`eager`, `background`, `off`"
            => "`eager`, or `GGML_HSA_DEFAULT_JIT` of the build", read by ["aie-ggml-bridge"];
        /// Off is the same as `GGML_HSA_JIT=off`, and overrides it.
        GGML_HSA_JIT_COMPILE: "a switch" => "on", read by ["aie-ggml-bridge"];
        /// How long the compilation of one kernel may take before it is stopped.
        GGML_HSA_JIT_TIMEOUT: "seconds, 1 to 604800" => "300", read by ["aie-ggml-bridge"];
        /// Memory limit of one compiling process.
        GGML_HSA_JIT_MEMORY_MAX: "a size, above 0" => "`16G`", read by ["aie-ggml-bridge"];
        /// Most processes that compile at the same time. 0: reference kernels are compiled in the program's own process.
        GGML_HSA_JIT_WORKERS: "0 to 256" => "the number of cores, at most 4", read by ["aie-ggml-bridge"];
        /// The program `ggml-hsa-jit-worker`, which compiles.
        GGML_HSA_JIT_WORKER: "an executable"
            => "the one beside the library, then the one installed with it, then on `PATH`", read by ["aie-ggml-bridge"];
        /// Set by the library for compiling processes, so that none of them outlives its job.
        GGML_HSA_JIT_JOB: "unique for each process; not set by users" => "none";
        /// The Python of the IRON environment.
        GGML_HSA_JIT_PYTHON: "an executable" => "`python3` on `PATH`", read by ["aie-ggml-bridge"];
        /// Where the designs for IRON are.
        GGML_HSA_IRON_DIR: "a directory with `worker.py` and `kernels/`"
            => "the one installed with the library", read by ["aie-ggml-bridge"];
        /// Where mlir_aie is installed, under IRON's own name for it; the script that prepares the environment sets it.
        MLIR_AIE_INSTALL_DIR: "a directory" => "that of the Python package `aie`";
        /// Where Peano is installed, under IRON's own name for it. When it is incomplete, nothing else is tried.
        PEANO_INSTALL_DIR: "a directory" => "that of the Python package `llvm-aie`";
    }

    section "Of the system" {
        /// Where caches are; see `GGML_HSA_KERNEL_CACHE_DIR`.
        XDG_CACHE_HOME: "a directory" => "none";
        /// The user's directory; see `GGML_HSA_KERNEL_CACHE_DIR`.
        HOME: "a directory" => "none";
    }
}
