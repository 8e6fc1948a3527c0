//! Defaults that a build of the library may change: what a CMake option of the C++ backend becomes here.
//!
//! They are variables of the build (`GGML_HSA_DEFAULT_JIT=off cargo build ...`), and the settings of the same name without
//! `DEFAULT_` win over them when the library runs. There is no cargo feature for them: nothing is left out of the library, so
//! that one binary serves all users. An invalid value ends the build.

use super::compiler_output::CompilerOutput;
use aie_hal::environment::switch;
use aie_jit_iron::JitPolicy;

const JIT: Option<&str> = option_env!("GGML_HSA_DEFAULT_JIT");
const CPU_FALLBACK: Option<&str> = option_env!("GGML_HSA_DEFAULT_CPU_FALLBACK");
const JIT_STDOUT_REDIRECT: Option<&str> = option_env!("GGML_HSA_DEFAULT_JIT_STDOUT_REDIRECT");

/// Ends the build when a default is invalid, which would have no visible effect. An empty one counts as not set.
const _: () = {
    if let Some(text) = JIT
        && !text.is_empty()
        && JitPolicy::parse(text).is_none()
    {
        panic!("GGML_HSA_DEFAULT_JIT: the value is not valid; possible: eager, background, off; or unset it");
    }
    if let Some(text) = CPU_FALLBACK
        && !text.is_empty()
        && switch(text).is_none()
    {
        panic!("GGML_HSA_DEFAULT_CPU_FALLBACK: the value is not valid; possible: on, off; or unset it");
    }
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuildDefaults {
    /// When kernels are compiled.
    pub policy: JitPolicy,
    /// Whether operations without a kernel run on the host inside the backend.
    pub cpu_fallback: bool,
    /// Where compilers' output goes.
    pub output: CompilerOutput,
}

impl BuildDefaults {
    /// Those of this build.
    pub fn this() -> Self {
        Self::of(JIT, CPU_FALLBACK, JIT_STDOUT_REDIRECT)
    }

    /// Those of a build with these variables.
    pub fn of(policy: Option<&str>, cpu_fallback: Option<&str>, output: Option<&str>) -> Self {
        Self {
            policy: policy.and_then(JitPolicy::parse).unwrap_or_default(),
            cpu_fallback: cpu_fallback.and_then(switch).unwrap_or(true),
            output: output.map(CompilerOutput::parse).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_build_without_variables_has_the_documented_defaults() {
        let expected = BuildDefaults { policy: JitPolicy::Eager, cpu_fallback: true, output: CompilerOutput::Log };
        assert_eq!(BuildDefaults::of(None, None, None), expected);
        // As the build system passes an option that was not set.
        assert_eq!(BuildDefaults::of(Some(""), Some(""), Some("")), expected);
    }

    #[test]
    fn variables_of_the_build_change_them() {
        let expected =
            BuildDefaults { policy: JitPolicy::Off, cpu_fallback: false, output: CompilerOutput::File("x.log".into()) };
        assert_eq!(BuildDefaults::of(Some("off"), Some("OFF"), Some("x.log")), expected);
    }
}
