//! `cargo xtask kernel-calls`: what kernels answer to the scripts of `tests/kernel-calls`, call by call.
//!
//! The scripts are played on every simulated kernel, twice, so that what varies from run to run is found here and not in a
//! comparison; their answers are checked in. A run on a real kernel, in the virtual machine or on a device, is compared with the simulated kernel of its version;
//! a difference has to be fixed in the simulation, or be listed as known with its reason. What the runs have exercised becomes a page.

use crate::generated_page::GeneratedPage;
use crate::output::Report;
use crate::session::{KERNELS, Options};
use crate::testbed::virtual_machine;
use crate::virtual_machine::{BOOT_LIMIT, Guest, Host, Machine, ServedNpu};
use crate::{build, library, process};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "kernel-calls";
const PROGRAM: &str = "aie-kernel-calls";
/// Longest time for all scripts.
const LIMIT: Duration = Duration::from_secs(600);
/// Real kernels whose simulated counterparts differ from a plain one.
const LIKE: [&str; 2] = ["7.2 npu4", "7.2 npu1"];
const PAGE: GeneratedPage = GeneratedPage { file: "docs/kernel-interface.md", command: "kernel-calls" };

/// Compare what simulated and real kernels answer, call by call.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask kernel-calls
  cargo xtask kernel-calls --vm '7.2 npu4'
  cargo xtask kernel-calls --vm all --write
  cargo xtask kernel-calls --real '6.18 npu4=run.jsonl'

A run on a real kernel is what `aie-kernel-calls run` prints there. `--write` records what was exercised in
tests/kernel-calls/seen.json and what simulated kernels answer in answers.json, and writes docs/kernel-interface.md.
Exit code 1 if a script breaks or varies, a simulated kernel answers otherwise than before, a difference has no reason, a reason has
no difference, or the page is out of date.")]
pub struct KernelCallsArgs {
    /// A run on a real kernel: its version, the NPU, and the file. Can be given several times
    #[arg(long, value_name = "VERSION NPU=FILE", value_parser = real)]
    real: Vec<Real>,
    /// Boot this kernel with its own driver on an NPU that a program serves, and play the scripts there; `all` for every kernel on
    /// npu4 and npu1. Can be given several times
    #[arg(long, value_name = "VERSION NPU", value_parser = list)]
    vm: Vec<GuestRuns>,
    /// Use this aie-npu-pci and do not build one
    #[arg(long, value_name = "FILE")]
    device_server: Option<PathBuf>,
    /// Record what was exercised, and write the page
    #[arg(long)]
    write: bool,
    /// Use this preload library and do not build one
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
}

/// A run on a real kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Real {
    /// `7.2 npu4`.
    name: String,
    file: PathBuf,
}

fn real(text: &str) -> Result<Real, String> {
    let parts = text.split_once('=').filter(|(name, _)| name.split(' ').count() == 2);
    let (name, file) = parts.ok_or("expected a value like `7.2 npu4=run.jsonl`")?;
    Ok(Real { name: name.to_owned(), file: file.into() })
}

/// A simulated machine: which NPU, which kernel, and how it differs from one in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Simulated {
    npu: &'static str,
    kernel: &'static str,
    machine: Option<&'static str>,
}

impl Simulated {
    fn plain(kernel: &'static str) -> Self {
        Self { npu: "aie2p", kernel, machine: None }
    }

    /// Those whose answers are checked in: every kernel, and what real ones are compared with.
    fn checked_in() -> Result<Vec<Self>> {
        KERNELS.into_iter().map(|kernel| Ok(Self::plain(kernel))).chain(LIKE.map(Self::like)).collect()
    }

    /// `7.2 aie2p addresses=iova`.
    fn name(&self) -> String {
        [self.kernel, self.npu].into_iter().chain(self.machine).collect::<Vec<_>>().join(" ")
    }

    /// The machine that a real kernel is compared with. A virtual machine has no address spaces shared with the device.
    fn like(name: &str) -> Result<Self> {
        let (version, npu) = name.split_once(' ').unwrap_or((name, ""));
        let npu = if npu == "npu1" { "aie2" } else { "aie2p" };
        // Kernels of one major version are simulated as one.
        let major = |version: &str| version.split('.').next().map(str::to_owned);
        let kernel = KERNELS.into_iter().find(|kernel| *kernel == version);
        let kernel = kernel.or_else(|| KERNELS.into_iter().rev().find(|kernel| major(kernel) == major(version)));
        let kernel =
            kernel.with_context(|| format!("no simulated kernel is like {version}; available: {KERNELS:?}"))?;
        Ok(Self { npu, kernel, machine: (kernel == "7.2").then_some("addresses=iova") })
    }
}

