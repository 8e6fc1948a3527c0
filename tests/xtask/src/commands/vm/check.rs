//! `cargo xtask vm check`: this project, stock llama.cpp and AMD's programs on the kernel's own driver.
//!
//! One machine is booted for everything that needs an NPU in order, and one for each fault. A part says what it has seen as a
//! figure; whatever is not as it should be is a problem, and the parts after it go on.

mod faults;
mod power;
mod programs;

use super::options::MachineArgs;
use crate::build;
use crate::library;
use crate::output::Report;
use crate::process::Finished;
use crate::session::Options;
use crate::virtual_machine::{BOOT_LIMIT, Guest, Host, Machine};
use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Memory of the machines: a model is there three times, mapped, in the driver's buffers, and as the guest's cache of files.
const MEMORY_MIB: u32 = 1536;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    /// The conformance suite on the direct way
    Conformance,
    /// Dispatches, PDIs and threads
    Stress,
    /// Stock llama.cpp with the small model: the text of the simulated device
    Demo,
    /// AMD's xrt-smi, and our program on XRT
    Xrt,
    /// AMD's runtime: dispatches, and the conformance suite
    Rocr,
    /// Suspend and resume, the driver taken from the NPU while a program runs, the module unloaded
    Power,
    /// What the firmware can do wrong, and contexts that another process holds
    Faults,
}

/// The parts that need an NPU in order, and so share a boot.
const ONE_BOOT: [Part; 6] = [Part::Conformance, Part::Stress, Part::Demo, Part::Xrt, Part::Rocr, Part::Power];

/// Check this project, stock llama.cpp and AMD's programs on the kernel's own driver
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask vm check
  cargo xtask vm check --kernel all --npu npu1
  cargo xtask vm check --part conformance,xrt --npu all
  cargo xtask vm check --ci

Exit code 1 if anything was not as it should be; 125 if a machine did not come up.")]
pub struct CheckArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Only these parts, separated by commas
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    part: Vec<Part>,
    /// The fixed small part that runs in CI
    #[arg(long)]
    ci: bool,
}

/// What was seen.
#[derive(Debug, Serialize)]
struct Row {
    machine: String,
    what: String,
    figure: String,
    seconds: f64,
}

/// What the parts need.
struct Checks {
    host: Host,
    /// `libggml-hsa.so`.
    library: PathBuf,
    stress: PathBuf,
    conformance: PathBuf,
    is_ci: bool,
    offline: bool,
    rows: Vec<Row>,
    boots: usize,
    problems: Vec<String>,
}

pub fn run(args: &CheckArgs, options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    let wanted = |part: Part| args.part.is_empty() || args.part.contains(&part);
    let release = ["build", "--release", "--package"];
    let stress = build::cargo(&[&release[..], &["xdna-stress"]].concat(), options.offline)?;
    let suite = ["test", "--package", "aie-conformance", "--test", "xdna", "--no-run"];
    let mut checks = Checks {
        library: library::locate(None, options.offline)?,
        stress: stress.executable("bin", "xdna-stress")?,
        conformance: build::cargo(&suite, options.offline)?.executable("test", "xdna")?,
        // Last: it is what the others are run on, and the largest.
        host: Host::ensure(options, args.machine.device_server.as_deref())?,
        is_ci: args.ci,
        offline: options.offline,
        rows: Vec::new(),
        boots: 0,
        problems: Vec::new(),
    };
    for mut machine in args.machine.machines() {
        machine.memory_mib = machine.memory_mib.max(MEMORY_MIB);
        if ONE_BOOT.into_iter().any(wanted) {
            checks.in_order(&machine, &wanted)?;
        }
        if wanted(Part::Faults) {
            checks.faults(&machine)?;
        }
    }
    let Checks { rows, boots, problems, .. } = checks;
    let mut report = Report::with(problems);
    report.rows(
        "rows",
        &rows,
        &[
            ("machine", |row| row.machine.clone()),
            ("what", |row| row.what.clone()),
            ("seen", |row| row.figure.clone()),
            ("#seconds", |row| format!("{:.1}", row.seconds)),
        ],
    )?;
    let (seconds, seen, problems) = (started.elapsed().as_secs_f64(), rows.len() - boots, report.problems.len());
    report.summary(format!(
        "vm check: {boots} machines booted, {seen} checks passed, {problems} problems, {seconds:.0} s"
    ));
    report.field("boots", boots)?;
    report.field("seconds", seconds)?;
    report.finish("vm check", options).map(|()| ExitCode::SUCCESS)
}

