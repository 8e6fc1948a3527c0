//! `cargo xtask test real-programs`: compiled programs of others, on the emulated array.
//!
//! Programs that someone else compiled, with inputs and results that were computed elsewhere, judge the emulator better than
//! any program of ours: where our reading of the instruction set is wrong, they come out wrong. They are not part of the
//! project, so this is no stage that CI runs; the folder is given. Every core program that is found in it is also decoded and
//! encoded again, whether or not the table says how to run it.

use super::xrt::program;
use crate::files;
use crate::library;
use crate::output::{self, Column, Report};
use crate::session::Options;
use crate::testbed::Testbed;
use crate::{build, process};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "aie-real-programs";
/// Time that all programs have.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Run compiled programs of others from a folder on the emulated array, and decode and re-encode every bundle in it.
#[derive(Debug, Args)]
#[command(after_help = "Every `programs.toml` in the folder says how programs are run and what they compute:

  [[program]]
  name = \"gemv-288\"
  arch = \"aie2\"                       # aie2 or aie2p
  image = \"gemv-288.xclbin\"           # PDI or xclbin, relative to the table
  instructions = \"gemv-288.insts.txt\" # the stream: binary, or a hexadecimal word a line
  [[program.argument]]                # the stream's arguments in their order
  input = \"a.bin\"
  [[program.argument]]
  input = \"b.bin\"
  [[program.argument]]
  output = 1152                       # bytes, zero before the run
  expected = \"c.bin\"                  # its first bytes are compared
  type = \"i32\"                        # i8 i16 i32 u8 bf16 f32; bytes if absent
  absolute = 0.0                      # |found - expected| <= absolute + relative * |expected|;
  relative = 0.0                      # exact bits if both are absent

Core programs are found in PDIs, in the PDIs of xclbins, and in ELF files of cores (by content).

With --cases FILE: small programs for one AIE2P core, a line of JSON each, with `name`, `end` (done or fault), `regs` (register to
hexadecimal number), `mem` (address to bytes) and `words`, or the program as cases/NAME.s below the folder.

Examples:
  cargo xtask test real-programs --programs /tmp/programs
  cargo xtask real-programs --programs /tmp/programs --only gemm
  cargo xtask real-programs --programs /tmp/programs --xrt
  cargo xtask real-programs --programs /tmp/programs --encoding-only
  cargo xtask real-programs --programs /tmp/programs --cases cases.jsonl --evidence driver-mock/emulator/tests/data/evidence.tsv

Exit code 1 if an output differs, a program does not complete, or a bundle is not re-encoded to its own bytes.")]
pub struct RealProgramsArgs {
    /// The folder with the programs
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// Only programs whose name has this in it; all are re-encoded
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also run the cases of this file
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// Write which rows of the instruction tables the programs executed that computed what they have to, and the cases that agree
    #[arg(long, value_name = "FILE", conflicts_with_all = ["xrt", "encoding_only", "only"])]
    evidence: Option<PathBuf>,
    /// Run those that are xclbins with AMD's XRT on the simulated kernel device instead
    #[arg(long, conflicts_with = "encoding_only")]
    xrt: bool,
    /// Decode and re-encode, and run nothing
    #[arg(long)]
    encoding_only: bool,
}

/// What the program of `tests/real-programs` prints.
#[derive(Debug, Deserialize)]
struct Printed {
    encoding: Vec<Encoding>,
    programs: Vec<Execution>,
    cases: Option<Vec<Judged>>,
    problems: Vec<String>,
}

/// What was found of one generation.
#[derive(Debug, Serialize, Deserialize)]
struct Encoding {
    arch: String,
    files: usize,
    /// Programs of cores.
    programs: usize,
    /// Programs whose bytes no other has.
    distinct: usize,
    bundles: usize,
    /// Bundles that were re-encoded to their own bytes.
    identical: usize,
    /// Instructions of the table that occur.
    instructions: usize,
    /// Formats of the table that occur.
    formats: usize,
}