/// What the program has found in the runs.
#[derive(Deserialize)]
struct Judgement {
    kernels: Vec<Compared>,
    problems: Vec<String>,
    page: String,
}

/// A kernel; a real one beside the simulated one.
#[derive(Serialize, Deserialize)]
struct Compared {
    kernel: String,
    calls: usize,
    known: usize,
    differences: Vec<serde_json::Value>,
    stale: Vec<String>,
}

/// The runs, in files of a folder of their own, as the program's arguments.
struct Runs {
    folder: tempfile::TempDir,
    arguments: Vec<OsString>,
}

impl Runs {
    fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::Builder::new().prefix("kernel-calls-").tempdir()?, arguments: Vec::new() })
    }

    fn add(&mut self, option: &str, name: &str, text: &str) -> Result<()> {
        let file = self.folder.path().join(format!("{}.jsonl", self.arguments.len()));
        fs::write(&file, text)?;
        let mut value = OsString::from(format!("{name}="));
        value.push(file);
        self.arguments.extend([option.into(), value]);
        Ok(())
    }
}

pub fn run(args: &KernelCallsArgs, options: &Options) -> Result<()> {
    let preload = match &args.preload {
        Some(file) => crate::files::absolute(file)?,
        None => library::preload(options.offline)?,
    };
    let program = build::cargo(&[&build::BACKEND[..], &["--package", PACKAGE]].concat(), options.offline)?
        .executable("bin", PROGRAM)?;
    let simulated = |machine: &Simulated| on_simulation(&program, &preload, machine);
    let mut runs = Runs::new()?;
    for machine in Simulated::checked_in()? {
        runs.add("--simulated", &machine.name(), &simulated(&machine)?)?;
        if machine == Simulated::plain(machine.kernel) {
            runs.add("--again", &machine.name(), &simulated(&machine)?)?;
        }
    }
    let mut real = Vec::new();
    for Real { name, file } in &args.real {
        real.push((name.clone(), crate::files::read(file)?));
    }
    real.extend(play(&args.vm, &program, args.device_server.as_deref(), options)?);
    for (name, text) in real {
        runs.add("--real", &name, &text)?;
        runs.add("--like", &name, &simulated(&Simulated::like(&name)?)?)?;
    }
    let mut judge = Command::new(&program);
    judge.arg("judge").args(&runs.arguments).args(args.write.then_some("--write"));
    let Judgement { kernels: rows, problems, page } = process::run(&mut judge, LIMIT)?.json(PROGRAM)?;
    let page = PAGE.make(&page, args.write, !args.write);
    let mut report = Report::with(problems);
    report.rows(
        "kernels",
        &rows,
        &[
            ("kernel", |row| row.kernel.clone()),
            ("#calls", |row| row.calls.to_string()),
            ("#known differences", |row| row.known.to_string()),
            ("#others", |row| row.differences.len().to_string()),
        ],
    )?;
    if !report.problems.is_empty() {
        report.summary(
            "fix the simulation, or add each difference that stays to tests/kernel-calls/known.toml, with its reason",
        );
    }
    report.finish("kernel-calls", options)?;
    page
}

/// What the program prints on a simulated kernel.
fn on_simulation(program: &Path, preload: &Path, machine: &Simulated) -> Result<String> {
    let mut command = Command::new(program);
    process::clear_settings(&mut command);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AMDXDNA_SIM_")) {
        command.env_remove(name);
    }
    command
        .arg("run")
        .env("LD_PRELOAD", preload)
        .env("AMDXDNA_SIM_DEVICES", machine.npu)
        .env("AMDXDNA_SIM_KERNEL", machine.kernel);
    if let Some(differs) = machine.machine {
        command.env("AMDXDNA_SIM_MACHINE", differs);
    }
    process::run_helper(&mut command, LIMIT).with_context(|| format!("the simulated kernel {}", machine.name()))
}

/// The word for all of [`EVERY`].
const ALL: &str = "all";
/// NPUs whose drivers differ in what they answer.
const EVERY: [ServedNpu; 2] = [ServedNpu::Npu4, ServedNpu::Npu1];

