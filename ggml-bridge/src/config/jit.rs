//! How kernels are compiled while llama.cpp runs.

use super::build_defaults::BuildDefaults;
use super::compiler_output::CompilerOutput;
use super::compilers::CompilerName;
use crate::settings::{GGML_HSA_COMPILERS, GGML_HSA_JIT_STDOUT_REDIRECT, GGML_HSA_JIT_VERBOSE};
use aie_hal::environment::{Problem, Reader};
use aie_jit_iron::settings::{
    GGML_HSA_IRON_DIR, GGML_HSA_JIT, GGML_HSA_JIT_COMPILE, GGML_HSA_JIT_MEMORY_MAX, GGML_HSA_JIT_PYTHON,
    GGML_HSA_JIT_TIMEOUT, GGML_HSA_JIT_WORKER, GGML_HSA_JIT_WORKERS,
};
use aie_jit_iron::{JitPolicy, WorkerLimits};
use std::path::PathBuf;
use std::time::Duration;

/// The longest that can be set: a week. Points in time this far away can always be computed.
const LONGEST_TIME_LIMIT: u64 = 7 * 24 * 3600;
/// The most workers that can be set.
const MOST_WORKERS: usize = 256;

/// The settings of just-in-time compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitConfig {
    /// The compilers to ask, in this order; `None` for those of the device.
    pub compilers: Option<Vec<CompilerName>>,
    /// When kernels are compiled.
    pub policy: JitPolicy,
    /// Whether the compilers' output is shown.
    pub verbose: bool,
    /// Where it is shown.
    pub output: CompilerOutput,
    /// Of workers. Without any, reference kernels are compiled in this process; time and memory are never zero.
    pub limits: WorkerLimits,
    /// The worker's executable, when it is not to be searched for.
    pub worker: Option<PathBuf>,
    /// The Python of the IRON environment, when it is not the one on `PATH`.
    pub python: Option<PathBuf>,
    /// The folder with `worker.py` and `kernels/`, when it is not the installed one.
    pub iron_directory: Option<PathBuf>,
}

impl JitConfig {
    pub(super) fn read(reader: &mut Reader<'_>, defaults: &BuildDefaults) -> Self {
        let default = WorkerLimits::default();
        let time = reader.number(&GGML_HSA_JIT_TIMEOUT, 1..=LONGEST_TIME_LIMIT).map(Duration::from_secs);
        let limits = WorkerLimits {
            time: time.unwrap_or(default.time),
            memory_bytes: reader.bytes(&GGML_HSA_JIT_MEMORY_MAX, 1).unwrap_or(default.memory_bytes),
            workers: reader.number(&GGML_HSA_JIT_WORKERS, 0..=MOST_WORKERS).unwrap_or(default.workers),
            ..default
        };
        Self {
            compilers: reader.value(&GGML_HSA_COMPILERS, CompilerName::parse_list),
            policy: policy(reader, defaults.policy),
            verbose: reader.switch(&GGML_HSA_JIT_VERBOSE).unwrap_or(false),
            output: reader
                .environment
                .path(&GGML_HSA_JIT_STDOUT_REDIRECT)
                .map_or_else(|| defaults.output.clone(), CompilerOutput::from_setting),
            limits,
            worker: reader.environment.path(&GGML_HSA_JIT_WORKER),
            python: reader.environment.path(&GGML_HSA_JIT_PYTHON),
            iron_directory: reader.environment.path(&GGML_HSA_IRON_DIR),
        }
    }
}

