//! Makes the random models with `tests/models/make_models.py` and the Python package gguf.
//!
//! pip puts the package into a folder under `target/`, so that nothing of the machine's Python changes. The models lie
//! in a folder named after the script's content: a changed script makes new ones.

use crate::process::run_helper;
use crate::testbed::Testbed;
use crate::{model, output, python, workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const SCRIPT: &str = "make_models.py";
const REQUIREMENTS: &str = "requirements.txt";

/// The files of `names`, made if they are not there yet.
pub fn ensure(names: &[&str], testbed: &Testbed, offline: bool) -> Result<Vec<PathBuf>> {
    let sources = workspace::root().join("tests/models");
    let folder = testbed.models().join(format!("random-{:016x}", fingerprint(&sources)?));
    let place = |name: &&str| folder.join(format!("{name}.gguf"));
    let missing: Vec<&str> = names.iter().copied().filter(|name| model::check(&place(name)).is_err()).collect();
    if !missing.is_empty() {
        let package = package(&sources, offline)?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let work = tempfile::Builder::new().prefix(".making-").tempdir_in(&folder)?;
        let bar = output::progress(missing.len() as u64)?;
        for name in missing {
            bar.set_message(format!("building the model {name}"));
            let mut command = with_package(&package);
            command.arg(sources.join(SCRIPT)).arg(work.path()).arg(name);
            run_helper(&mut command, LIMIT).with_context(|| format!("cannot build the model {name}"))?;
            let made = work.path().join(format!("{name}.gguf"));
            model::check(&made)?;
            fs::rename(&made, place(&name)).with_context(|| format!("cannot move {name} into place"))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
    }
    Ok(names.iter().map(place).collect())
}

/// A number that changes with the script or the package it asks for.
fn fingerprint(sources: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for name in [SCRIPT, REQUIREMENTS] {
        let path = sources.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The folder with gguf and what it needs, filled by pip if it is not there.
fn package(sources: &Path, offline: bool) -> Result<PathBuf> {
    let requirements = sources.join(REQUIREMENTS);
    let wanted = crate::files::read(&requirements)?.trim().replace("==", "-");
    let place = workspace::target().join("python").join(&wanted);
    let works = |folder: &Path| {
        let imported = with_package(folder).args(["-c", "import gguf"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    if works(&place) {
        return Ok(place);
    }
    if offline {
        bail!("the Python package {wanted} is not in {} and --offline forbids the download", place.display());
    }
    eprintln!("installing the Python package {wanted} into {} ...", place.display());
    let parent = place.parent().context("a folder without a parent")?;
    fs::create_dir_all(parent)?;
    let work = tempfile::Builder::new().prefix(".making-").tempdir_in(parent)?;
    let filled = work.path().join("package");
    let mut pip = python::pip()?;
    pip.args(["install", "--quiet", "--only-binary", ":all:", "--target"]).arg(&filled);
    pip.arg("--requirement").arg(&requirements);
    run_helper(&mut pip, LIMIT).with_context(|| format!("pip could not install {wanted}; try again"))?;
    if !works(&filled) {
        bail!("pip installed {wanted}, but python3 cannot import it: is python3 the one pip belongs to?");
    }
    if place.exists() {
        // A folder that does not work, from another Python or a run broken off.
        fs::rename(&place, work.path().join("old")).with_context(|| format!("cannot replace {}", place.display()))?;
    }
    fs::rename(&filled, &place).with_context(|| format!("cannot put the package at {}", place.display()))?;
    Ok(place)
}

fn with_package(folder: &Path) -> Command {
    let mut command = python::python();
    command.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_follows_both_files() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fingerprint(dir.path()).is_err());
        fs::write(dir.path().join(SCRIPT), "one").unwrap();
        fs::write(dir.path().join(REQUIREMENTS), "gguf==1").unwrap();
        let first = fingerprint(dir.path()).unwrap();
        assert_eq!(first, fingerprint(dir.path()).unwrap());
        fs::write(dir.path().join(REQUIREMENTS), "gguf==2").unwrap();
        assert_ne!(first, fingerprint(dir.path()).unwrap());
    }
}
