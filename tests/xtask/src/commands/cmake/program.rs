//! Stock llama.cpp with the installed library.

use super::Setup;
use super::installation::Installation;
use crate::generation::{Request, StatsFile};
use crate::library;
use crate::process::{self, run_helper};
use crate::session::{DEVICE_NAME, Session};
use crate::simulation::quoted;
use crate::stats::Stats;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// The program the library starts for `GGML_HSA_ISOLATE=1`.
const HELPER: &str = "aie-runtime-host";
/// The program the library starts to make reference kernels.
const WORKER: &str = "ggml-hsa-jit-worker";
/// A search path with no program.
const NOWHERE: &str = "/nonexistent";

/// The session with the installed library.
fn session(setup: &Setup, installation: &Installation) -> Session {
    setup.session.with_library(installation.library())
}

/// `--list-devices` shows the simulated device.
pub fn lists_device(setup: &Setup, installation: &Installation) -> Result<String> {
    let mut command = session(setup, installation).on_device("llama-completion", None)?;
    listed(&run_helper(command.arg("--list-devices"), LIMIT)?)
}

/// The line of our device in llama.cpp's list.
fn listed(text: &str) -> Result<String> {
    let line = text.lines().map(str::trim).find(|line| line.starts_with(&format!("{DEVICE_NAME}: ")));
    line.map(str::to_owned).with_context(|| format!("llama.cpp lists no {DEVICE_NAME}:\n{text}"))
}

/// A few tokens of the testbed's model, with operations on the array. Their kernels are compiled by the installed worker: the
/// cache is empty, and so is the search path.
pub fn generates(setup: &Setup, installation: &Installation) -> Result<String> {
    let session = session(setup, installation);
    let detour = Detour::new(setup, installation, WORKER, |program| vec![program.into()])?;
    let model = session.model(None)?;
    let request = Request { model, prompt: "The three states of matter are".to_owned(), tokens: 6, threads: None };
    let file = StatsFile::new()?;
    let mut command = session.on_device("llama-completion", Some(&file.path()))?;
    command.env("GGML_HSA_KERNEL_CACHE_DIR", setup.work.path().join("kernel-cache"));
    command.env("PATH", NOWHERE).env_remove("GGML_HSA_KERNEL_DIR").env_remove("GGML_HSA_JIT_WORKER");
    let text = request.text(command)?;
    let stats = Stats::read(&file.path())?;
    let array = stats.used()?.array();
    if array == 0 {
        bail!("llama.cpp generated {text:?}, and no operation ran on the array");
    }
    detour.taken()?;
    Ok(format!("{text:?}, {array} operations on the array"))
}

/// With `GGML_HSA_ISOLATE=1` and an empty search path, the library starts the helper of its own installation. Like every program
/// here, the helper needs the testbed's loader to use the testbed's ROCR, and the simulated kernel device.
pub fn finds_helper(setup: &Setup, installation: &Installation) -> Result<String> {
    let session = session(setup, installation);
    let testbed = &session.testbed;
    let preload = library::preload(setup.offline)?;
    let detour = Detour::new(setup, installation, HELPER, |program| testbed.line(program, Some(&preload)))?;
    let program = testbed.program("llama-completion")?;
    let mut command = testbed.command_with(&program, Some(&preload));
    command.env("GGML_BACKEND_PATH", &session.library).env("GGML_HSA_DEVICES", "xdna:0").env("GGML_HSA_ISOLATE", "1");
    command.env("AIE_HAL_LIBHSA_PATH", testbed.rocr()?).env("AMDXDNA_SIM_DEVICES", "aie2p");
    session.kernels(&mut command);
    command.env("PATH", NOWHERE).env_remove("AIE_HAL_RUNTIME_HOST").arg("--list-devices");
    let finished = process::run(&mut command, LIMIT)?;
    if !finished.success() {
        bail!("llama.cpp failed: {}; it said\n{}", finished.describe(), finished.last_words(12));
    }
    let line = listed(&finished.stdout)
        .with_context(|| format!("with the runtime in a helper process; it said\n{}", finished.last_words(12)))?;
    detour.taken()?;
    Ok(line)
}

/// An installed program behind a script that leaves a mark: whether it was started is seen. The program is put back in the end.
struct Detour {
    installed: PathBuf,
    aside: PathBuf,
    mark: PathBuf,
}

impl Detour {
    /// `line` makes the words that start the program from the path it has meanwhile.
    fn new(
        setup: &Setup,
        installation: &Installation,
        name: &str,
        line: impl FnOnce(&Path) -> Vec<OsString>,
    ) -> Result<Self> {
        let installed = installation.program(name);
        let aside = setup.work.path().join(name);
        let mark = setup.work.path().join(format!("{name}.started"));
        fs::copy(&installed, &aside).with_context(|| format!("cannot copy {}", installed.display()))?;
        let words: Vec<String> = line(&aside).iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let script = format!("#!/bin/sh\n: > {}\nexec {} \"$@\"\n", quoted(&mark.to_string_lossy()), words.join(" "));
        let detour = Self { installed, aside, mark };
        fs::write(&detour.installed, script)?;
        fs::set_permissions(&detour.installed, fs::Permissions::from_mode(0o755))?;
        Ok(detour)
    }

    /// Errors unless the program was started.
    fn taken(&self) -> Result<()> {
        if !self.mark.exists() {
            bail!("{} was not started", self.installed.display());
        }
        Ok(())
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        // The installation is of this run, and what remains of it is looked at by people only.
        let _ = fs::copy(&self.aside, &self.installed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_device_is_found() {
        let text = "Available devices:\n  CPU: x\n  HSA0: Simulated NPU (aie2p)\n";
        assert_eq!(listed(text).unwrap(), "HSA0: Simulated NPU (aie2p)");
        assert!(listed("Available devices:\n  HSA: HSA0:\n").is_err());
    }
}
