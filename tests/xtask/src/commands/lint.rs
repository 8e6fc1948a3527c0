//! `cargo xtask lint`: the dependencies and the spelling, judged by the tools every Rust project uses for them, and commit subjects.
//!
//! Advisories are left to the hosted workflow: they need a clone of the RustSec database, and a new advisory is not a fault of
//! the commit that happens to be tested.

mod commits;

use crate::session::Options;
use crate::{tools, workspace};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::process::Command;

/// Check the dependencies (licences, duplicates, sources), the spelling or the commit subjects.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask lint deny
  cargo xtask lint typos
  cargo xtask lint commits

deny.toml and typos.toml say what is allowed. The tools come from PATH or from Python packages under target/python.
Exit code 1 if something is not allowed.")]
pub struct LintArgs {
    #[command(subcommand)]
    what: Lint,
}

#[derive(Debug, Subcommand)]
enum Lint {
    /// Check licences, duplicates and sources of the dependencies with cargo-deny
    Deny,
    /// Look for misspelt words in all files with typos
    Typos,
    /// Check that commit subjects are short and imperative
    Commits,
}

/// Runs the command.
pub fn run(args: &LintArgs, options: &Options) -> Result<()> {
    let (tool, arguments) = match args.what {
        Lint::Deny => (tools::CARGO_DENY.find(options.offline)?, "--workspace check bans licenses sources"),
        Lint::Typos => (tools::TYPOS.find(options.offline)?, "--format brief"),
        Lint::Commits => return commits::check(),
    };
    let (mut command, offline) = (Command::new(&tool), options.offline.to_string());
    // cargo-deny asks cargo for the dependencies.
    command.args(arguments.split(' ')).current_dir(workspace::root()).env("CARGO_NET_OFFLINE", offline);
    let status = command.status()?;
    if !status.success() {
        bail!("{}: {status}; its findings are above", tool.display());
    }
    Ok(())
}
