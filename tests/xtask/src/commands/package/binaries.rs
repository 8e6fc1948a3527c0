//! The library and the programs, built and stripped.

use super::crates::Crates;
use crate::build::{self, Built};
use crate::process::run_helper;
use crate::workspace;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Who starts them is the user, but for the worker, which the library starts.
pub const PROGRAMS: [&str; 3] = ["ggml-hsa", "ggml-hsa-gen-kernels", "ggml-hsa-jit-worker"];
/// Those that write their own man pages and completions, and how.
const MANUALS: [(&str, &str); 2] = [("ggml-hsa", "manual"), ("ggml-hsa-gen-kernels", "--manual")];
/// Where sources are as far as the built files know.
const SOURCES: &str = "/usr/src/aie-hal";
const CRATES: &str = "/usr/src/crates";

pub struct Binaries {
    pub library: PathBuf,
    /// In the order of [`PROGRAMS`].
    pub programs: Vec<PathBuf>,
    pub crates: Crates,
}

impl Binaries {
    /// The release build of the other commands.
    pub fn as_built(offline: bool) -> Result<Self> {
        Self::of(&build::cargo(&build::BACKEND, offline)?, Crates::read(offline)?)
    }

    /// A build of its own in which no path of this machine occurs.
    pub fn for_users(offline: bool) -> Result<Self> {
        let crates = Crates::read(offline)?;
        let folder = workspace::target().join("package/build");
        let folder = folder.to_str().context("the checkout's path is not text")?;
        let arguments = [&build::BACKEND[..], &["--locked", "--target-dir", folder]].concat();
        // Encoded, because a path may have blanks.
        let flags = ("CARGO_ENCODED_RUSTFLAGS", remapped(&workspace::root(), crates.folders()));
        let built = build::cargo_with(&arguments, &[(flags.0, flags.1.as_os_str())], offline)?;
        Self::of(&built, crates)
    }

    fn of(built: &Built, crates: Crates) -> Result<Self> {
        let programs = PROGRAMS.iter().map(|name| built.executable("bin", name)).collect::<Result<_>>()?;
        Ok(Self { library: built.shared_library("libggml_hsa.so")?, programs, crates })
    }

    /// Puts the stripped library and programs into these folders.
    pub fn install(&self, library: &Path, programs: &Path) -> Result<()> {
        fs::create_dir_all(library)?;
        fs::create_dir_all(programs)?;
        strip(&self.library, &library.join("libggml-hsa.so"))?;
        PROGRAMS.iter().zip(&self.programs).try_for_each(|(name, file)| strip(file, &programs.join(name)))
    }

    /// Has the programs write their man pages and completions into `folder`.
    pub fn write_manuals(&self, folder: &Path) -> Result<()> {
        for (name, option) in MANUALS {
            let file = PROGRAMS.iter().zip(&self.programs).find(|(program, _)| **program == name);
            let (_, file) = file.with_context(|| format!("{name} is not built"))?;
            run_helper(Command::new(file).arg(option).arg(folder), LIMIT)?;
        }
        Ok(())
    }
}

/// The compiler's options that give sources the same paths on every machine.
fn remapped<'a>(root: &Path, crates: impl Iterator<Item = &'a Path>) -> OsString {
    let option = |from: &Path, to: &str| {
        let mut option = OsString::from("--remap-path-prefix=");
        option.push(from);
        option.push(format!("={to}"));
        option
    };
    let options: Vec<OsString> =
        std::iter::once(option(root, SOURCES)).chain(crates.map(|folder| option(folder, CRATES))).collect();
    options.join(OsStr::new("\x1f"))
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    run_helper(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(to).arg(from), LIMIT)
        .with_context(|| format!("cannot strip {}; strip is part of binutils, as the linker is", from.display()))
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_are_replaced() {
        let flags = remapped(Path::new("/a b"), [Path::new("/c")].into_iter());
        assert_eq!(flags, "--remap-path-prefix=/a b=/usr/src/aie-hal\x1f--remap-path-prefix=/c=/usr/src/crates");
    }
}
