//! `ggml-hsa`: manages the files that `libggml-hsa.so` leaves on disk.
#![forbid(unsafe_code)]

mod cache;
mod cache_table;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Manages the files that libggml-hsa.so, the llama.cpp backend for AMD NPUs, leaves on disk.
#[derive(Debug, Parser)]
#[command(
    name = "ggml-hsa",
    version,
    after_help = "Examples:
  ggml-hsa cache list                   compiled kernels with their sizes, ages and states
  ggml-hsa cache verify --json          the same as JSON, with every byte checked
  ggml-hsa cache prune --max-size 1G    remove unusable kernels, and the oldest beyond 1 GiB

Exit code: 0 when all is well, 1 when something is damaged or could not be removed, 2 when the command line or the cache cannot be used."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The cache of compiled kernels
    Cache(cache::CacheArguments),
}

fn main() -> ExitCode {
    let Arguments { command: Command::Cache(arguments) } = Arguments::parse();
    cache::run(&arguments)
}
