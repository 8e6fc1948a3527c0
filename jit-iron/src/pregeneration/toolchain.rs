//! The IRON toolchain, as far as pregeneration needs it.

use crate::iron::{self, IronPlaces};
use crate::settings::{GGML_HSA_IRON_DIR, GGML_HSA_JIT_PYTHON};
use crate::worker::WorkerLimits;
use aie_hal::Environment;
use aie_ops::compiler::{CompileError, KernelCompiler};
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The compiler that makes code for the array, of `jobs` kernels at a time, with one worker started. The designs' worker is in
/// the folder that `GGML_HSA_IRON_DIR` names, else where [`iron::of_program`] finds it; the designs are in `kernels`, else
/// beside it. With `verbose` the toolchain's output is shown while it runs.
///
/// # Errors
/// [`CompileError::Unavailable`] when IRON is not installed or its environment is not active.
pub fn iron_compiler(
    kernels: Option<PathBuf>,
    jobs: usize,
    verbose: bool,
    environment: &Environment,
    image: Option<&Path>,
) -> Result<Arc<dyn KernelCompiler>, CompileError> {
    let unavailable = |reason: String| {
        CompileError::Unavailable(format!(
            "{reason} (--dry-run checks a configuration without IRON, --compiler reference generates kernels for simulated devices)"
        ))
    };
    let found = image.and_then(iron::of_program);
    let Some(directory) = environment.path(&GGML_HSA_IRON_DIR).or(found) else {
        return Err(unavailable(format!(
            "{GGML_HSA_IRON_DIR} is not set, and the installation folder of this program is unknown"
        )));
    };
    let python = environment.path(&GGML_HSA_JIT_PYTHON);
    let places = IronPlaces { directory, kernels, python };
    let builder = places.compiler().map_err(|error| unavailable(error.to_string()))?;
    let builder = builder.limits(WorkerLimits { workers: jobs, ..WorkerLimits::default() });
    let compiler = if verbose { builder.verbose(|_, bytes| drop(stderr().write_all(bytes))) } else { builder };
    compiler.start().map_err(|error| unavailable(error.to_string()))?;
    Ok(Arc::new(compiler))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn rejection(environment: &Environment, image: Option<&Path>) -> String {
        match iron_compiler(None, 1, false, environment, image) {
            Err(CompileError::Unavailable(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_installation_without_designs_is_reported() {
        let message = rejection(&Environment::default(), None);
        assert!(message.starts_with("GGML_HSA_IRON_DIR is not set") && message.contains("--dry-run"), "{message}");
        let message = rejection(&Environment::default(), Some(Path::new("/no/bin/tool")));
        assert!(message.contains("/no/share/ggml-hsa/iron: there is no worker.py"), "{message}");
    }

    #[test]
    fn the_sources_are_found_from_a_build_and_an_installation_goes_before() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("build/bin/tool");
        let [installed, sources] =
            ["build/share/ggml-hsa/iron", "jit-iron/iron"].map(|folder| root.path().join(folder));
        assert_eq!(iron::of_program(&program), iron::installed(&program));
        for folder in [&sources, &installed] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("worker.py"), "").unwrap();
            assert_eq!(iron::of_program(&program).as_ref(), Some(folder));
        }
    }

    /// What a Python without IRON says, word for word as the C++ backend's tool, and the next step.
    #[test]
    fn a_missing_environment_is_reported_with_the_next_step() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("worker.py"), "").unwrap();
        let python = root.path().join("python");
        let said = "Failed to import kernel build module: No module named 'numpy'";
        fs::write(&python, format!("#!/bin/sh\ncat <<'END'\n{{\"unavailable\":\"{said}\"}}\nEND\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let environment = Environment::from_pairs([
            (GGML_HSA_IRON_DIR.name, root.path().to_str().unwrap()),
            (GGML_HSA_JIT_PYTHON.name, python.to_str().unwrap()),
        ]);
        let message = rejection(&environment, None);
        assert!(message.starts_with(said) && message.contains("source env_setup.sh"), "{message}");
    }
}
