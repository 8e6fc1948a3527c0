//! Compiled programs of others, on the emulated array; `cargo xtask real-programs` runs this.
//!
//! Programs that someone else compiled, with inputs and results that were computed elsewhere, judge the emulator better than
//! any program of ours: where our reading of the instruction set is wrong, they come out wrong. They are not part of the
//! project; the folder is given. Every core program that is found in it is also decoded and encoded again, whether or not the table
//! says how to run it.
//!
//! It prints a line of JSON with what was found. Exit code 1 only if it cannot run them.

mod cases;
mod containers;
mod encoding;
mod evidence;
mod execution;
mod manifest;
mod xrt;

use anyhow::{Context, Result, ensure};
use cases::{Judged, Verdict};
use clap::Parser;
use encoding::Encoding;
use evidence::Evidence;
use execution::Execution;
use manifest::Program;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use xrt::Xrt;

/// Run compiled programs of others from a folder on the emulated array, and decode and re-encode every bundle in it.
#[derive(Debug, Parser)]
struct Args {
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
    /// Run those that are xclbins with AMD's XRT instead: the words that start `tests/xrt/program.py`
    #[arg(last = true, value_name = "WORD", conflicts_with = "encoding_only")]
    xrt: Vec<OsString>,
    /// Decode and re-encode, and run nothing
    #[arg(long)]
    encoding_only: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    encoding: Vec<Encoding>,
    programs: Vec<Execution>,
    /// None without a file of cases.
    cases: Option<Vec<Judged>>,
    problems: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut all = Vec::new();
    below(&args.programs, Path::new(""), &mut all)?;
    all.sort();
    let mut problems = Vec::new();
    let encoding = Encoding::of(&args.programs, &all, &mut problems);
    let programs = if args.encoding_only { Vec::new() } else { execute(&args, &all, &mut problems)? };
    let mut evidence = Evidence::default();
    for program in programs.iter().filter(|program| program.problem.is_none()) {
        evidence.add(&program.arch, "program", &program.rows);
    }
    let cases = args.cases.as_deref().map(|file| judge_cases(file, &args.programs)).transpose()?;
    for case in cases.iter().flatten() {
        match case.verdict {
            Verdict::Agrees => evidence.add("aie2p", "case", &case.rows),
            Verdict::Differs => problems.push(format!("case {}: {}", case.name, case.detail)),
            _ => {}
        }
    }
    if let Some(file) = &args.evidence {
        fs::write(file, evidence.to_table()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{}", serde_json::to_string(&Report { encoding, programs, cases, problems })?);
    Ok(())
}

/// Every file in `part` of `folder`, relative to that.
fn below(folder: &Path, part: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let place = folder.join(part);
    for entry in fs::read_dir(&place).with_context(|| format!("cannot list {}", place.display()))? {
        let entry = entry?;
        let name = part.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            below(folder, &name, found)?;
        } else {
            found.push(name);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn execute(args: &Args, all: &[PathBuf], problems: &mut Vec<String>) -> Result<Vec<Execution>> {
    let mut executions = Vec::new();
    let xrt = Xrt::started_by(&args.xrt)?;
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

fn judge_cases(file: &Path, folder: &Path) -> Result<Vec<Judged>> {
    cases::run(&read(file)?, folder).map_err(anyhow::Error::msg)
}
