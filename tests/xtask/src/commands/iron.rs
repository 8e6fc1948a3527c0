//! `cargo xtask iron`: the Python side of compiling with IRON, on test doubles of its two programs.
//!
//! mlir-aie and Peano cannot be had from a package index, so nothing here runs them: the doubles check the command lines that
//! both generations of the toolchain are given, and the protocol between the library and its workers is spoken for real.

use crate::python::python;
use crate::session::Options;
use crate::workspace;
use anyhow::{Context, Result, bail};
use clap::Args;

/// Run the tests of the IRON worker, on doubles of aiecc and Peano's clang++.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask iron
  cargo xtask iron --shells \"bash zsh\"      also the set-up script in these shells

Needs Python 3.10 or later and nothing else. IRON itself does not run. Exit code 1 if a test failed.")]
pub struct IronArgs {
    /// Shells to try env_setup.sh in, separated by spaces
    #[arg(long, value_name = "LIST")]
    shells: Option<String>,
}

pub fn run(args: &IronArgs, _: &Options) -> Result<()> {
    let mut command = python();
    command.args(["-m", "unittest", "discover", "-s", "jit-iron/iron/tests"]).current_dir(workspace::root());
    // Python would leave its caches among the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(shells) = &args.shells {
        command.env("TEST_SHELLS", shells);
    }
    let status =
        command.status().context("cannot start python3; install Python 3 (Debian: apt-get install python3)")?;
    if !status.success() {
        bail!("iron: the tests of the IRON worker failed; their output is above");
    }
    Ok(())
}
