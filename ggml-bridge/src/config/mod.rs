//! The settings from the environment.
//!
//! The variables are declared, with what they mean, in [`crate::settings`] and those of the other crates; `docs/environment.md` lists
//! them. Here is what their values are.
//!
//! A value that cannot be understood is an error message and the default, never the end of the program. Defaults that a build
//! may change are in one file (`build_defaults`).

mod build_defaults;
mod compiler_output;
mod compilers;
mod device_list;
pub mod device_type;
mod jit;
pub mod log;
mod native_loops;
mod native_products;
mod self_test;

pub use compiler_output::CompilerOutput;
pub use compilers::CompilerName;
pub use jit::JitConfig;
pub use native_loops::NativeLoops;
pub use self_test::SelfTest;

use crate::config::device_type::DeviceType;
use crate::settings::{
    GGML_HSA, GGML_HSA_CPU_FALLBACK, GGML_HSA_DEVICE_TYPE, GGML_HSA_DEVICES, GGML_HSA_ENABLE_LOG, GGML_HSA_FUSION,
    GGML_HSA_GRAPHS, GGML_HSA_JOIN, GGML_HSA_NATIVE_LOOPS, GGML_HSA_NATIVE_PRODUCTS, GGML_HSA_REFERENCE_KERNELS,
    GGML_HSA_REQUIRE_ARRAY, GGML_HSA_RUNTIME, GGML_HSA_SELFTEST, GGML_HSA_SELFTEST_LIMIT, GGML_HSA_STATS,
    GGML_HSA_TRACE, GGML_HSA_VALIDATION, GGML_HSA_WEIGHTS_MAX,
};
use aie_driver_xdna::route::Route;
use aie_hal::Environment;
use aie_hal::environment::{Problem, Reader, Variable};
use aie_jit_iron::CachePath;
use aie_jit_iron::settings::{GGML_HSA_F16, GGML_HSA_KERNEL_CACHE_CLEAR, GGML_HSA_KERNEL_DIR};
use aie_jit_native::Products;
use aie_ops::F16Policy;
use build_defaults::BuildDefaults;
use std::path::PathBuf;
use std::time::Duration;

/// The settings, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether the backend is enabled. If not, no device is offered.
    pub enabled: bool,
    /// Device URIs; `None` when not set.
    pub devices: Option<Vec<String>>,
    /// How real NPUs are reached when a URI does not say.
    pub route: Route,
    /// Forced device type.
    pub device_type: Option<DeviceType>,
    /// Whether every call to a driver is checked.
    pub validation: bool,
    /// Cap of converted weights in bytes.
    pub weights_max: Option<u64>,
    /// What f16 becomes.
    pub f16: F16Policy,
    /// Whether every node of a graph gets a dispatch of its own.
    pub apart: bool,
    /// Whether every dispatch takes a place of its own in a chain.
    pub unjoined: bool,
    /// Whether operations without a kernel run on the host inside this backend.
    pub cpu_fallback: bool,
    /// Whether an operation that belongs on the array and has no kernel is an error.
    pub require_array: bool,
    /// Compiled kernels of the user's.
    pub kernel_directory: Option<PathBuf>,
    /// Whether devices that are not simulated get reference kernels too.
    pub reference_kernels: bool,
    /// Where compiled kernels are cached.
    pub cache: CachePath,
    /// Whether the cache is emptied at the start.
    pub cache_clear: bool,
    /// How kernels are compiled.
    pub jit: JitConfig,
    /// What repeats loops of native kernels.
    pub native_loops: NativeLoops,
    /// Which native kernels make products with few columns.
    pub native_products: Products,
    /// When native kernels are tested on an NPU.
    pub self_test: SelfTest,
    /// How long the self-test of a family may take.
    pub self_test_limit: Duration,
    /// Where statistics go.
    pub statistics: Option<PathBuf>,
    /// Where the graphs go.
    pub graphs: Option<PathBuf>,
    /// Where the timeline goes.
    pub trace: Option<PathBuf>,
    /// Whether information is logged beside warnings and errors.
    pub verbose: bool,
}

/// The settings of an empty environment.
impl Default for Config {
    fn default() -> Self {
        Self::read(&Environment::default()).0
    }
}

impl Config {
    /// Reads the settings. Returns what was not understood.
    pub fn read(environment: &Environment) -> (Self, Vec<Problem>) {
        Self::with_defaults(environment, &BuildDefaults::this())
    }

