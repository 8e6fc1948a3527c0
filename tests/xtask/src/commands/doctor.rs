//! `cargo xtask doctor`: `ggml-hsa doctor` and `ggml-hsa devices` on the simulated kernel device, in order and broken.
//!
//! The program's unit tests break trees of files; here what is broken answers the program's own kernel calls, so that what only
//! shows when an NPU is opened is among the cases. Each machine has to be named with its cause and a fix, and the fix has to work:
//! where it is a command, that command is run as it was printed, and elsewhere the simulated machine is changed as the fix says.
//!
//! - [`cases`]: the broken machines.
//! - [`machine`]: the simulated machine and the programs on it.
//! - [`records`]: records of machines, and their replay.
//! - [`messages`]: what stock ggml prints about a machine.

mod cases;
mod machine;
mod messages;
mod records;

use crate::session::{KERNELS, Options};
use crate::simulation::KernelReport;
use crate::steps::Steps;
use crate::{build, library};
use anyhow::{Context, Result, ensure};
use cases::{CASES, Case, Fix};
use clap::Args;
use machine::{Machine, Settings};
use serde_json::Value;
use std::path::PathBuf;

/// Check that `ggml-hsa doctor` and `devices` name what is broken, on the simulated kernel device, and that the fixes work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask doctor
  cargo xtask doctor --write-records
  cargo xtask doctor --program target/debug/ggml-hsa --preload target/debug/libamdxdna_preload.so \\
    --library target/debug/libggml_hsa.so

Exit code 1 if a machine was not named, or not fixed.")]
pub struct DoctorArgs {
    /// The program to check [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The simulated kernel device [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// The libggml-hsa.so for llama.cpp [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Write the records in ggml-bridge/cli/tests/records instead of comparing them
    #[arg(long)]
    write_records: bool,
}

pub fn run(args: &DoctorArgs, options: &Options) -> Result<()> {
    let library = library::locate(args.library.as_deref(), options.offline)?;
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?,
    };
    let preload = match &args.preload {
        Some(preload) => std::path::absolute(preload)?,
        None => library::preload(options.offline)?,
    };
    let machine = Machine::new(&program, preload, &library)?;
    let mut steps = Steps::default();
    for kernel in KERNELS {
        steps.check(&format!("a machine in order, kernel {kernel}"), || {
            in_order(&machine, &machine.filled_in(&[("AMDXDNA_SIM_KERNEL", kernel)]))
        });
    }
    for case in CASES {
        steps.check(case.name, || broken(&machine, case));
    }
    records::check(&machine, args.write_records, &mut steps);
    messages::check(&machine, options, &mut steps);
    steps.report()?.finish("doctor", options)
}

/// The NPU is offered, and neither program has anything against it.
fn in_order(machine: &Machine, variables: &Settings) -> Result<String> {
    let (report, _) = machine.doctor(variables, "")?;
    let offered = contented(&report)?;
    let calls = machine.folder().join("calls.json");
    let reported = [variables.clone(), vec![("AMDXDNA_SIM_REPORT", calls.to_string_lossy().into_owned())]].concat();
    let (devices, code) = machine.devices(&reported)?;
    ensure!(code == Some(0) && devices[0]["state"] == "offered", "exit code {code:?}, {devices}");
    let KernelReport { contexts_created, bos_created, .. } = KernelReport::read(&calls)?;
    let has_heap = bos_created.get("DEV_HEAP").is_some_and(|count| *count > 0);
    ensure!(
        contexts_created == 0 && !has_heap,
        "`devices` made {contexts_created} contexts, and of BOs {bos_created:?}"
    );
    Ok(offered)
}

/// Nothing but what the machine lacks that runs the simulation: llama.cpp, an IOMMU, lockable memory.
fn contented(report: &Value) -> Result<String> {
    let ours = |finding: &&Value| ["error", "warning"].iter().any(|level| finding["level"] == *level);
    let elsewhere = |finding: &&Value| ["iommu", "memlock", "llama.cpp"].iter().any(|check| finding["check"] == *check);
    let no_ggml = |finding: &&Value| finding["check"] == "ggml" && finding["level"] == "warning";
    let wrong: Vec<&Value> =
        findings(report).filter(ours).filter(|finding| !elsewhere(finding) && !no_ggml(finding)).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    let offered = findings(report).find(|finding| finding["check"] == "open" && finding["level"] == "ok");
    Ok(offered.context("the NPU was not opened")?["text"].as_str().unwrap_or_default().to_owned())
}

/// Breaks the machine, compares what is said, fixes it as that says, and asks again.
fn broken(machine: &Machine, case: &Case) -> Result<String> {
    (case.prepare)(machine.folder())?;
    let variables = machine.filled_in(case.variables);
    let (report, code) = machine.doctor(&variables, case.before)?;
    let is_this = |finding: &&Value| finding["check"] == case.check && contains(&finding["text"], case.cause);
    let named = findings(&report).find(is_this);
    let named = named.with_context(|| format!("no `{}` with `{}` in {report:#}", case.check, case.cause))?;
    ensure!(named["level"] == case.level && contains(&named["fix"], case.fix), "{named:#}");
    if case.level == "error" {
        ensure!(code == Some(1), "exit code {code:?} instead of 1");
    }
    if case.hides {
        let (devices, code) = machine.devices(&variables)?;
        let offered = devices.as_array().into_iter().flatten().any(|device| device["state"] == "offered");
        ensure!(code == Some(1) && !offered, "exit code {code:?} of `devices`, {devices}");
    }
    let (fixed, how) = match case.fixed {
        Fix::Machine(variables) => {
            let variables = machine.filled_in(variables);
            (machine.doctor(&variables, "")?.0, format!("{variables:?}"))
        }
        Fix::Command(begin) => {
            let command = machine.runnable(named["fix"].as_str().unwrap_or_default(), begin)?;
            (machine.doctor(&variables, &format!("{}\n{command}", case.before))?.0, command)
        }
        Fix::Limits => {
            let login = machine.login(named["fix"].as_str().unwrap_or_default())?;
            let report = machine.doctor(&variables, &format!("{}\n{login}", case.before))?.0;
            (report, login)
        }
        Fix::Files(fix) => {
            fix(machine.folder())?;
            (machine.doctor(&variables, "")?.0, "files".to_owned())
        }
    };
    let left = findings(&fixed).find(is_this);
    ensure!(left.is_none(), "after {how}: {left:?}");
    contented(&fixed).with_context(|| format!("after {how}"))?;
    Ok(named["text"].as_str().unwrap_or_default().to_owned())
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

fn contains(text: &Value, words: &str) -> bool {
    text.as_str().is_some_and(|text| text.contains(words))
}
