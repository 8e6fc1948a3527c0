//! `cargo xtask formats`: AMD's own programs read the files we write, in the program of `tests/file-formats`.

use crate::output::{self, Report};
use crate::session::Options;
use crate::testbed::Testbed;
use crate::{build, process};
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "aie-file-formats";
const LIMIT: Duration = Duration::from_secs(1800);

/// Show the PDIs and instruction streams we write to AMD's bootgen, aiebu-dump and aiebu-asm.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask formats
  cargo xtask formats --only mul_mat        kernels whose name contains this
  cargo xtask formats --json

Exit code 1 if a program rejects a file or interprets it differently than we do.")]
pub struct FormatsArgs {
    /// Only files whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Printed {
    kernels: usize,
    operations: usize,
    confirmed: BTreeMap<String, usize>,
    problems: Vec<String>,
}

pub fn run(args: &FormatsArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let mut command = Command::new(build::development_program(PACKAGE, options.offline)?);
    for tool in ["bootgen", "aiebu-dump", "aiebu-asm"] {
        command.arg(format!("--{tool}")).arg(testbed.xrt(tool)?);
    }
    command.args(args.only.iter().flat_map(|only| ["--only", only])).arg("--").args(testbed.loader_line(None));
    process::clear_settings(&mut command);
    let finished = process::run(command.env("LC_ALL", "C.UTF-8"), LIMIT)?;
    let Printed { kernels, operations, confirmed, problems } = finished.json(PACKAGE)?;
    let mut report = Report::with(problems);
    let mut table = output::table(&["program: what it confirmed", "#count"]);
    for (what, count) in &confirmed {
        table.add_row([what, &count.to_string()]);
    }
    report.line(table);
    let (seconds, problems) = (finished.elapsed.as_secs_f64(), report.problems.len());
    report.summary(format!(
        "{kernels} kernels of {operations} operations on the array, {problems} problems, {seconds:.1} s"
    ));
    report.field("kernels", kernels)?;
    report.field("operations", operations)?;
    report.field("confirmed", confirmed)?;
    report.field("seconds", seconds)?;
    report.finish("formats", options)
}