const ENCODING: &[Column<Encoding>] = &[
    ("generation", |row| row.arch.clone()),
    ("#files", |row| row.files.to_string()),
    ("#core programs", |row| row.programs.to_string()),
    ("#distinct", |row| row.distinct.to_string()),
    ("#bundles", |row| row.bundles.to_string()),
    ("re-encoded to the same bytes", |row| share(row.identical, row.bundles)),
    ("#instructions used", |row| row.instructions.to_string()),
    ("#formats used", |row| row.formats.to_string()),
];

/// How a program's run ended.
#[derive(Debug, Serialize, Deserialize)]
struct Execution {
    name: String,
    arch: String,
    /// Elements compared.
    values: usize,
    /// Elements that are not as they have to be.
    mismatches: usize,
    /// The largest difference of one.
    largest_error: f64,
    /// Bundles that the cores executed; not known under XRT.
    bundles: u64,
    seconds: f64,
    problem: Option<String>,
}

const EXECUTIONS: &[Column<Execution>] = &[
    ("program", |row| row.name.clone()),
    ("generation", |row| row.arch.clone()),
    ("#values", |row| row.values.to_string()),
    ("#mismatches", |row| row.mismatches.to_string()),
    ("#largest error", |row| row.largest_error.to_string()),
    ("#bundles", |row| row.bundles.to_string()),
    ("#seconds", |row| format!("{:.2}", row.seconds)),
    ("result", |row| output::verdict(row.problem.is_none())),
];

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Agrees,
    BothStop,
    GoesOn,
    NoProgram,
    Differs,
}

/// One case.
#[derive(Debug, Serialize, Deserialize)]
struct Judged {
    name: String,
    verdict: Verdict,
    /// How the core stopped, or what differs.
    detail: String,
}

/// Runs the command.
pub fn run(args: &RealProgramsArgs, options: &Options) -> Result<()> {
    let mut command = Command::new(build::development_program(PACKAGE, options.offline)?);
    process::clear_settings(&mut command);
    command.arg("--programs").arg(files::absolute(&args.programs)?);
    command.args(args.only.iter().flat_map(|only| ["--only", only]));
    for (option, file) in [("--cases", &args.cases), ("--evidence", &args.evidence)] {
        if let Some(file) = file {
            command.arg(option).arg(files::absolute(file)?);
        }
    }
    command.args(args.encoding_only.then_some("--encoding-only"));
    if args.xrt {
        let testbed = Testbed::ensure(&options.testbed, options.offline)?;
        let line = program::line(&testbed, &library::preload(options.offline)?)?;
        command.arg("--").args(line).env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
    }
    let Printed { encoding, programs, cases, problems } = process::run(&mut command, LIMIT)?.json(PACKAGE)?;
    let mut report = Report::with(problems);
    report.rows("encoding", &encoding, ENCODING)?;
    if !args.encoding_only {
        report.rows("programs", &programs, EXECUTIONS)?;
    }
    if let Some(cases) = &cases {
        show_cases(cases, &mut report)?;
    }
    let bundles: usize = encoding.iter().map(|row| row.bundles).sum();
    let identical: usize = encoding.iter().map(|row| row.identical).sum();
    let right = programs.iter().filter(|row| row.problem.is_none()).count();
    report.summary(format!(
        "{identical} of {bundles} bundles re-encoded to the same bytes; {right} of {} programs computed what they have to",
        programs.len()
    ));
    report.finish("real-programs", options)
}

/// Counts of each verdict, and a line for each case that does not simply agree.
fn show_cases(cases: &[Judged], report: &mut Report) -> Result<()> {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut table = output::table(&["case", "verdict", "detail"]);
    for Judged { name, verdict, detail } in cases {
        *counts.entry(*verdict).or_default() += 1;
        if *verdict != Verdict::Agrees {
            table.add_row([name.clone(), format!("{verdict:?}"), detail.clone()]);
        }
    }
    report.line(table);
    let counts: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {verdict:?}")).collect();
    report.line(format!("{} cases: {}", cases.len(), counts.join(", ")));
    report.field("cases", cases)
}

/// A share for a table: `12 of 13`.
fn share(part: usize, whole: usize) -> String {
    if part == whole { output::good(&format!("all {whole}")) } else { output::bad(&format!("{part} of {whole}")) }
}
