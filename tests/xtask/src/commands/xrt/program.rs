//! A compiled program under AMD's XRT on the simulated kernel device: its container as it is, its buffers from files.

use crate::process;
use crate::testbed::Testbed;
use crate::workspace;
use anyhow::{Context, Result};
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program that uses XRT's Python module, from the root of the checkout.
const JUDGE: &str = "tests/xrt/program.py";

/// The words that start it on a simulated NPU, but for its job.
pub fn line(testbed: &Testbed, preload: &Path) -> Result<Vec<OsString>> {
    let mut line = testbed.line(&testbed.xrt("python3")?, Some(preload));
    line.push(workspace::root().join(JUDGE).into());
    Ok(line)
}

/// What is run, as the judge reads it.
#[derive(Debug, Serialize)]
pub struct Job {
    pub xclbin: PathBuf,
    pub instructions: PathBuf,
    /// In the order of the kernel's.
    pub arguments: Vec<Argument>,
}

/// A buffer: the file with its bytes before the run, and that which gets them afterwards.
#[derive(Debug, Serialize)]
pub struct Argument {
    pub before: PathBuf,
    pub after: PathBuf,
}

impl Job {
    /// Runs it on a simulated NPU of `generation` within `limit`; `folder` gets the job's own file.
    pub fn run(
        &self,
        testbed: &Testbed,
        preload: &Path,
        generation: &str,
        folder: &Path,
        limit: Duration,
    ) -> Result<()> {
        let file = folder.join("program.json");
        fs::write(&file, serde_json::to_vec(self)?).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = testbed.command_with(&testbed.xrt("python3")?, Some(preload));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("AMDXDNA_SIM_DEVICES", generation);
        process::run(command.arg(workspace::root().join(JUDGE)).arg(&file), limit)?.ensure(JUDGE)
    }
}
