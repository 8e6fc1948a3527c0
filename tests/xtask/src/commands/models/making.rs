//! Makes the random models with `tests/models/make_models.py` and the Python package gguf.
//!
//! The models lie in a folder named after the script's content and the packages' versions: others make new ones.

use crate::process::run_helper;
use crate::testbed::Testbed;
use crate::{model, output, python, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const SCRIPT: &str = "make_models.py";

/// The files of `names`, made if they are not there yet.
pub fn ensure(names: &[&str], testbed: &Testbed, offline: bool) -> Result<Vec<PathBuf>> {
    let sources = workspace::root().join("tests/models");
    let folder = testbed.models().join(format!("random-{:016x}", fingerprint(&sources, &python::SCRIPTS.pinned()?)?));
    let place = |name: &&str| folder.join(format!("{name}.gguf"));
    let missing: Vec<&str> = names.iter().copied().filter(|name| model::check(&place(name)).is_err()).collect();
    if !missing.is_empty() {
        let packages = python::scripts(offline)?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let work = tempfile::Builder::new().prefix(".making-").tempdir_in(&folder)?;
        let bar = output::progress(missing.len() as u64)?;
        for name in missing {
            bar.set_message(format!("building the model {name}"));
            let mut command = python::python();
            command.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
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

/// A number that changes with the script or the packages it imports.
fn fingerprint(sources: &Path, packages: &str) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    crate::files::read(&sources.join(SCRIPT))?.hash(&mut hasher);
    packages.hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_follows_script_and_packages() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fingerprint(dir.path(), "a").is_err());
        fs::write(dir.path().join(SCRIPT), "one").unwrap();
        let first = fingerprint(dir.path(), "a").unwrap();
        assert_eq!(first, fingerprint(dir.path(), "a").unwrap());
        assert_ne!(first, fingerprint(dir.path(), "b").unwrap());
        fs::write(dir.path().join(SCRIPT), "two").unwrap();
        assert_ne!(first, fingerprint(dir.path(), "a").unwrap());
    }
}
