//! `cargo xtask predict`: what native kernels would reach on npu1, by `jit-native/examples/predict`.

use crate::build;
use crate::session::Options;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::process::Command;

/// Predict tokens per second and shares of the peak from emulated cycles and published costs; `--help` lists the options.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PredictArgs {
    /// Options of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    arguments: Vec<String>,
}

pub fn run(args: &PredictArgs, options: &Options) -> Result<()> {
    let example = ["build", "--release", "--package", "aie-jit-native", "--example", "predict"];
    let program = build::cargo(&example, options.offline)?.executable("example", "predict")?;
    let json = options.json.then_some("--json");
    let status = Command::new(&program).args(&args.arguments).args(json).status();
    let status = status.with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "the prediction ended with {status}");
    Ok(())
}