    fn with_defaults(environment: &Environment, defaults: &BuildDefaults) -> (Self, Vec<Problem>) {
        let mut reader = Reader::new(environment);
        let config = Self {
            enabled: reader.switch(&GGML_HSA).unwrap_or(true),
            // Set and empty is a list of nothing.
            devices: environment.get(&GGML_HSA_DEVICES).map(|list| device_list::split_uris(&list.to_string_lossy())),
            route: reader.value(&GGML_HSA_RUNTIME, |text| text.parse().ok()).unwrap_or_default(),
            device_type: reader.value(&GGML_HSA_DEVICE_TYPE, DeviceType::parse),
            validation: reader.switch(&GGML_HSA_VALIDATION).unwrap_or(false),
            weights_max: reader.bytes(&GGML_HSA_WEIGHTS_MAX, 0),
            f16: reader.value(&GGML_HSA_F16, |text| F16Policy::parse(text).ok()).unwrap_or_default(),
            apart: !reader.switch(&GGML_HSA_FUSION).unwrap_or(true),
            unjoined: !reader.switch(&GGML_HSA_JOIN).unwrap_or(true),
            cpu_fallback: reader.switch(&GGML_HSA_CPU_FALLBACK).unwrap_or(defaults.cpu_fallback),
            require_array: reader.switch(&GGML_HSA_REQUIRE_ARRAY).unwrap_or(false),
            kernel_directory: environment.path(&GGML_HSA_KERNEL_DIR),
            reference_kernels: reader.switch(&GGML_HSA_REFERENCE_KERNELS).unwrap_or(false),
            cache: CachePath::of(environment),
            cache_clear: cache_clear(&mut reader, environment),
            jit: JitConfig::read(&mut reader, defaults),
            native_loops: reader.value(&GGML_HSA_NATIVE_LOOPS, NativeLoops::parse).unwrap_or_default(),
            native_products: reader.value(&GGML_HSA_NATIVE_PRODUCTS, native_products::parse).unwrap_or_default(),
            self_test: reader.value(&GGML_HSA_SELFTEST, SelfTest::parse).unwrap_or_default(),
            self_test_limit: Duration::from_secs(reader.number(&GGML_HSA_SELFTEST_LIMIT, 1..=3600).unwrap_or(10)),
            statistics: environment.path(&GGML_HSA_STATS),
            graphs: environment.path(&GGML_HSA_GRAPHS),
            trace: environment.path(&GGML_HSA_TRACE),
            verbose: reader.switch(&GGML_HSA_ENABLE_LOG).unwrap_or(false),
        };
        (config, reader.problems)
    }
}

