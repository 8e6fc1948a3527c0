//! What our FFI crates declare, against C headers: `cargo xtask hsa-headers` and `cargo xtask kernel-headers` run this.
//!
//! It prints a line of JSON with what was compared and what differs. Exit code 1 only if it cannot compare.

mod compiler;
mod hsa;
mod kernel;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use compiler::Compiler;
use std::path::{Path, PathBuf};

#[derive(Debug, Parser)]
#[command(about = "Compare the declarations of the FFI crates with C headers")]
struct Args {
    /// The C compiler
    #[arg(long, value_name = "PROGRAM", default_value = "cc", global = true)]
    compiler: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// hsa-sys with the headers of AMD's HSA runtime
    Hsa {
        /// Folder with hsa/hsa.h
        include: PathBuf,
    },
    /// amdxdna-sys with the headers of kernels
    Kernel {
        /// A kernel's version and the folder with its drm/drm.h, the oldest first
        #[arg(required = true, value_name = "VERSION=DIR", value_parser = kernel::Headers::read)]
        headers: Vec<kernel::Headers>,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    let compiler = Compiler(args.compiler);
    let report = match args.command {
        Command::Hsa { include } => serde_json::to_string(&hsa::compare(&include, &compiler)?)?,
        Command::Kernel { headers } => serde_json::to_string(&kernel::compare(&headers, &compiler)?)?,
    };
    println!("{report}");
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