/// `GGML_HSA_JIT_COMPILE` is the C++ backend's name for what `GGML_HSA_JIT` says more exactly.
fn policy(reader: &mut Reader<'_>, default: JitPolicy) -> JitPolicy {
    let asked = reader.value(&GGML_HSA_JIT, JitPolicy::parse);
    match (asked, reader.switch(&GGML_HSA_JIT_COMPILE)) {
        (Some(JitPolicy::Eager | JitPolicy::Background), Some(false)) => {
            let text = format!(
                "{GGML_HSA_JIT_COMPILE} is off and {GGML_HSA_JIT} asks for kernels to be compiled; nothing is compiled; \
                 unset one of them"
            );
            reader.problems.push(Problem { variable: GGML_HSA_JIT_COMPILE.name, text });
            JitPolicy::Off
        }
        (_, Some(false)) => JitPolicy::Off,
        (Some(policy), _) => policy,
        // Asked for in a library that was built to be without.
        (None, Some(true)) if default == JitPolicy::Off => JitPolicy::Eager,
        (None, _) => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::Environment;
    use rstest::rstest;

    fn read(pairs: &[(&str, &str)], default: JitPolicy) -> (JitConfig, Vec<Problem>) {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let mut reader = Reader::new(&environment);
        let defaults = BuildDefaults { policy: default, cpu_fallback: true, output: CompilerOutput::StandardError };
        (JitConfig::read(&mut reader, &defaults), reader.problems)
    }

    #[rstest]
    #[case::neither(&[], JitPolicy::Eager, JitPolicy::Eager, 0)]
    #[case::built_off(&[], JitPolicy::Off, JitPolicy::Off, 0)]
    #[case::asked(&[("GGML_HSA_JIT", "background")], JitPolicy::Eager, JitPolicy::Background, 0)]
    #[case::asked_though_built_off(&[("GGML_HSA_JIT", "background")], JitPolicy::Off, JitPolicy::Background, 0)]
    #[case::switched_off(&[("GGML_HSA_JIT_COMPILE", "OFF")], JitPolicy::Eager, JitPolicy::Off, 0)]
    #[case::switched_on(&[("GGML_HSA_JIT_COMPILE", "ON")], JitPolicy::Background, JitPolicy::Background, 0)]
    #[case::switched_on_though_built_off(&[("GGML_HSA_JIT_COMPILE", "1")], JitPolicy::Off, JitPolicy::Eager, 0)]
    #[case::off_twice(&[("GGML_HSA_JIT", "off"), ("GGML_HSA_JIT_COMPILE", "0")], JitPolicy::Eager, JitPolicy::Off, 0)]
    #[case::off_wins(&[("GGML_HSA_JIT", "off"), ("GGML_HSA_JIT_COMPILE", "1")], JitPolicy::Eager, JitPolicy::Off, 0)]
    #[case::against_each_other(
        &[("GGML_HSA_JIT", "eager"), ("GGML_HSA_JIT_COMPILE", "no")], JitPolicy::Eager, JitPolicy::Off, 1
    )]
    #[case::nonsense(&[("GGML_HSA_JIT", "lazy")], JitPolicy::Background, JitPolicy::Background, 1)]
    fn the_policy(
        #[case] pairs: &[(&str, &str)],
        #[case] default: JitPolicy,
        #[case] expected: JitPolicy,
        #[case] problems: usize,
    ) {
        let (jit, logged) = read(pairs, default);
        assert_eq!((jit.policy, logged.len()), (expected, problems), "{logged:?}");
    }

    #[test]
    fn without_settings_there_are_limits() {
        let (jit, problems) = read(&[], JitPolicy::Eager);
        let expected = JitConfig {
            compilers: None,
            policy: JitPolicy::Eager,
            verbose: false,
            output: CompilerOutput::StandardError,
            limits: WorkerLimits::default(),
            worker: None,
            python: None,
            iron_directory: None,
        };
        assert_eq!((jit, problems), (expected, vec![]));
    }

    #[test]
    fn every_setting_is_read() {
        let (jit, problems) = read(
            &[
                ("GGML_HSA_JIT", "background"),
                ("GGML_HSA_JIT_VERBOSE", "yes"),
                ("GGML_HSA_JIT_STDOUT_REDIRECT", "/var/jit.log"),
                ("GGML_HSA_JIT_TIMEOUT", "604800"),
                ("GGML_HSA_JIT_MEMORY_MAX", "3G"),
                ("GGML_HSA_JIT_WORKERS", "0"),
                ("GGML_HSA_JIT_WORKER", "/bin/worker"),
                ("GGML_HSA_JIT_PYTHON", "/iron/bin/python3"),
                ("GGML_HSA_IRON_DIR", "/iron"),
            ],
            JitPolicy::Eager,
        );
        let time = Duration::from_secs(604_800);
        let limits = WorkerLimits { time, memory_bytes: 3 << 30, workers: 0, ..WorkerLimits::default() };
        let expected = JitConfig {
            compilers: None,
            policy: JitPolicy::Background,
            verbose: true,
            output: CompilerOutput::File("/var/jit.log".into()),
            limits,
            worker: Some("/bin/worker".into()),
            python: Some("/iron/bin/python3".into()),
            iron_directory: Some("/iron".into()),
        };
        assert_eq!((jit, problems), (expected, vec![]));
    }

    #[rstest]
    #[case("GGML_HSA_JIT_TIMEOUT", &["0", "-1", "5m", "604801", "18446744073709551616"])]
    #[case("GGML_HSA_JIT_MEMORY_MAX", &["0", "0G", "much", "1.5G"])]
    #[case("GGML_HSA_JIT_WORKERS", &["-1", "257", "all", "99999999999999999999"])]
    #[case("GGML_HSA_JIT_VERBOSE", &["loud", "2"])]
    fn what_is_no_value_is_reported_and_leaves_the_default(#[case] name: &str, #[case] values: &[&str]) {
        let (default, _) = read(&[], JitPolicy::Eager);
        for value in values {
            let (jit, problems) = read(&[(name, value)], JitPolicy::Eager);
            assert_eq!(jit, default, "{value}");
            let [problem] = &problems[..] else { panic!("{value}: {problems:?}") };
            assert!(problem.text.starts_with(&format!("{name}: `{value}` is not valid; possible: ")), "{problem}");
            assert!(problem.text.contains("; possible: ") && problem.text.ends_with("; it is ignored"), "{problem}");
        }
    }
}
