//! Whether two builds give the same bytes: two clones of the last commit in different folders, each with a build of its own.

use super::pack::Packed;
use crate::output::Report;
use crate::process::run_helper;
use crate::session::Options;
use crate::{apt, workspace};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

pub fn run(options: &Options) -> Result<()> {
    let folder = workspace::target().join("package");
    std::fs::create_dir_all(&folder)?;
    let work = tempfile::Builder::new().prefix(".reproducing-").tempdir_in(&folder)?;
    // Of different lengths, so that a path that is built in moves what is behind it.
    let first = build(&work.path().join("first"), options)?;
    let second = build(&work.path().join("elsewhere/the-second"), options)?;
    let same = first.same_as(&second)?;
    let mut report = Report::default();
    report.summary(format!("two builds in different folders: {same}"));
    report.finish("package reproduce", options)
}

/// Clones the checkout into `folder`, and makes the packages there.
fn build(folder: &Path, options: &Options) -> Result<Packed> {
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(workspace::root()).arg(folder);
    run_helper(&mut git, LIMIT).context("cannot clone the checkout")?;
    let output = folder.join("packed");
    let mut command = Command::new(std::env::current_exe()?);
    // Where a command finds the checkout it is for.
    command.env("CARGO_MANIFEST_DIR", folder.join("tests/xtask"));
    command.args(["package", "--output"]).arg(&output).args(options.offline.then_some("--offline"));
    let status = command.stdout(Stdio::null()).status().context("cannot start this program again")?;
    ensure!(status.success(), "`cargo xtask package` failed in {}; its messages are above", folder.display());
    Ok(Packed::named(&output, &apt::architecture()?))
}
