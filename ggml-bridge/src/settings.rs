//! The environment variables of the backend. Those of kernels and of the driver are in [`aie_jit_iron::settings`],
//! [`aie_driver_xdna::settings`] and [`aie_driver_rocr::settings`].

use aie_driver_xdna::settings::NO_HELPER;
use aie_hal::environment::Settings;

/// The settings of all crates that this library is made of.
pub const ALL: [Settings; 5] = [
    SETTINGS,
    aie_jit_iron::settings::SETTINGS,
    aie_driver_xdna::settings::SETTINGS,
    aie_driver_rocr::settings::SETTINGS,
    aie_hal::settings::SETTINGS,
];

aie_hal::settings! {
    prefix "GGML_HSA";

    section "Devices" {
        /// Whether the backend is enabled. Off: it offers no devices, and llama.cpp works as without it.
        GGML_HSA: "a switch" => "on";
        /// Devices to offer. Set but empty: none.
        GGML_HSA_DEVICES: "device URIs such as `xdna`, `xdna:0`, `xdna://pci-0000:c6:00.1`, `mock:aie2p?devices=2`, separated by `;` or white space; a comma does too when a URI follows it"
            => "the real NPUs that can be used";
        /// How llama.cpp sees the devices, which decides what work it assigns to them.
        GGML_HSA_DEVICE_TYPE: "`igpu`, `gpu`, `accel`" => "`igpu`; `accel` beside another GPU or with under 2 GiB";
        /// How real NPUs are reached when a URI has no `runtime=`: through the kernel driver alone, or through AMD's HSA
        /// runtime.
        GGML_HSA_RUNTIME: "`direct`, `rocr`" => "`direct`";
        /// Whether every call to a driver is checked against the contract.
        GGML_HSA_VALIDATION: "a switch" => "off";
    }

    section "Computing" {
        /// Whether operations without a kernel run on the CPU inside this backend, so that the graph stays whole. Off: they
        /// are left to llama.cpp's CPU backend, and the graph is split there.
        GGML_HSA_CPU_FALLBACK: "a switch" => "on";
        /// Whether an operation that belongs on the array must run there. On: a graph in which one would run on the CPU
        /// fails, and the message names the node and says why it has no kernel. Such operations are claimed whatever
        /// `GGML_HSA_CPU_FALLBACK` says, and an NPU is offered even when no kernel is available for it. Operations that the
        /// table of operations assigns to the CPU are not affected, nor are those that the backend's rules reject.
        GGML_HSA_REQUIRE_ARRAY: "a switch" => "off";
        /// Whether neighbouring nodes of a graph share a dispatch where there is a kernel for both.
        GGML_HSA_FUSION: "a switch" => "on";
        /// Whether neighbouring dispatches with one PDI, which are machine code, are executed as one, so that they take one place in a
        /// chain. Off: a failure names one of them, and the emulator's trace has each.
        GGML_HSA_JOIN: "a switch" => "on";
        /// Memory limit for converted weights on each device.
        GGML_HSA_WEIGHTS_MAX: "a size" => "half of the device's memory";
    }

    section "Compiling" {
        /// Which compilers are asked for a kernel, the first one first. `native`: this library's own, which needs nothing else.
        /// `iron`: IRON, which has to be installed. `reference`: kernels for simulated devices only. A compiler that does not
        /// have a kernel leaves it to the next one. On an NPU native kernels have to pass their self-test first (`GGML_HSA_SELFTEST`).
        GGML_HSA_COMPILERS: "`native`, `iron`, `reference`, separated by commas"
            => "`native,iron` on an NPU, without `native` where that has no products for the generation; `reference` on a simulated device, with `execute=emulated` `native,reference`";
        /// What repeats the innermost loops of native kernels: `hardware`, zero-overhead loops of the cores; `jnz`, branches, which
        /// take some more cycles. `auto`: on an NPU `hardware` if its self-test is right, else `jnz`.
        GGML_HSA_NATIVE_LOOPS: "`auto`, `hardware`, `jnz`" => "`auto`";
        /// Which native kernels make products with one to four columns: `product`, those of all other products; `rings`, those whose
        /// channels the PDI starts, where they take the shapes, and with them all else of a decoded token, in the same PDI, and products
        /// of prompts by broadcast where that takes less time.
        GGML_HSA_NATIVE_PRODUCTS: "`product`, `rings`" => "`rings`";
        /// When a family of native kernels is tested on an NPU before it is used there, and imported memory before models are used where
        /// they are mapped (`docs/native-selftest.md`). `auto`: once for the NPU, its firmware, the kernel with its driver, and this
        /// library. `always`: in every process. `off`: never.
        GGML_HSA_SELFTEST: "`auto`, `always`, `off`" => "`auto`";
        /// How long the self-test of one family may take before the family counts as hung.
        GGML_HSA_SELFTEST_LIMIT: "seconds, 1 to 3600" => "10";
        /// Whether `xdna` devices use reference kernels too. For AMD's runtime on the simulated kernel device: on an
        /// NPU such kernels do nothing, and results are undefined.
        GGML_HSA_REFERENCE_KERNELS: "a switch" => "off";
        /// Whether all compiler output is shown. The output of a failure is cached with it in any case.
        GGML_HSA_JIT_VERBOSE: "a switch" => "off";
        /// Where the output that `GGML_HSA_JIT_VERBOSE` shows goes. On: to the log. Off: to standard error. A file: it is
        /// appended there.
        GGML_HSA_JIT_STDOUT_REDIRECT: "a switch or a file" => "on, or `GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT` of the build";
    }

    section "Messages and statistics" {
        /// Whether informational messages are logged in addition to warnings and errors.
        GGML_HSA_ENABLE_LOG: "a switch" => "off";
        /// Where statistics of the run are written when the process ends: what ran where, JSON.
        GGML_HSA_STATS: "a file" => "none";
        /// Where the graphs that llama.cpp has computed are written, each when it comes, as lines of JSON: what `ggml-hsa explain` reads.
        GGML_HSA_GRAPHS: "a file" => "none";
        /// Where a timeline of the run is written, for <https://ui.perfetto.dev>: graphs, submissions, chains, dispatches with the
        /// names of their kernels, host calls, waits, compiled kernels. It slows a run down a little.
        GGML_HSA_TRACE: "a file" => "none";
    }

    section "While building" {
        /// A kernel pack, as `ggml-hsa-gen-kernels --embed` writes it, that becomes part of the library.
        GGML_HSA_EMBED_KERNELS: "a directory" => "none";
        /// The default of `GGML_HSA_JIT`.
        GGML_HSA_DEFAULT_JIT: "`eager`, `background`, `off`" => "`eager`";
        /// The default of `GGML_HSA_CPU_FALLBACK`.
        GGML_HSA_DEFAULT_CPU_FALLBACK: "a switch" => "on";
        /// The default of `GGML_HSA_JIT_STDOUT_REDIRECT`.
        GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT: "a switch or a file" => "on";
    }

    section "Of the system" {
        /// Where helper programs are looked for.
        PATH: "directories, separated by colons" => "none";
    }

    section "Of others, not read by us" {
        /// The backend that ggml loads beside its own: `libggml-hsa.so`.
        GGML_BACKEND_PATH: "a file" => "none", read by ["ggml"];
        /// Where llama.cpp's programs write their log too. `ggml-hsa run` reads the speed there, if nothing else is set.
        LLAMA_ARG_LOG_FILE: "a file" => "none", read by ["llama.cpp"];
        /// How many threads reference kernels use.
        RAYON_NUM_THREADS: "a number" => "the number of cores", read by ["rayon"];
        /// Where the system's loader looks first, also for AMD's runtime.
        LD_LIBRARY_PATH: "directories, separated by colons" => "none", read by ["the system's loader"];
    }

    removed {
        "GGML_HSA_ISOLATE" => NO_HELPER;
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use aie_hal::Environment;
    use aie_hal::environment::{Misnamed, Settings, Variable};
    use rstest::rstest;

    fn check(name: &str, declared: &[Settings]) -> Option<Misnamed> {
        Environment::from_pairs([(name, "1")]).misnamed(declared).pop()
    }

    fn variables() -> impl Iterator<Item = &'static Variable> {
        ALL.iter().flat_map(|settings| settings.variables)
    }

    #[rstest]
    #[case::underscore("GGML_HSA_KERNELDIR", Some("GGML_HSA_KERNEL_DIR"))]
    #[case::letter("GGML_HSA_DEVICE", Some("GGML_HSA_DEVICES"))]
    #[case::swap("GGML_HSA_FUSOIN", Some("GGML_HSA_FUSION"))]
    #[case::case("GGML_HSA_Stats", Some("GGML_HSA_STATS"))]
    #[case::lower("ggml_hsa_stats", Some("GGML_HSA_STATS"))]
    #[case::no_underscore("GGML_HSAJIT_TIMEOUT", Some("GGML_HSA_JIT_TIMEOUT"))]
    #[case::word_left_out("GGML_HSA_LOG", Some("GGML_HSA_ENABLE_LOG"))]
    #[case::word_left_out("GGML_HSA_CACHE_DIR", Some("GGML_HSA_KERNEL_CACHE_DIR"))]
    #[case::other_prefix("GGML_HSA_VISIBLE_DEVICES", Some("AIE_HAL_VISIBLE_DEVICES"))]
    #[case::other_prefix("AIE_HAL_STATS", Some("GGML_HSA_STATS"))]
    #[case::own_prefix("AIE_HAL_LIBHSA", Some("AIE_HAL_LIBHSA_PATH"))]
    #[case::far("GGML_HSA_COLOUR_OF_THE_CASE", None)]
    #[case::nothing_behind_it("GGML_HSA_", Some("GGML_HSA"))]
    #[case::not_ascii("GGML_HSA_É", None)]
    #[case::older_names_are_not_proposed("GGML_HSA_JIT_CLEAR_CACH", None)]
    fn the_nearest_name(#[case] wrong: &str, #[case] expected: Option<&'static str>) {
        let name = wrong.to_owned();
        let misnamed = match expected {
            Some(nearest) => Misnamed::Misspelt { name, nearest },
            None => Misnamed::Unknown(name),
        };
        assert_eq!(check(wrong, &ALL), Some(misnamed));
    }

    #[test]
    fn without_a_near_name_the_page_is_named() {
        let text = check("GGML_HSA_COLOUR_OF_THE_CASE", &ALL).unwrap().to_string();
        let expected =
            "GGML_HSA_COLOUR_OF_THE_CASE is not a setting and has no effect; docs/environment.md lists all settings";
        assert_eq!(text, expected);
    }

    #[test]
    fn removed_and_older_settings_say_so_and_are_no_typing_mistakes() {
        let text = ["GGML_HSA_ISOLATE", "AIE_HAL_RUNTIME_HOST", "GGML_HSA_JIT_CLEAR_CACHE"]
            .map(|name| check(name, &ALL).unwrap().to_string());
        let instead = "AMD's runtime is always in this process (docs/rocr.md says what can still end the process)";
        let expected = [
            format!("GGML_HSA_ISOLATE has no effect any more: {instead}"),
            format!("AIE_HAL_RUNTIME_HOST has no effect any more: {instead}"),
            "GGML_HSA_JIT_CLEAR_CACHE is an older name, still accepted; use GGML_HSA_KERNEL_CACHE_CLEAR".to_owned(),
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn no_setting_and_no_foreign_name_is_misnamed() {
        for variable in variables() {
            assert_eq!(check(variable.name, &ALL), None, "{variable}");
        }
        for name in ["GGML_BACKEND_PATH", "GGML", "AIE_HA", "", "É", "AMDXDNA_SIM_FAULTS", "HSA_STAND_IN_AGENTS"] {
            assert_eq!(check(name, &ALL), None, "{name}");
        }
    }

    /// `ggml-hsa-gen-kernels` does not know all settings and says nothing of names that are near to none it knows.
    #[test]
    fn no_setting_looks_like_a_misspelt_one_of_the_tools() {
        for variable in variables() {
            let misnamed = check(variable.name, &[aie_jit_iron::settings::SETTINGS, aie_hal::settings::SETTINGS]);
            assert!(matches!(misnamed, None | Some(Misnamed::Unknown(_))), "{misnamed:?}");
        }
    }
}