/// A kernel and an NPU, by the name of a run: `7.2 npu4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRun {
    kernel: &'static str,
    npu: ServedNpu,
}

impl GuestRun {
    pub fn name(&self) -> String {
        format!("{} {}", self.kernel, self.npu.name())
    }
}

#[derive(Debug, Clone)]
pub struct GuestRuns(Vec<GuestRun>);

/// Reads a name, or `all`.
pub fn list(text: &str) -> Result<GuestRuns, String> {
    if text == ALL {
        let every = virtual_machine::KERNELS.into_iter().flat_map(|kernel| EVERY.map(|npu| GuestRun { kernel, npu }));
        return Ok(GuestRuns(every.collect()));
    }
    let (kernel, npu) = text.split_once(' ').ok_or("expected a value like `7.2 npu4`, or `all`")?;
    let kernel = virtual_machine::KERNELS.into_iter().find(|known| *known == kernel);
    let kernel = kernel.ok_or_else(|| format!("available kernels: {}", virtual_machine::KERNELS.join(" and ")))?;
    Ok(GuestRuns(vec![GuestRun { kernel, npu: ServedNpu::from_str(npu, false)? }]))
}

/// Plays the scripts in each machine; what the runs are called, with what the program has printed.
pub fn play(
    lists: &[GuestRuns],
    program: &Path,
    server: Option<&Path>,
    options: &Options,
) -> Result<Vec<(String, String)>> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::ensure(options, server)?;
    lists.iter().flat_map(|list| &list.0).map(|wanted| Ok((wanted.name(), play_in(&host, wanted, program)?))).collect()
}

fn play_in(host: &Host, wanted: &GuestRun, program: &Path) -> Result<String> {
    let machine = Machine { kernel: wanted.kernel.to_owned(), npu: wanted.npu, ..Machine::default() };
    let mut guest = Guest::boot(host, &machine, BOOT_LIMIT)?;
    guest.npu()?;
    let mut command = host.testbed.command_for(program);
    let finished = guest.run(command.arg("run"), LIMIT)?;
    finished.ensure(PROGRAM).with_context(|| format!("{PROGRAM} on {}", wanted.name()))?;
    guest.power_off()?;
    Ok(finished.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;
    use rstest::rstest;
    use std::collections::BTreeSet;

    #[test]
    fn real_runs_are_named_by_kernel_and_npu() {
        assert_eq!(real("7.2 npu4=a=b"), Ok(Real { name: "7.2 npu4".to_owned(), file: "a=b".into() }));
        assert!(real("7.2=run.jsonl").is_err());
        assert!(real("run.jsonl").is_err());
    }

    #[rstest]
    #[case("7.2 npu4", "7.2", "aie2p")]
    #[case("7.3 npu1", "7.2", "aie2")]
    #[case("6.18 npu6", "6.18", "aie2p")]
    #[case("6.16 npu5", "6.18", "aie2p")]
    fn real_kernels_have_a_simulated_one_beside_them(#[case] name: &str, #[case] kernel: &str, #[case] npu: &str) {
        let like = Simulated::like(name).unwrap();
        assert_eq!((like.kernel, like.npu), (kernel, npu));
        assert!(Simulated::like("5.4 npu1").is_err());
    }

    #[test]
    fn every_machine_that_is_played_on_has_answers() {
        let file = workspace::root().join("tests/kernel-calls/answers.json");
        let answers: serde_json::Value = serde_json::from_str(&crate::files::read(&file).unwrap()).unwrap();
        let names: BTreeSet<String> = Simulated::checked_in().unwrap().iter().map(Simulated::name).collect();
        assert!(answers.as_object().unwrap().keys().eq(&names), "{names:?}");
    }

    #[test]
    fn machines_are_named_as_runs_are() {
        let names = |text| list(text).map(|list| list.0.iter().map(GuestRun::name).collect::<Vec<_>>());
        assert_eq!(names("7.2 npu6").unwrap(), ["7.2 npu6"]);
        assert_eq!(names("all").unwrap(), ["7.2 npu4", "7.2 npu1", "7.3 npu4", "7.3 npu1"]);
        assert!(names("6.1 npu4").unwrap_err().contains("7.2"));
        assert!(names("7.2").is_err() && names("7.2 npu9").is_err());
    }
}