/// Whether the cache is emptied. Under the older name, which the C++ backend has, everything but 0 means yes.
fn cache_clear(reader: &mut Reader<'_>, environment: &Environment) -> bool {
    const NEW: Variable = Variable { older: None, ..GGML_HSA_KERNEL_CACHE_CLEAR };
    let older = GGML_HSA_KERNEL_CACHE_CLEAR.older.map(|name| Variable { name, ..NEW });
    let asked = || older.and_then(|older| environment.text(&older)).is_some_and(|value| value != "0");
    reader.switch(&NEW).unwrap_or_else(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_jit_iron::WorkerLimits;
    use aie_jit_native::codegen::LoopForm;
    use rstest::rstest;

    fn read(pairs: &[(&str, &str)]) -> (Config, Vec<Problem>) {
        Config::read(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn invalid_values_are_reported_and_ignored() {
        let (config, problems) = read(&[
            ("GGML_HSA_DEVICE_TYPE", "tpu"),
            ("GGML_HSA_WEIGHTS_MAX", "lots"),
            ("GGML_HSA_F16", "f64"),
            ("GGML_HSA_FUSION", "perhaps"),
            ("GGML_HSA_JIT", "lazy"),
            ("GGML_HSA_COMPILERS", "native,peano"),
            ("GGML_HSA_NATIVE_LOOPS", "software"),
            ("GGML_HSA_NATIVE_PRODUCTS", "matrix"),
            ("GGML_HSA_SELFTEST", "never"),
            ("GGML_HSA_SELFTEST_LIMIT", "0"),
            ("GGML_HSA_ENABLE_LOG", "banana"),
        ]);
        assert_eq!(config, Config::default());
        assert_eq!(problems.len(), 11, "{problems:?}");
        let expected = "GGML_HSA_DEVICE_TYPE: `tpu` is not valid; possible: igpu, gpu, accel; it is ignored";
        assert_eq!(problems[0].text, expected);
    }

    #[test]
    fn settings_are_read() {
        let (config, problems) = read(&[
            ("GGML_HSA", "OFF"),
            ("GGML_HSA_DEVICES", "mock"),
            ("GGML_HSA_DEVICE_TYPE", "ACCEL"),
            ("GGML_HSA_VALIDATION", "1"),
            ("GGML_HSA_WEIGHTS_MAX", "1G"),
            ("GGML_HSA_F16", "bf16"),
            ("GGML_HSA_FUSION", "0"),
            ("GGML_HSA_JOIN", "off"),
            ("GGML_HSA_CPU_FALLBACK", "off"),
            ("GGML_HSA_REQUIRE_ARRAY", "1"),
            ("GGML_HSA_KERNEL_DIR", "/kernels"),
            ("GGML_HSA_REFERENCE_KERNELS", "1"),
            ("GGML_HSA_RUNTIME", "rocr"),
            ("GGML_HSA_KERNEL_CACHE_DIR", "/cache"),
            ("GGML_HSA_KERNEL_CACHE_CLEAR", "1"),
            ("GGML_HSA_COMPILERS", "native,reference"),
            ("GGML_HSA_JIT_TIMEOUT", "7"),
            ("GGML_HSA_NATIVE_LOOPS", "JNZ"),
            ("GGML_HSA_NATIVE_PRODUCTS", "Product"),
            ("GGML_HSA_SELFTEST", "Always"),
            ("GGML_HSA_SELFTEST_LIMIT", "3"),
            ("GGML_HSA_STATS", "out.json"),
            ("GGML_HSA_GRAPHS", "graphs.jsonl"),
            ("GGML_HSA_TRACE", "trace.json"),
            ("GGML_HSA_ENABLE_LOG", "1"),
        ]);
        let default = Config::default();
        let expected = Config {
            enabled: false,
            devices: Some(vec!["mock".into()]),
            route: Route::Rocr,
            device_type: Some(DeviceType::Accel),
            validation: true,
            weights_max: Some(1 << 30),
            f16: F16Policy::Bf16,
            apart: true,
            unjoined: true,
            cpu_fallback: false,
            require_array: true,
            kernel_directory: Some("/kernels".into()),
            reference_kernels: true,
            cache: CachePath::of(&Environment::from_pairs([("GGML_HSA_KERNEL_CACHE_DIR", "/cache")])),
            cache_clear: true,
            jit: JitConfig {
                compilers: Some(vec![CompilerName::Native, CompilerName::Reference]),
                limits: WorkerLimits { time: Duration::from_secs(7), ..default.jit.limits },
                ..default.jit
            },
            native_loops: NativeLoops::Always(LoopForm::Jnz),
            native_products: Products::Product,
            self_test: SelfTest::Always,
            self_test_limit: Duration::from_secs(3),
            statistics: Some("out.json".into()),
            graphs: Some("graphs.jsonl".into()),
            trace: Some("trace.json".into()),
            verbose: true,
        };
        assert_eq!((config, problems), (expected, vec![]));
    }

    #[test]
    fn an_empty_value_is_none_but_an_empty_list_is_a_list() {
        let names = ["GGML_HSA", "GGML_HSA_WEIGHTS_MAX", "GGML_HSA_F16", "GGML_HSA_FUSION", "GGML_HSA_STATS"];
        assert_eq!(read(&names.map(|name| (name, ""))), (Config::default(), vec![]));
        assert_eq!(read(&[("GGML_HSA_DEVICES", "")]).0.devices, Some(vec![]));
    }

    #[rstest]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "1")], true)]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "yes please")], true)]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "off")], true)]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "0")], false)]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "")], false)]
    #[case(&[("GGML_HSA_JIT_CLEAR_CACHE", "1"), ("GGML_HSA_KERNEL_CACHE_CLEAR", "off")], false)]
    fn the_cache_is_cleared_as_the_cpp_backend_does(#[case] pairs: &[(&str, &str)], #[case] expected: bool) {
        let (config, problems) = read(pairs);
        assert_eq!((config.cache_clear, problems), (expected, vec![]));
    }

    #[rstest]
    #[case::as_built(None, false)]
    #[case::set(Some("on"), true)]
    fn a_setting_wins_over_the_build(#[case] value: Option<&str>, #[case] expected: bool) {
        let environment = Environment::from_pairs(value.map(|value| ("GGML_HSA_CPU_FALLBACK", value)));
        let defaults = BuildDefaults::of(None, Some("off"), None);
        assert_eq!(Config::with_defaults(&environment, &defaults).0.cpu_fallback, expected);
    }
}
