//! `cargo xtask gen`: the pages of the documentation that are made from tables.

use super::environment::{self, EnvironmentArgs};
use super::kernel_calls::{self, KernelCallsArgs};
use super::operations::{self, OperationsArgs};
use crate::session::Options;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Write the generated pages of the documentation; print, write or check one of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask gen                          writes the pages of operations and of environment variables
  cargo xtask gen operations
  cargo xtask gen environment --check
  cargo xtask gen kernel-calls --vm all --write")]
pub struct GenArgs {
    #[command(subcommand)]
    page: Option<Page>,
}

#[derive(Debug, Subcommand)]
enum Page {
    Operations(OperationsArgs),
    Environment(EnvironmentArgs),
    KernelCalls(KernelCallsArgs),
}

pub fn run(args: &GenArgs, options: &Options) -> Result<()> {
    match &args.page {
        Some(Page::Operations(args)) => operations::run(args, options),
        Some(Page::Environment(args)) => environment::run(args, options),
        Some(Page::KernelCalls(args)) => kernel_calls::run(args, options),
        None => {
            operations::run(&OperationsArgs { write: true, check: false }, options)?;
            environment::run(&EnvironmentArgs { write: true, check: false }, options)
        }
    }
}
