//! Builds the shared libraries the commands plug into other programs, and puts them into `target/lib`.
//!
//! Cargo cannot name a library with a hyphen, hence the copies: `libggml-hsa.so` is where the README says.

use crate::{build, workspace};
use aie_hal::environment::table::GGML_HSA_EMBED_KERNELS;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A package that is built as a shared library.
#[derive(Debug, Clone, Copy)]
struct Package {
    name: &'static str,
    /// The file cargo makes.
    built: &'static str,
    /// The file in `target/lib`.
    placed: &'static str,
}

const BACKEND: Package = Package { name: "aie-ggml-bridge", built: "libggml_hsa.so", placed: "libggml-hsa.so" };
const PRELOAD: Package =
    Package { name: "amdxdna-preload", built: "libamdxdna_preload.so", placed: "libamdxdna-preload.so" };

/// The program that compiles reference kernels.
const WORKER: &str = "ggml-hsa-jit-worker";

/// Uses the user's library or builds ours in release mode; returns its absolute path.
pub fn locate(given: Option<&Path>, offline: bool) -> Result<PathBuf> {
    match given {
        Some(path) => fs::canonicalize(path)
            .with_context(|| format!("cannot read the library {}; leave out --library to build it", path.display())),
        None => {
            make_worker(offline)?;
            make(BACKEND, offline)
        }
    }
}

/// Builds the program that compiles kernels, beside the library, where that looks for it.
fn make_worker(offline: bool) -> Result<()> {
    let arguments = ["build", "--release", "--package", "aie-jit-iron", "--bin", WORKER];
    let built = build::cargo(&arguments, offline).with_context(|| format!("{WORKER} does not build"))?;
    place(&built.executable("bin", WORKER)?, WORKER).map(drop)
}

/// Builds the preload library with the simulated NPU behind the kernel interface; returns its absolute path.
pub fn preload(offline: bool) -> Result<PathBuf> {
    make(PRELOAD, offline)
}

/// Builds the backend with the kernel packs in `packs` built in; returns the path of a file of its own.
pub fn with_kernels(packs: &Path, offline: bool) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--package", BACKEND.name];
    let settings = [(GGML_HSA_EMBED_KERNELS.name(), packs.as_os_str())];
    let built = build::cargo_with(&arguments, &settings, offline)?.shared_library(BACKEND.built)?;
    make_worker(offline)?;
    place(&built, "libggml-hsa-embedded.so")
}

fn make(package: Package, offline: bool) -> Result<PathBuf> {
    let built = build::cargo(&["build", "--release", "--package", package.name], offline)
        .with_context(|| format!("{} does not build", package.placed))?
        .shared_library(package.built)?;
    place(&built, package.placed)
}

/// Copies a built file into `target/lib`.
fn place(built: &Path, name: &str) -> Result<PathBuf> {
    let dir = workspace::target().join("lib");
    fs::create_dir_all(&dir)?;
    let path = dir.join(name);
    // A running program may have the old file mapped: write beside it and rename.
    let fresh = tempfile::Builder::new().prefix(".making-").tempfile_in(&dir)?;
    fs::copy(built, fresh.path()).with_context(|| format!("cannot copy {}", built.display()))?;
    fresh.persist(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        assert!(format!("{:#}", locate(Some(Path::new("/no/lib.so")), true).unwrap_err()).contains("/no/lib.so"));
    }
}
