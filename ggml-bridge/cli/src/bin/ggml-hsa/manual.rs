//! `ggml-hsa manual`: the man pages and completions of this program as files, for packages and for those who build it themselves.

use crate::Ended;
use clap::{Args, CommandFactory};
use ggml_hsa_cli::output::complain;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages and shell completions into a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa manual ~/.local/share/man      man pages; MANPATH has this folder
  ggml-hsa manual /tmp/ggml-hsa && source /tmp/ggml-hsa/bash/ggml-hsa.bash

The folder gets `man1` with the pages, and `bash`, `zsh` and `fish` with the completions.

Exit code: 0; 1 when a file cannot be written; 2 when the command line cannot be used.")]
pub struct ManualArguments {
    /// The folder, which is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &ManualArguments) -> Ended {
    Ok(match ggml_hsa_cli::manual::write(&mut crate::Arguments::command(), &arguments.folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            complain(&format!("cannot write the manual to {}: {cause}", arguments.folder.display()));
            ExitCode::FAILURE
        }
    })
}
