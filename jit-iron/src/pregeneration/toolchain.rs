//! The IRON toolchain, as far as pregeneration needs it.

use crate::compiler::{CompileError, KernelCompiler};
use std::path::PathBuf;
use std::sync::Arc;

/// What the tool was told about compiling.
#[derive(Debug, Clone)]
pub struct IronOptions {
    /// The folder of the designs; `None` for those of this build.
    pub kernels_dir: Option<PathBuf>,
    /// Compilations at a time.
    pub jobs: usize,
    /// Whether the toolchain's output is shown while it runs.
    pub verbose: bool,
}

/// The compiler that makes code for the array.
///
/// # Errors
/// [`CompileError::Unavailable`] when the IRON environment is not active.
pub fn iron_compiler(options: &IronOptions) -> Result<Arc<dyn KernelCompiler>, CompileError> {
    let designs = match &options.kernels_dir {
        Some(folder) => format!(" for the designs in {}", folder.display()),
        None => String::new(),
    };
    Err(CompileError::Unavailable(format!(
        "Failed to import kernel build module{designs}: the IRON environment is not active; run `source env_setup.sh` in this \
         shell and try again (--dry-run checks a configuration without IRON, --compiler reference makes kernels for simulated \
         devices)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_environment_is_told_with_the_next_step() {
        let options = IronOptions { kernels_dir: Some("designs".into()), jobs: 1, verbose: false };
        let Err(CompileError::Unavailable(message)) = iron_compiler(&options) else { panic!("{options:?}") };
        assert!(message.starts_with("Failed to import kernel build module for the designs in designs: "), "{message}");
        assert!(message.contains("source env_setup.sh"), "{message}");
    }
}
