//! Builds the shared libraries the commands plug into other programs, and puts them into `target/lib`.
//!
//! Cargo cannot name a library with a hyphen, hence the copies: `libggml-hsa.so` is where the README says.

use crate::build::{self, Built};
use crate::workspace;

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// `libggml-hsa.so`, as cargo names it and as everybody else does.
const BACKEND: [&str; 2] = ["libggml_hsa.so", "libggml-hsa.so"];
const PRELOAD: [&str; 2] = ["libamdxdna_preload.so", "libamdxdna-preload.so"];
/// The program that serves the NPU to a virtual machine.
const DEVICE_SERVER: &str = "aie-npu-pci";
/// The program that compiles reference kernels. The library looks for it beside itself.
pub const WORKER: &str = "ggml-hsa-jit-worker";
/// The program that makes kernels ahead of time.
const GENERATOR: &str = "ggml-hsa-gen-kernels";

/// Uses the user's library or builds ours in release mode; returns its absolute path.
pub fn locate(given: Option<&Path>, offline: bool) -> Result<PathBuf> {
    if let Some(path) = given {
        return fs::canonicalize(path)
            .with_context(|| format!("cannot read the library {}; leave out --library to build it", path.display()));
    }
    let built = backend(offline)?;
    place(&built.executable("bin", WORKER)?, WORKER)?;
    place(&built.shared_library(BACKEND[0])?, BACKEND[1])
}

/// cargo's own build folder, with what [`locate`] builds in it.
pub fn build_folder(offline: bool) -> Result<PathBuf> {
    let built = backend(offline)?.shared_library(BACKEND[0])?;
    let folder = built.parent().and_then(Path::parent).map(Path::to_path_buf);
    folder.with_context(|| format!("{} is not in a build folder", built.display()))
}

/// The program that makes kernels ahead of time.
pub fn generator(offline: bool) -> Result<PathBuf> {
    backend(offline)?.executable("bin", GENERATOR)
}

/// Builds the backend with the kernel packs in `packs` built in; returns the path of a file of its own.
pub fn with_kernels(packs: &Path, offline: bool) -> Result<PathBuf> {
    // Its programs would be the same, and are not used.
    let arguments = ["build", "--release", "--package", "aie-ggml-bridge"];
    let built = build::cargo_with(&arguments, &[("GGML_HSA_EMBED_KERNELS", packs.as_os_str())], offline)
        .context("libggml-hsa.so does not build")?;
    place(&built.shared_library(BACKEND[0])?, "libggml-hsa-embedded.so")
}

/// Builds the library and its programs together: alone, each would have its dependencies with other features, and compile all
/// of them again.
fn backend(offline: bool) -> Result<Built> {
    build::cargo(&build::BACKEND, offline).context("libggml-hsa.so does not build")
}

/// Builds the preload library with the simulated NPU behind the kernel interface; returns its absolute path.
pub fn preload(offline: bool) -> Result<PathBuf> {
    let built = simulators(offline).with_context(|| format!("{} does not build", PRELOAD[1]))?;
    place(&built.shared_library(PRELOAD[0])?, PRELOAD[1])
}

/// Builds the program that serves the simulated NPU as a PCI device; returns its absolute path.
pub fn device_server(offline: bool) -> Result<PathBuf> {
    simulators(offline).with_context(|| format!("{DEVICE_SERVER} does not build"))?.executable("bin", DEVICE_SERVER)
}

/// Both simulators.
fn simulators(offline: bool) -> Result<Built> {
    build::cargo(&["build", "--release", "--package", "amdxdna-preload", "--package", "virtual-npu"], offline)
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
