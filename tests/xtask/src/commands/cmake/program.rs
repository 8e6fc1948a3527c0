//! Stock llama.cpp with the installed library.

use super::Setup;
use super::installation::Installation;
use crate::generation::Request;
use crate::process::run_helper;
use crate::session::{DEVICE_NAME, Session};
use crate::simulation::quoted;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// The program the library starts to make reference kernels.
const WORKER: &str = "ggml-hsa-jit-worker";
/// A search path with no program.
const NOWHERE: &str = "/nonexistent";

fn session(setup: &Setup, installation: &Installation) -> Session {
    setup.session.with(&installation.library(), &setup.session.device)
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
    let detour = Detour::new(setup, installation, WORKER)?;
    let model = session.model(None)?;
    let request = Request {
        model,
        prompt: "The three states of matter are".to_owned(),
        tokens: 6,
        threads: None,
        flash_attention: false,
    };
    let run = request.on_device(&session, |command| {
        command.env("GGML_HSA_KERNEL_CACHE_DIR", setup.work.path().join("kernel-cache"));
        command.env("PATH", NOWHERE).env_remove("GGML_HSA_KERNEL_DIR").env_remove("GGML_HSA_JIT_WORKER");
    })?;
    let (text, array) = (request.text_in(&run.finished)?, run.device()?.array());
    if array == 0 {
        bail!("llama.cpp generated {text:?}, and no operation ran on the array");
    }
    detour.taken()?;
    Ok(format!("{text:?}, {array} operations on the array"))
}

/// An installed program behind a script that leaves a mark: whether it was started is seen. The program is put back in the end.
struct Detour {
    installed: PathBuf,
    aside: PathBuf,
    mark: PathBuf,
}

impl Detour {
    fn new(setup: &Setup, installation: &Installation, name: &str) -> Result<Self> {
        let installed = installation.program(name);
        let aside = setup.work.path().join(name);
        let mark = setup.work.path().join(format!("{name}.started"));
        fs::copy(&installed, &aside).with_context(|| format!("cannot copy {}", installed.display()))?;
        let [mark_word, program] = [&mark, &aside].map(|path| quoted(&path.to_string_lossy()));
        let script = format!("#!/bin/sh\n: > {mark_word}\nexec {program} \"$@\"\n");
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
