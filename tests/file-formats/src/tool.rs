//! A program of AMD's.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Tool {
    /// The words that start it: a dynamic loader with its options, or none.
    pub loader: Vec<OsString>,
    pub program: PathBuf,
}

impl Tool {
    /// What it prints in the folder `work`. It has to succeed; what it prints on standard error becomes the error.
    pub fn run<A: AsRef<OsStr>>(&self, work: &Path, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        let name = self.program.display();
        let mut words = self.loader.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        let output = command.args(words).args(arguments).current_dir(work).output();
        let output = output.with_context(|| format!("cannot start {name}"))?;
        if !output.status.success() {
            bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
