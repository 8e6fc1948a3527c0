//! What is installed from Python's package index: exactly the files that `tests/xtask/requirements` lists.
//!
//! Each of its files names packages, all that they need, and the hashes of their wheels. pip takes a wheel only if it has one of these
//! hashes. A package lies in a folder named after the content of its file, so that a changed file gives a new one.

use super::pip;
use crate::process::run_helper;
use crate::{files, workspace};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
/// Below the checkout.
pub const FOLDER: &str = "tests/xtask/requirements";

/// A file of that folder, by its name without ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirements(pub &'static str);

impl Requirements {
    fn file(self) -> PathBuf {
        workspace::root().join(FOLDER).join(format!("{}.txt", self.0))
    }

    /// A name that changes with the file.
    pub fn pinned(self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        files::read(&self.file())?.hash(&mut hasher);
        Ok(format!("{}-{:016x}", self.0, hasher.finish()))
    }

    /// The folder below `target/python` that holds the packages, made if it is not there or if `works` says no.
    pub fn ensure(self, offline: bool, works: impl Fn(&Path) -> bool) -> Result<PathBuf> {
        let all = workspace::target().join("python");
        let place = all.join(self.pinned()?);
        if works(&place) {
            return Ok(place);
        }
        if offline {
            bail!(
                "{} is not in {}, and --offline forbids the download; run the command once without it",
                self.0,
                place.display()
            );
        }
        let _alone = files::alone(&all)?;
        if works(&place) {
            return Ok(place);
        }
        let work = tempfile::Builder::new().prefix(".making-").tempdir_in(&all)?;
        let made = work.path().join("made");
        self.install(&made)?;
        if !works(&made) {
            bail!(
                "the packages of {} are installed, but do not work here: is python3 the one that pip belongs to, and does it run \
                 on this machine?",
                self.file().display()
            );
        }
        if place.exists() {
            // One that does not work: from another Python, or from a run broken off.
            fs::rename(&place, work.path().join("old"))
                .with_context(|| format!("cannot replace {}", place.display()))?;
        }
        fs::rename(&made, &place).with_context(|| format!("cannot put {} at {}", self.0, place.display()))?;
        Ok(place)
    }

    /// Puts the packages into `folder`.
    pub fn install(self, folder: &Path) -> Result<()> {
        let file = self.file();
        eprintln!("installing {} from Python's package index ...", self.0);
        run_helper(pip()?.args(arguments(&file, folder)), LIMIT).with_context(|| {
            format!(
                "pip could not install what {0} lists; without a network, try again. If the index has other files now, or none for \
                 this Python, renew it with the command in its first line, with the version that you want",
                file.display()
            )
        })?;
        Ok(())
    }
}

/// pip's arguments.
fn arguments(file: &Path, folder: &Path) -> Vec<OsString> {
    // Wheels only: building a source archive would run its code. The file lists all that a package needs.
    let fixed = [
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-compile",
        "--root-user-action",
        "ignore",
    ];
    let mut arguments: Vec<OsString> = fixed.map(OsString::from).into();
    arguments.extend(["--requirement".into(), file.into(), "--target".into(), folder.into()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_is_told_to_check_hashes_and_to_build_nothing() {
        let arguments = arguments(Path::new("a.txt"), Path::new("b"));
        for needed in ["--require-hashes", "--no-deps", "--only-binary", ":all:"] {
            assert!(arguments.iter().any(|argument| argument == needed), "{needed}");
        }
    }

    #[test]
    fn what_is_missing_names_the_next_step() {
        let error = Requirements("typos").ensure(true, |_| false).unwrap_err().to_string();
        assert!(error.contains("typos-") && error.contains("without it"), "{error}");
        let error = Requirements("no-such").ensure(true, |_| true).unwrap_err().to_string();
        assert!(error.contains("no-such.txt"), "{error}");
    }
}
