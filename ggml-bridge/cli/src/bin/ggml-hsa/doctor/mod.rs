//! `ggml-hsa doctor`: finds what on this machine keeps llama.cpp from its NPU, and how to fix it.
//!
//! A check is a small function over a [`Machine`], which is this one or a tree of files in a test: so that every broken
//! machine that a check is for is a row of a table of tests. What only shows when an NPU is opened is found by opening it, as
//! the library does ([`devices`]). A [`record`] takes all of this to another machine, where it is [`replay`]ed.

mod checks;
mod devices;
mod finding;
mod machine;
mod opening;
mod privacy;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use crate::Ended;
use clap::Args;
use finding::{Finding, Level};
use ggml_hsa_cli::output::{Shade, counted, say, shaded, show};
use machine::Machine;
use privacy::Redactor;
use record::Record;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check this machine: kernel, driver, permissions, IOMMU, firmware, library, llama.cpp, settings
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa doctor
  ggml-hsa doctor --json > report.json
  GGML_HSA_RUNTIME=rocr ggml-hsa doctor     with what AMD's runtime needs
  ggml-hsa doctor --record npu.json         the report and the kernel's answers, in a file for a bug report
  ggml-hsa doctor --replay npu.json         the same calls on a simulated NPU: which answers differ

Each line is ok, note, warning or error; warnings and errors have a fix. NPUs are opened, and an empty kernel runs on each,
unless --closed is given. The report names neither the user nor the user's directory, so that it can be part of a bug report; a
record also leaves out the machine's name and all paths that are not the system's.

Exit code: 0 without errors, 1 with errors, 2 when the command line or a file cannot be used. With --replay: 1 when answers differ.")]
pub struct DoctorArguments {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Open nothing: check what can be seen from outside
    #[arg(long)]
    closed: bool,
    /// The libggml-hsa.so to check, or a folder that has it [default: the one that `ggml-hsa run` uses]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Write the report, versions, what self-tests have found and the kernel calls of opening each NPU to a file, for a bug report
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Repeat the kernel calls of a record on a simulated NPU and list the answers that differ
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "closed", "library"])]
    replay: Option<PathBuf>,
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(arguments: &DoctorArguments) -> Ended {
    if let Some(path) = &arguments.replay {
        return replay::run(path, arguments.json);
    }
    let mut machine = Machine::this(arguments.library.clone());
    if !arguments.closed {
        machine.open = Some(devices::open);
    }
    let redactor = Redactor::of(&machine);
    let findings = checks::all(&machine);
    if let Some(path) = &arguments.record
        && let Err(cause) = Record::of(&machine, &findings, &redactor).write(path)
    {
        return Err(format!("{} cannot be written: {cause}", path.display()).into());
    }
    let findings: Vec<Finding> = findings.into_iter().map(|finding| redactor.clean(finding)).collect();
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    show(arguments.json, &Report { version: env!("CARGO_PKG_VERSION"), errors, warnings, findings }, |report| {
        report.findings.iter().for_each(print);
        say(&format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")));
        if let Some(path) = &arguments.record {
            say(&format!("recorded in {}", path.display()));
        }
    });
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(finding: &Finding) {
    let (shade, level) = match finding.level {
        Level::Ok => (Shade::Good, "ok"),
        Level::Note => (Shade::Faint, "note"),
        Level::Warning => (Shade::Doubtful, "warning"),
        Level::Error => (Shade::Bad, "error"),
    };
    say(&format!("{}  {:<11}  {}", shaded(shade, &format!("{level:<7}")), finding.check, finding.text));
    if let Some(fix) = &finding.fix {
        say(&format!("{:22}fix: {}", "", shaded(Shade::Strong, fix)));
    }
}
