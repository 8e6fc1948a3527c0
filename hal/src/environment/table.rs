//! All variables, each declared once.
//!
//! A constant is spelled like its variable, so that a search for the name finds the declaration, the code that reads it and
//! the page. Add a variable here, read it through [`Environment`](super::Environment), and write the page with
//! `cargo xtask environment --write`; tests compare the three.

use super::{Family, Group, Variable};

/// Declares the constants and, of the same lines, [`TABLE`].
macro_rules! variables {
    ($($group:ident { $($name:ident {
        meaning: $meaning:literal,
        values: $values:literal,
        default: $default:literal,
        read_by: [$($reader:literal),+]
        $(, replacement: $replacement:ident)?
    })+ })+) => {
        $($(
            #[doc = $meaning]
            pub const $name: Variable = Variable {
                name: stringify!($name),
                group: Group::$group,
                meaning: $meaning,
                values: $values,
                default: $default,
                read_by: &[$($reader),+],
                replacement: variables!(@replacement $($replacement)?),
            };
        )+)+

        /// All variables, in the order of the page.
        pub const TABLE: &[Variable] = &[$($($name),+),+];
    };
    (@replacement) => { None };
    (@replacement $replacement:ident) => { Some(&$replacement) };
}

/// The variable called `name`.
pub fn find(name: &str) -> Option<&'static Variable> {
    TABLE.iter().find(|variable| variable.name == name)
}

/// Test equipment, whose settings are described where they are read.
pub const FAMILIES: [Family; 2] = [
    Family {
        prefix: "AMDXDNA_SIM_",
        meaning: "the simulated kernel device: which NPUs, what is wrong with the machine, faults, recordings",
        described_in: "driver-mock/amdxdna-sim/src/settings.rs",
    },
    Family {
        prefix: "HSA_STAND_IN_",
        meaning: "the stand-in for later runtime libraries: agents, version, faults",
        described_in: "driver-mock/hsa-stand-in/src/settings.rs",
    },
];

