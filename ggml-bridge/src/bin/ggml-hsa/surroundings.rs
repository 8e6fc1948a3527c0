//! The variables that make a stock program of llama.cpp load the library, for `ggml-hsa env` and `ggml-hsa run`.

use crate::library;
use aie_driver_xdna::route::Route;
use aie_hal::{ArchRegistry, DeviceUri, DriverError};
use clap::Args;
use ggml_hsa::drivers;
use ggml_hsa::settings::{GGML_BACKEND_PATH, GGML_HSA_DEVICES};
use std::ffi::OsString;
use std::path::PathBuf;

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

impl Choice {
    /// The variables with their values.
    ///
    /// # Errors
    /// The library is not found, or a device's URI has no meaning to it.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, String> {
        let program = std::env::current_exe().ok();
        let folder = program.as_deref().and_then(|program| program.parent());
        let library = library::find(self.library.as_deref(), folder).map_err(|cause| cause.to_string())?;
        let mut variables = vec![(GGML_BACKEND_PATH.name, library.into_os_string())];
        if !self.device.is_empty() {
            self.device.iter().try_for_each(|uri| check(uri)).map_err(|cause| format!("--device: {cause}"))?;
            // A semicolon cannot be part of a URI.
            variables.push((GGML_HSA_DEVICES.name, self.device.join(";").into()));
        }
        Ok(variables)
    }
}

/// Whether `uri` is one, of a driver in this build. Whether there is such a device shows when it is opened.
fn check(uri: &str) -> Result<(), DriverError> {
    let scheme = DeviceUri::parse(uri)?.scheme().to_owned();
    drivers::registry(ArchRegistry::builtin(), Route::default(), false).driver(&scheme, uri).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_checked_and_joined() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libggml-hsa.so");
        std::fs::write(&library, "").unwrap();
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
        assert!(choice(&["no uri"]).variables().unwrap_err().contains("invalid device URI"));
    }
}
