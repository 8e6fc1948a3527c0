//! `cargo xtask test real-programs`: compiled programs of others, on the emulated array.
//!
//! Programs that someone else compiled, with inputs and results that were computed elsewhere, judge the emulator better than
//! any program of ours: where our reading of the instruction set is wrong, they come out wrong. They are not part of the
//! project, so this is no stage that CI runs; the folder is given. Every core program that is found in it is also decoded and
//! encoded again, whether or not the table says how to run it.

mod cases;
mod containers;
mod encoding;
mod evidence;
mod execution;
mod manifest;

use crate::files;
use crate::library;
use crate::output::{self, Report};
use crate::session::Options;
use crate::testbed::Testbed;
use anyhow::{Result, ensure};
use cases::{Judged, Verdict};
use clap::Args;
use encoding::Encoding;
use evidence::Evidence;
use execution::{Execution, Xrt};
use manifest::Program;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

/// Runs the command.
pub fn run(args: &RealProgramsArgs, options: &Options) -> Result<()> {
    let all = files::below(&args.programs)?;
    let mut report = Report::default();
    let encoding = Encoding::of(&args.programs, &all, &mut report.problems);
    let executions = if args.encoding_only { Vec::new() } else { execute(args, &all, options, &mut report.problems)? };
    report.rows("encoding", &encoding, encoding::COLUMNS)?;
    if !args.encoding_only {
        report.rows("programs", &executions, execution::COLUMNS)?;
    }
    let mut evidence = Evidence::default();
    for program in executions.iter().filter(|program| program.problem.is_none()) {
        evidence.add(&program.arch, "program", &program.rows);
    }
    if let Some(file) = &args.cases {
        for case in judge_cases(file, &args.programs, &mut report)? {
            evidence.add("aie2p", "case", &case.rows);
        }
    }
    if let Some(file) = &args.evidence {
        files::write(file, &evidence.to_table())?;
    }
    let bundles: usize = encoding.iter().map(|row| row.bundles).sum();
    let identical: usize = encoding.iter().map(|row| row.identical).sum();
    let right = executions.iter().filter(|row| row.problem.is_none()).count();
    report.summary(format!(
        "{identical} of {bundles} bundles re-encoded to the same bytes; {right} of {} programs computed what they have to",
        executions.len()
    ));
    report.finish("real-programs", options)
}

/// What programs need to run with XRT.
fn xrt(options: &Options) -> Result<Xrt> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    testbed.xrt("python3")?;
    let work = tempfile::Builder::new().prefix("programs-").tempdir()?;
    Ok(Xrt { preload: library::preload(options.offline)?, testbed, work })
}

fn execute(
    args: &RealProgramsArgs,
    all: &[PathBuf],
    options: &Options,
    problems: &mut Vec<String>,
) -> Result<Vec<Execution>> {
    let mut executions = Vec::new();
    let xrt = if args.xrt { Some(xrt(options)?) } else { None };
    for table in all.iter().filter(|path| path.file_name().is_some_and(|name| name == "programs.toml")) {
        let path = args.programs.join(table);
        let folder = path.parent().unwrap_or(Path::new("."));
        let programs = manifest::read(&path)?;
        let chosen = |program: &&Program| {
            (xrt.is_none() || program.image.extension().is_some_and(|extension| extension == "xclbin"))
                && args.only.as_ref().is_none_or(|only| program.name.contains(only))
        };
        for program in programs.iter().filter(chosen) {
            let done = match execution::run(program, folder, xrt.as_ref()) {
                Ok(done) => done,
                // The others can be run all the same.
                Err(cause) => {
                    problems.push(format!("{}: {}: {cause:#}", path.display(), program.name));
                    continue;
                }
            };
            problems.extend(done.problem.iter().map(|problem| format!("{}: {problem}", program.name)));
            executions.push(done);
        }
    }
    ensure!(
        !(executions.is_empty() && problems.is_empty()),
        "no programs.toml below {} names such a program",
        args.programs.display()
    );
    Ok(executions)
}

/// Runs cases: counts of each verdict, and a line for each that does not simply agree. Gives those that do.
fn judge_cases(file: &Path, folder: &Path, report: &mut Report) -> Result<Vec<Judged>> {
    let judged = cases::run(&files::read(file)?, folder).map_err(anyhow::Error::msg)?;
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for case in &judged {
        *counts.entry(case.verdict).or_default() += 1;
        if case.verdict == Verdict::Differs {
            report.problems.push(format!("case {}: {}", case.name, case.detail));
        }
    }
    let others: Vec<_> = judged.iter().filter(|case| case.verdict != Verdict::Agrees).collect();
    let mut table = output::table(&["case", "verdict", "detail"]);
    for case in &others {
        table.add_row([case.name.clone(), format!("{:?}", case.verdict), case.detail.clone()]);
    }
    report.line(table);
    let counts: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {verdict:?}")).collect();
    report.line(format!("{} cases: {}", judged.len(), counts.join(", ")));
    report.field("cases", &judged)?;
    Ok(judged.into_iter().filter(|case| case.verdict == Verdict::Agrees).collect())
}

/// A share for a table: `12 of 13`.
fn share(part: usize, whole: usize) -> String {
    if part == whole { output::good(&format!("all {whole}")) } else { output::bad(&format!("{part} of {whole}")) }
}
