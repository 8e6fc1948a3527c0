//! Builds `libggml-hsa.so` and puts it where the README says: `target/lib/libggml-hsa.so`.
//!
//! Cargo cannot name a library with a hyphen, hence the copy.

use crate::workspace;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const PACKAGE: &str = "aie-ggml-bridge";

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

/// Uses the user's library or builds ours in release mode; returns its absolute path.
pub fn locate(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => fs::canonicalize(path)
            .with_context(|| format!("cannot read the library {}; leave out --library to build it", path.display())),
        None => build(),
    }
}

fn build() -> Result<PathBuf> {
    let output = workspace::cargo()
        .args(["build", "--release", "--package", PACKAGE, "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("libggml-hsa.so does not build: `cargo build --release -p {PACKAGE}` says why above");
    }
    let built = shared_object(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("cargo built no shared library of {PACKAGE}"))?;
    let dir = workspace::target().join("lib");
    fs::create_dir_all(&dir)?;
    let path = dir.join("libggml-hsa.so");
    // A running program may have the old file mapped: write beside it and rename.
    let fresh = tempfile::Builder::new().prefix(".libggml-hsa").tempfile_in(&dir)?;
    fs::copy(&built, fresh.path()).with_context(|| format!("cannot copy {}", built.display()))?;
    fresh.persist(&path)?;
    Ok(path)
}

/// The `.so` among cargo's build messages.
fn shared_object(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        .filter(|message| {
            message.target.as_ref().is_some_and(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
        })
        .flat_map(|message| message.filenames)
        .find(|path| path.file_name().is_some_and(|name| name == "libggml_hsa.so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_object_is_found_among_the_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"crate_types":["lib"]},"filenames":["/t/libx.rlib"]}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","target":{"crate_types":["cdylib","rlib"]},"filenames":["/t/libggml_hsa.so","/t/libggml_hsa.rlib"]}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#
        );
        assert_eq!(shared_object(messages).unwrap(), PathBuf::from("/t/libggml_hsa.so"));
        assert_eq!(shared_object("{}"), None);
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        assert!(format!("{:#}", locate(Some(Path::new("/no/lib.so"))).unwrap_err()).contains("/no/lib.so"));
    }
}