variables! {
    Devices {
        GGML_HSA {
            meaning: "Whether there is a backend at all. Off: it offers no device, and llama.cpp works as without it.",
            values: "a switch",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_DEVICES {
            meaning: "Devices to offer. Set but empty: none.",
            values: "device URIs such as `xdna`, `xdna:0`, `xdna://pci-0000:c6:00.1`, `mock:aie2p?devices=2`, separated by `;` or \
                     white space; a comma does too when a URI follows it",
            default: "the real NPUs that can be used",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_DEVICE_TYPE {
            meaning: "How llama.cpp sees the devices, which decides what it gives them.",
            values: "`igpu`, `gpu`, `accel`",
            default: "`igpu`; `accel` beside another GPU or with under 2 GiB",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_RUNTIME {
            meaning: "How real NPUs are reached when a URI has no `runtime=`: through the kernel driver alone, or through AMD's HSA \
                      runtime.",
            values: "`direct`, `rocr`",
            default: "`direct`",
            read_by: ["aie-ggml-bridge"]
        }
        AIE_HAL_VISIBLE_DEVICES {
            meaning: "The real NPUs that a program may see, in this order. Set but empty: none.",
            values: "ordinals or ids, separated by commas",
            default: "all",
            read_by: ["aie-driver-xdna"]
        }
        AIE_HAL_ARCH_PATH {
            meaning: "Where arch files of further generations are. A file wins over a built-in generation of its name.",
            values: "directories of `*.toml`, separated by colons",
            default: "none",
            read_by: ["aie-hal"]
        }
        GGML_HSA_VALIDATION {
            meaning: "Whether every call to a driver is checked against the contract.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
    }
    Computing {
        GGML_HSA_CPU_FALLBACK {
            meaning: "Whether operations without a kernel run on the CPU inside this backend, so that the graph stays whole. Off: \
                      they are left to llama.cpp's CPU backend, and the graph is split there.",
            values: "a switch",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_REQUIRE_ARRAY {
            meaning: "Whether an operation that belongs on the array must run there. On: a graph in which one would run on the host \
                      fails, and the message names the node and says why there is no kernel. Such operations are claimed whatever \
                      `GGML_HSA_CPU_FALLBACK` says, and an NPU is offered even when no kernel can come for it. Operations that the \
                      table of operations gives to the host are not concerned, nor is what the backend's rules do not accept.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_F16 {
            meaning: "What f16 is computed in on the array, by the operations that do not decide it themselves (`docs/architecture.md`).",
            values: "`f32`, `bf16`",
            default: "`f32`",
            read_by: ["aie-ggml-bridge", "aie-jit-iron"]
        }
        GGML_HSA_FUSION {
            meaning: "Whether neighbouring nodes of a graph share a dispatch where there is a kernel for both.",
            values: "a switch",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_WEIGHTS_MAX {
            meaning: "Most memory for converted weights on each device.",
            values: "a size",
            default: "half of the device's memory",
            read_by: ["aie-ggml-bridge"]
        }
    }
    Kernels {
        GGML_HSA_KERNEL_DIR {
            meaning: "Compiled kernels, `ARCH/NAME.pdi` and `ARCH/NAME_insts.bin`, that are taken before those of the cache. They \
                      are only read.",
            values: "a directory",
            default: "none",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_KERNEL_CACHE_DIR {
            meaning: "Where compiled kernels are kept.",
            values: "a directory; it is made when it is not there",
            default: "`$XDG_CACHE_HOME/ggml`, else `$HOME/.cache/ggml`, else `/tmp/ggml/ggml-hsa`",
            read_by: ["aie-jit-iron"]
        }
        GGML_HSA_KERNEL_CACHE_CLEAR {
            meaning: "Whether the cache is emptied at the start. Only what the cache itself wrote is deleted.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_CLEAR_CACHE {
            meaning: "Older name of `GGML_HSA_KERNEL_CACHE_CLEAR`.",
            values: "a switch",
            default: "off",
            read_by: ["aie-hal"],
            replacement: GGML_HSA_KERNEL_CACHE_CLEAR
        }
    }
    Compiling {
        GGML_HSA_JIT {
            meaning: "When kernels are compiled that no directory has. `eager`: before a graph runs that needs them. `background`: \
                      beside it; the operation runs elsewhere until its kernel is ready. `off`: never.",
            values: "`eager`, `background`, `off`",
            default: "`eager`, or `GGML_HSA_DEFAULT_JIT` of the build",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_COMPILE {
            meaning: "Off is the same as `GGML_HSA_JIT=off`, whatever that says.",
            values: "a switch",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_TIMEOUT {
            meaning: "How long the compilation of one kernel may take before it is ended.",
            values: "seconds, 1 to 604800",
            default: "300",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_MEMORY_MAX {
            meaning: "How much memory one compiling process may have.",
            values: "a size above 0",
            default: "`16G`",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_WORKERS {
            meaning: "How many processes compile at the same time. 0: reference kernels are made in the program's own process.",
            values: "0 to 256",
            default: "the number of cores, at most 4",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_WORKER {
            meaning: "The program `ggml-hsa-jit-worker`, which compiles.",
            values: "an executable",
            default: "the one beside the library, then the one installed with it, then on `PATH`",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_JOB {
            meaning: "Set by the library for the processes that compile, so that none of them outlives its job.",
            values: "another one for each process; nothing to set by hand",
            default: "none",
            read_by: ["aie-jit-iron"]
        }
        GGML_HSA_JIT_PYTHON {
            meaning: "The Python of the IRON environment.",
            values: "an executable",
            default: "`python3` on `PATH`",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_IRON_DIR {
            meaning: "Where the designs for IRON are.",
            values: "a directory with `worker.py` and `kernels/`",
            default: "the one installed with the library",
            read_by: ["aie-ggml-bridge"]
        }
        MLIR_AIE_INSTALL_DIR {
            meaning: "Where mlir_aie is installed, under IRON's own name for it; the script that prepares the environment sets it.",
            values: "a directory",
            default: "that of the Python package `aie`",
            read_by: ["aie-jit-iron"]
        }
        PEANO_INSTALL_DIR {
            meaning: "Where Peano is installed, under IRON's own name for it. When it is not complete, nothing else is tried.",
            values: "a directory",
            default: "that of the Python package `llvm-aie`",
            read_by: ["aie-jit-iron"]
        }
        GGML_HSA_REFERENCE_KERNELS {
            meaning: "Whether `xdna` devices are given reference kernels too. For AMD's runtime on the simulated kernel device: on \
                      an NPU such kernels do nothing, and results are whatever memory held before.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_VERBOSE {
            meaning: "Whether the compilers' whole output is shown. It is kept beside a failure in any case.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_JIT_STDOUT_REDIRECT {
            meaning: "Where output goes that `GGML_HSA_JIT_VERBOSE` shows. On: to the log. Off: to standard error as it is. A file: \
                      it is appended there.",
            values: "a switch or a file",
            default: "on, or `GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT` of the build",
            read_by: ["aie-ggml-bridge"]
        }
    }
    Reports {
        GGML_HSA_ENABLE_LOG {
            meaning: "Whether information is told beside warnings and errors.",
            values: "a switch",
            default: "off",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_STATS {
            meaning: "Where statistics of the run are written when the process ends: what ran where, JSON.",
            values: "a file",
            default: "none",
            read_by: ["aie-ggml-bridge"]
        }
    }
    Runtime {
        AIE_HAL_LIBHSA_PATH {
            meaning: "AMD's runtime library, ROCR. When it cannot be loaded, nothing else is tried.",
            values: "a file, or a directory that has `libhsa-runtime64.so.1`",
            default: "`IREE_HAL_AMDGPU_LIBHSA_PATH`, then `ROCM_PATH`, `/opt/rocm`, the system's loader",
            read_by: ["aie-driver-xdna", "dispatch-cost"]
        }
        IREE_HAL_AMDGPU_LIBHSA_PATH {
            meaning: "The same, under the name that IREE's driver for AMD GPUs reads.",
            values: "a file or a directory",
            default: "none",
            read_by: ["aie-driver-xdna"]
        }
        ROCM_PATH {
            meaning: "Where ROCm is installed; its `lib` and `lib64` are looked into.",
            values: "a directory",
            default: "`/opt/rocm`",
            read_by: ["aie-driver-xdna"]
        }
        AIE_HAL_PACKET_INTERFACE {
            meaning: "Which packets the runtime library takes; for development builds whose version says something else.",
            values: "`ert`, `kernel-dispatch`",
            default: "what the library's version says",
            read_by: ["aie-driver-xdna"]
        }
        AIE_HAL_TIME_LIMIT_MS {
            meaning: "How long a doorbell may take.",
            values: "milliseconds, at least 1",
            default: "30000",
            read_by: ["aie-driver-xdna"]
        }
    }
    Build {
        GGML_HSA_EMBED_KERNELS {
            meaning: "A kernel pack, as `ggml-hsa-gen-kernels --embed` writes it, that becomes part of the library.",
            values: "a directory",
            default: "none",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_DEFAULT_JIT {
            meaning: "The default of `GGML_HSA_JIT`.",
            values: "`eager`, `background`, `off`",
            default: "`eager`",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_DEFAULT_CPU_FALLBACK {
            meaning: "The default of `GGML_HSA_CPU_FALLBACK`.",
            values: "a switch",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
        GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT {
            meaning: "The default of `GGML_HSA_JIT_STDOUT_REDIRECT`.",
            values: "a switch or a file",
            default: "on",
            read_by: ["aie-ggml-bridge"]
        }
    }
    System {
        XDG_CACHE_HOME {
            meaning: "Where caches are; see `GGML_HSA_KERNEL_CACHE_DIR`.",
            values: "a directory",
            default: "none",
            read_by: ["aie-jit-iron"]
        }
        HOME {
            meaning: "The user's directory; see `GGML_HSA_KERNEL_CACHE_DIR`.",
            values: "a directory",
            default: "none",
            read_by: ["aie-jit-iron"]
        }
        PATH {
            meaning: "Where helper programs are looked for.",
            values: "directories, separated by colons",
            default: "none",
            read_by: ["aie-ggml-bridge"]
        }
    }
    Neighbours {
        GGML_BACKEND_PATH {
            meaning: "The backend that ggml loads beside its own: `libggml-hsa.so`.",
            values: "a file",
            default: "none",
            read_by: ["ggml"]
        }
        RAYON_NUM_THREADS {
            meaning: "How many threads reference kernels use.",
            values: "a number",
            default: "the number of cores",
            read_by: ["rayon"]
        }
        LD_LIBRARY_PATH {
            meaning: "Where the system's loader looks first, also for AMD's runtime.",
            values: "directories, separated by colons",
            default: "none",
            read_by: ["the system's loader"]
        }
    }
    Tools {
        AIE_TESTBED {
            meaning: "Where the stock programs, models and libraries of the tests are.",
            values: "a directory",
            default: "`target/testbed`",
            read_by: ["xtask"]
        }
        CC {
            meaning: "The C compiler of the tests.",
            values: "a program",
            default: "`cc`",
            read_by: ["xtask"]
        }
        CXX {
            meaning: "The C++ compiler of the tests.",
            values: "a program",
            default: "`c++`",
            read_by: ["xtask"]
        }
        CARGO {
            meaning: "The cargo that builds what is tested; cargo itself sets it.",
            values: "a program",
            default: "`cargo`",
            read_by: ["xtask"]
        }
        NO_COLOR {
            meaning: "Set, to whatever value: no colours in tables.",
            values: "any",
            default: "colours on a terminal",
            read_by: ["xtask"]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_there_once_and_found() {
        let names: BTreeSet<&str> = TABLE.iter().map(Variable::name).collect();
        assert_eq!(names.len(), TABLE.len());
        for variable in TABLE {
            assert_eq!(find(variable.name()), Some(variable));
        }
        assert_eq!(find("GGML_HSA_NOTHING"), None);
    }

    #[test]
    fn names_of_test_equipment_are_no_settings() {
        for family in FAMILIES {
            assert!(TABLE.iter().all(|variable| !variable.name().starts_with(family.prefix)), "{}", family.prefix);
        }
    }

    #[test]
    fn every_group_has_variables_and_they_stand_together() {
        let mut groups: Vec<Group> = TABLE.iter().map(Variable::group).collect();
        groups.dedup();
        assert_eq!(groups, Group::ALL);
    }

    #[test]
    fn a_replacement_is_no_older_name_itself() {
        let older: Vec<&Variable> = TABLE.iter().filter_map(Variable::replacement).collect();
        assert_eq!(older, [&GGML_HSA_KERNEL_CACHE_CLEAR]);
        assert!(older.iter().all(|variable| variable.replacement().is_none()));
    }

    #[test]
    fn cells_fit_a_table() {
        for variable in TABLE {
            for cell in [variable.meaning(), variable.values(), variable.default()] {
                let odd = cell.is_empty() || cell.contains(['|', '\n']) || cell.contains("  ");
                assert!(!odd, "{variable}: {cell:?}");
            }
        }
    }
}
