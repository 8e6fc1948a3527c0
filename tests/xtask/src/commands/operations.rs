//! `cargo xtask gen operations`: the page `docs/operations.md`, which the program of `tests/operations` makes.

use crate::generated_page::GeneratedPage;
use crate::session::Options;
use crate::{build, output, process};
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "aie-operations";
const LIMIT: Duration = Duration::from_secs(120);

/// Print the table of operations: types, where each runs, cases of stock ggml that pass.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask gen operations
  cargo xtask gen operations --write        after a change of an operation or of expected.toml
  cargo xtask gen operations --check
  cargo xtask gen operations --json | jq '.[] | select(.name == \"ROPE\")'

Exit code 1 with --check if docs/operations.md is not what would be written.")]
pub struct OperationsArgs {
    /// Write docs/operations.md
    #[arg(long, conflicts_with = "check")]
    pub write: bool,
    /// Compare with docs/operations.md
    #[arg(long)]
    pub check: bool,
}

const PAGE: GeneratedPage = GeneratedPage { file: "docs/operations.md", command: "operations" };

pub fn run(args: &OperationsArgs, options: &Options) -> Result<()> {
    if options.json {
        output::put(format_args!("{}", printed(&["--json"], options)?));
        return Ok(());
    }
    PAGE.make(&printed(&[], options)?, args.write, args.check)
}

/// The operations that a family of native kernels has, by ggml's names for them.
pub fn with_native_kernels(options: &Options) -> Result<BTreeSet<String>> {
    Ok(printed(&["--native"], options)?.lines().map(str::to_owned).collect())
}

fn printed(arguments: &[&str], options: &Options) -> Result<String> {
    let program = build::development_program(PACKAGE, options.offline)?;
    process::run_helper(Command::new(program).args(arguments), LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_located() {
        let error = PAGE.compare("# Operations\n\nSomething else\n").unwrap_err().to_string();
        assert!(error.contains("from line 3 on") && error.contains("--write"), "{error}");
    }
}