impl Checks {
    /// Everything that needs an NPU in order, in one boot.
    fn in_order(&mut self, machine: &Machine, wanted: &impl Fn(Part) -> bool) -> Result<()> {
        let mut guest = self.boot(machine)?;
        if wanted(Part::Conformance) {
            self.part(machine, "conformance", |checks| checks.conformance(&mut guest))?;
        }
        if wanted(Part::Stress) {
            self.part(machine, "stress", |checks| checks.stress(&mut guest))?;
        }
        if wanted(Part::Demo) {
            self.part(machine, "demo", |checks| checks.demo(&mut guest))?;
        }
        if wanted(Part::Xrt) {
            self.part(machine, "xrt-smi examine", |checks| checks.examine(&mut guest))?;
            self.part(machine, "XRT", |checks| checks.xrt(&mut guest, machine))?;
        }
        if wanted(Part::Rocr) {
            self.part(machine, "ROCR", |checks| checks.rocr(&mut guest))?;
        }
        if wanted(Part::Power) {
            self.part(machine, "suspend and resume", |checks| checks.suspend(&mut guest))?;
            self.part(machine, "driver taken away while in use", |checks| checks.unbind(&mut guest, machine))?;
            self.part(machine, "module unloaded", |checks| checks.unload(&mut guest, machine))?;
        }
        guest.power_off()?;
        Ok(())
    }

    /// Boots a machine, of which the driver has to take the NPU.
    fn boot(&mut self, machine: &Machine) -> Result<Guest> {
        let started = Instant::now();
        let mut guest = Guest::boot(&self.host, machine, BOOT_LIMIT)?;
        let npu = guest.npu()?;
        self.boots += 1;
        self.row(machine, "boot", &format!("{} on Linux {}", npu.name, npu.kernel), started);
        Ok(guest)
    }

    /// Does one part. What is wrong is noted; only the loss of the machine ends the check.
    fn part(&mut self, machine: &Machine, what: &str, run: impl FnOnce(&mut Self) -> Result<String>) -> Result<()> {
        let started = Instant::now();
        match run(self) {
            Ok(figure) => self.row(machine, what, &figure, started),
            Err(error) if error.is::<crate::virtual_machine::BootFailure>() => return Err(error),
            Err(error) => self.problems.push(format!("{}: {what}: {error:#}", machine.name())),
        }
        Ok(())
    }

    fn row(&mut self, machine: &Machine, what: &str, figure: &str, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("{}: {what}: {figure} ({seconds:.1} s)", machine.name());
        let (machine, what, figure) = (machine.name(), what.to_owned(), figure.to_owned());
        self.rows.push(Row { machine, what, figure, seconds });
    }

    /// A load on the driver with every result checked.
    fn load(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.testbed.command_for(&self.stress);
        command.args(arguments);
        command
    }

    /// A short load that has to go well: afterwards the NPU is known to work.
    fn works(&self, guest: &mut Guest) -> Result<()> {
        let finished = guest.run(&self.load(&["dispatches", "--dispatches", "2000"]), Duration::from_secs(120))?;
        require(&finished)
    }
}

/// Errors with a program's last words if it did not end well.
fn require(finished: &Finished) -> Result<()> {
    ensure!(finished.success(), "{}\n{}", finished.describe(), finished.last_words(12));
    Ok(())
}

/// The error of a program that had to fail by itself: an exit code, no signal, no time limit.
fn failed_by_itself(finished: &Finished) -> Result<&str> {
    if finished.timed_out || !finished.status.code().is_some_and(|code| (1..=128).contains(&code)) {
        bail!("it was to end by itself with an error: {}\n{}", finished.describe(), finished.last_words(12));
    }
    Ok(&finished.stderr)
}
