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
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// The program the library starts for `GGML_HSA_ISOLATE=1`.
const HELPER: &str = "aie-runtime-host";

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

/// A few tokens of the testbed's model, with operations on the array.
pub fn generates(setup: &Setup, installation: &Installation) -> Result<String> {
    let session = session(setup, installation);
    let model = session.model(None)?;
    let request = Request { model, prompt: "The three states of matter are".to_owned(), tokens: 6, threads: None };
    let file = StatsFile::new()?;
    let text = request.text(session.on_device("llama-completion", Some(&file.path()))?)?;
    let stats = Stats::read(&file.path())?;
    let array = stats.used()?.array();
    if array == 0 {
        bail!("llama.cpp generated {text:?}, and no operation ran on the array");
    }
    Ok(format!("{text:?}, {array} operations on the array"))
}

/// With `GGML_HSA_ISOLATE=1` and an empty search path, the library starts the helper of its own installation.
///
/// The installed helper is put behind a script for the time of this check: like every program here, it needs the testbed's
/// loader to use the testbed's ROCR, and the simulated kernel device. The script leaves a mark.
pub fn finds_helper(setup: &Setup, installation: &Installation) -> Result<String> {
    let session = session(setup, installation);
    let testbed = &session.testbed;
    let preload = library::preload(setup.offline)?;
    let installed = installation.program(HELPER);
    let aside = setup.work.path().join(HELPER);
    fs::copy(&installed, &aside)?;
    let mark = setup.work.path().join("started");
    let words: Vec<String> =
        testbed.line(&aside, Some(&preload)).iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let script = format!("#!/bin/sh\n: > {}\nexec {} \"$@\"\n", quoted(&mark.to_string_lossy()), words.join(" "));
    fs::write(&installed, script)?;
    fs::set_permissions(&installed, fs::Permissions::from_mode(0o755))?;

    let program = testbed.program("llama-completion")?;
    let mut command = testbed.command_with(&program, Some(&preload));
    command.env("GGML_BACKEND_PATH", &session.library).env("GGML_HSA_DEVICES", "xdna:0").env("GGML_HSA_ISOLATE", "1");
    command.env("AIE_HAL_LIBHSA_PATH", testbed.rocr()?).env("AMDXDNA_SIM_DEVICES", "aie2p");
    command.env("PATH", "/nonexistent").env_remove("AIE_HAL_RUNTIME_HOST").arg("--list-devices");
    let finished = process::run(&mut command, LIMIT);
    fs::copy(&aside, &installed)?;
    let finished = finished?;
    if !finished.success() {
        bail!("llama.cpp failed: {}; it said\n{}", finished.describe(), finished.last_words(12));
    }
    let line = listed(&finished.stdout)
        .with_context(|| format!("with the runtime in a helper process; it said\n{}", finished.last_words(12)))?;
    if !mark.exists() {
        bail!("{line}: the device is there, but {} was not started", installed.display());
    }
    Ok(line)
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
