//! Building packages of the workspace with cargo, and finding the files it made.

use crate::workspace;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;

#[derive(Debug)]
pub struct Built(Vec<Message>);

#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    crate_types: Vec<String>,
}

/// Runs cargo with `arguments` (`build ...` or `test --no-run ...`); its messages for people go to standard error.
pub fn cargo(arguments: &[&str], offline: bool) -> Result<Built> {
    cargo_with(arguments, &[], offline)
}

/// The same with settings of the build in the environment.
pub fn cargo_with(arguments: &[&str], settings: &[(&str, &OsStr)], offline: bool) -> Result<Built> {
    let mut command = workspace::cargo();
    command.envs(settings.iter().copied());
    command.args(arguments).args(["--message-format", "json-render-diagnostics"]);
    if offline {
        command.env("CARGO_NET_OFFLINE", "true");
    }
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed; its messages are above", arguments.join(" "));
    }
    Ok(Built::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The arguments of cargo that build the backend and its programs. What this and other builds share is compiled once only as long as
/// they agree in its features, for which the workspace's `Cargo.toml` has those of all.
pub const BACKEND: [&str; 8] =
    ["build", "--release", "--package", "aie-ggml-bridge", "--package", "aie-jit-iron", "--package", "aie-ggml-cli"];

/// Builds the program of a package that has one, in release mode.
pub fn program(package: &str, offline: bool) -> Result<PathBuf> {
    cargo(&[&BACKEND[..], &["--package", package]].concat(), offline)?.executable("bin", package)
}

/// Builds the program of a package that has one as the workspace's tests are built, with the features of all of them: what it needs is
/// compiled once. For programs whose speed does not matter.
pub fn development_program(package: &str, offline: bool) -> Result<PathBuf> {
    cargo(&["build", "--workspace", "--bin", package], offline)?.executable("bin", package)
}

/// Builds the conformance suite for a driver, with the features of the whole workspace, as its tests have them.
pub fn conformance(driver: &str, offline: bool) -> Result<PathBuf> {
    let arguments = ["test", "--workspace", "--test", driver, "--no-run"];
    cargo(&arguments, offline)?.executable("test", driver)
}

impl Built {
    fn parse(messages: &str) -> Self {
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        Self(messages.filter(|message| message.reason == "compiler-artifact").collect())
    }

    pub fn shared_library(&self, file: &str) -> Result<PathBuf> {
        self.targets(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
            .flat_map(|message| &message.filenames)
            .find(|path| path.file_name().is_some_and(|name| name == file))
            .cloned()
            .with_context(|| format!("cargo built no {file}"))
    }

    /// The program of this kind (`test`, `example`, `bin`) and name.
    pub fn executable(&self, kind: &str, name: &str) -> Result<PathBuf> {
        self.targets(|target| target.name == name && target.kind.iter().any(|found| found == kind))
            .find_map(|message| message.executable.clone())
            .with_context(|| format!("cargo built no {kind} {name}"))
    }

    fn targets(&self, wanted: impl Fn(&Target) -> bool) -> impl Iterator<Item = &Message> {
        self.0.iter().filter(move |message| message.target.as_ref().is_some_and(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = concat!(
        r#"{"reason":"compiler-artifact","target":{"name":"x","kind":["lib"],"crate_types":["lib"]},"filenames":["/t/libx.rlib"]}"#,
        "\nnot json\n",
        r#"{"reason":"compiler-artifact","target":{"name":"y","kind":["cdylib"],"crate_types":["cdylib","rlib"]},"#,
        r#""filenames":["/t/liby.so","/t/liby.rlib"]}"#,
        "\n",
        r#"{"reason":"compiler-artifact","target":{"name":"y","kind":["test"],"crate_types":["bin"]},"#,
        r#""filenames":["/t/y-1"],"executable":"/t/y-1"}"#,
        "\n",
        r#"{"reason":"build-finished","success":true}"#
    );

    #[test]
    fn files_are_found_among_the_messages() {
        let built = Built::parse(MESSAGES);
        assert_eq!(built.shared_library("liby.so").unwrap(), PathBuf::from("/t/liby.so"));
        assert_eq!(built.executable("test", "y").unwrap(), PathBuf::from("/t/y-1"));
    }

    #[test]
    fn a_file_that_was_not_built_is_named() {
        let built = Built::parse(MESSAGES);
        assert!(built.shared_library("libx.so").unwrap_err().to_string().contains("libx.so"));
        assert!(built.executable("example", "y").unwrap_err().to_string().contains("example y"));
    }
}
