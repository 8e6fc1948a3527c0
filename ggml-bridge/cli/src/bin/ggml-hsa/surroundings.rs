//! What surrounds a command: the settings, the generations, and the variables that make a stock program of llama.cpp load the library.

use crate::library;
use aie_hal::{ArchRegistry, Environment};
use clap::Args;
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::settings::{GGML_BACKEND_PATH, GGML_HSA_DEVICES};
use ggml_hsa_cli::output::complain;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What is chosen on the command line.
#[derive(Debug, Args)]
pub struct Choice {
    /// A device to offer, as `ggml-hsa devices` lists them; may be repeated [default: GGML_HSA_DEVICES if it is set, else the
    /// real NPUs that can be used]
    #[arg(long, value_name = "URI")]
    device: Vec<String>,
    /// libggml-hsa.so, or a folder that has it [default: beside this program, else in ../lib or up to three folders below]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// The generations that are known; what is wrong with the user's own is said.
pub fn arches() -> ArchRegistry {
    let (arches, problems) = ArchRegistry::from_environment();
    problems.iter().for_each(complain);
    arches
}

/// The settings, for a command that looks, and so empties no cache; what is wrong with them is said.
pub fn config(environment: &Environment) -> Config {
    let (config, problems) = Config::read(environment);
    problems.iter().for_each(complain);
    Config { cache_clear: false, ..config }
}

/// The variable that makes ggml load the library: `given`, or the one that belongs to this program.
///
/// # Errors
/// It is not found, or cannot be loaded.
pub fn backend(given: Option<&Path>) -> Result<(&'static str, OsString), String> {
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(|program| program.parent());
    let library = library::find(given, folder).map_err(|cause| cause.to_string())?;
    match library::defect(&library) {
        None => Ok((GGML_BACKEND_PATH.name, library.into_os_string())),
        Some(defect) => Err(format!(
            "{} cannot be loaded: {defect}; name libggml-hsa.so with --library FILE, or install it again",
            library.display()
        )),
    }
}

impl Choice {
    /// The variables with their values.
    ///
    /// # Errors
    /// The library is not found, or a device's URI has no meaning to it.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, String> {
        let mut variables = vec![backend(self.library.as_deref())?];
        if !self.device.is_empty() {
            let arches = arches();
            for uri in &self.device {
                // It separates URIs in the variable.
                if uri.contains(';') {
                    return Err(format!("--device: `{uri}` has a semicolon; repeat --device for a second device"));
                }
                drivers::check(uri, &arches).map_err(|cause| format!("--device: {cause}"))?;
            }
            variables.push((GGML_HSA_DEVICES.name, self.device.join(";").into()));
        }
        Ok(variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_checked_and_joined() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libggml-hsa.so");
        std::fs::write(&library, library::tests::elf("ggml_backend_init\0")).unwrap();
        let choice = |uris: &[&str]| Choice {
            device: uris.iter().map(|uri| (*uri).to_owned()).collect(),
            library: Some(library.clone()),
        };
        let expected = vec![
            ("GGML_BACKEND_PATH", library.clone().into_os_string()),
            ("GGML_HSA_DEVICES", "mock:aie2;xdna://0,1".into()),
        ];
        assert_eq!(choice(&["mock:aie2", "xdna://0,1"]).variables(), Ok(expected));
        assert_eq!(choice(&[]).variables().unwrap().len(), 1);
        let message = choice(&["bogus:0"]).variables().unwrap_err();
        assert!(
            message.starts_with("--device: ") && message.contains("available in this build: [xdna, mock]"),
            "{message}"
        );
        for (uri, expected) in [
            ("no uri", "invalid device URI"),
            ("mock:aie9", "there is no arch file for `aie9`"),
            ("mock:aie2?speed=9", "unknown; `mock` takes: devices"),
            ("mock:aie2?;", "has a semicolon; repeat --device"),
            ("xdna:banana", "`banana` is no name of an NPU"),
            ("xdna://0,", "a comma without an NPU on both sides"),
        ] {
            let message = choice(&[uri]).variables().unwrap_err();
            assert!(message.starts_with("--device: ") && message.contains(expected), "{message}");
        }
        std::fs::write(&library, "no library, but a text of some length").unwrap();
        let message = choice(&[]).variables().unwrap_err();
        assert!(message.contains("it does not begin as ELF files do") && message.contains("--library"), "{message}");
    }
}
