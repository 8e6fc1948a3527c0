//! `cargo xtask vm check`: this project, stock llama.cpp and AMD's programs on the kernel's own driver.
//!
//! One machine is booted for everything that needs an NPU in order, and one for each fault. A part says what it has seen as a
//! figure; whatever is not as it should be is a problem, and the parts after it continue.

mod faults;
mod power;
mod programs;

use super::options::MachineArgs;
use crate::build;
use crate::library;
use crate::process::Finished;
use crate::session::Options;
use crate::steps::Steps;
use crate::virtual_machine::{BOOT_LIMIT, BootFailure, Guest, Host, Machine};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Memory of the machines: a model is there three times, mapped, in the driver's buffers, and as the guest's cache of files.
const MEMORY_MIB: u32 = 1536;

/// The kernel driver gives up after 2 s in which the NPU has ended nothing. Guest and NPU are emulated, on processors that others use
/// as well: what takes silicon microseconds can take them seconds. Machines with a fault have the driver's own limit.
const PATIENT: &str = "tdr_timeout_ms=20000";

/// The program with the loads.
const STRESS: &str = "xdna-stress";

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
    /// Suspend and resume, the driver unbound while a program runs, the module unloaded
    Power,
    /// Faults of the firmware, and contexts that another process holds
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

Exit code 1 if anything was not as expected; 125 if a machine did not start.")]
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

/// What the parts need.
struct Checks {
    host: Host,
    /// `libggml-hsa.so`.
    library: PathBuf,
    /// `ggml-hsa`.
    program: PathBuf,
    stress: PathBuf,
    /// The library that forks programs, in front of the kernel.
    preload: PathBuf,
    conformance: PathBuf,
    is_ci: bool,
    offline: bool,
    steps: Steps,
    boots: usize,
}

pub fn run(args: &CheckArgs, options: &Options) -> Result<ExitCode> {
    let wanted = |part: Part| args.part.is_empty() || args.part.contains(&part);
    let mut checks = Checks {
        library: library::locate(None, options.offline)?,
        program: build::cargo(&build::BACKEND, options.offline)?.executable("bin", "ggml-hsa")?,
        stress: build::program(STRESS, options.offline)?,
        preload: library::preload(options.offline)?,
        conformance: build::conformance("xdna", options.offline)?,
        // Last: it is what the others are run on, and the largest.
        host: Host::ensure(options, args.machine.device_server.as_deref())?,
        is_ci: args.ci,
        offline: options.offline,
        steps: Steps::default(),
        boots: 0,
    };
    for mut machine in args.machine.machines(&checks.host.parts.kernels()) {
        machine.memory_mib = machine.memory_mib.max(MEMORY_MIB);
        if ONE_BOOT.into_iter().any(wanted) {
            checks.in_order(&machine, &wanted)?;
        }
        if wanted(Part::Faults) {
            checks.faults(&machine)?;
        }
    }
    let mut report = checks.steps.report()?;
    report.summary(format!("vm check: {} machines booted", checks.boots));
    report.field("boots", checks.boots)?;
    report.finish("vm check", options).map(|()| ExitCode::SUCCESS)
}

impl Checks {
    /// Everything that needs an NPU in order, in one boot.
    fn in_order(&mut self, machine: &Machine, wanted: &impl Fn(Part) -> bool) -> Result<()> {
        let mut machine = machine.clone();
        // In front: a value that was requested wins.
        machine.module_parameters.insert(0, PATIENT.to_owned());
        let (machine, mut guest) = (&machine, self.boot(&machine)?);
        if wanted(Part::Conformance) {
            self.part(machine, "conformance", |checks| checks.conformance(&mut guest))?;
        }
        if wanted(Part::Stress) {
            self.part(machine, "stress", |checks| checks.stress(&mut guest))?;
            self.part(machine, "forked children", |checks| checks.forks(&mut guest))?;
        }
        if wanted(Part::Demo) {
            self.part(machine, "demo", |checks| checks.demo(&mut guest))?;
            self.part(machine, "ordinary user", |checks| checks.as_ordinary_user(&mut guest))?;
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
        self.record(machine, "boot", started, Ok(format!("{} on Linux {}", npu.name, npu.kernel)));
        Ok(guest)
    }

    /// Does one part. What is wrong is noted; only the loss of the machine ends the check.
    fn part(&mut self, machine: &Machine, what: &str, run: impl FnOnce(&mut Self) -> Result<String>) -> Result<()> {
        let started = Instant::now();
        match run(self) {
            Err(error) if error.is::<BootFailure>() => return Err(error),
            seen => self.record(machine, what, started, seen),
        }
        Ok(())
    }

    fn record(&mut self, machine: &Machine, what: &str, started: Instant, seen: Result<String>) {
        let name = format!("{}: {what}", machine.name());
        eprintln!("{name}: {} ({:.1} s)", seen.as_deref().unwrap_or("failed"), started.elapsed().as_secs_f64());
        self.steps.record(&name, started, seen);
    }

    /// A load on the driver with every result checked.
    fn load(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.testbed.command_for(&self.stress);
        command.args(arguments);
        command
    }

    /// A short load that has to go well: afterwards the NPU is known to work.
    fn works(&self, guest: &mut Guest) -> Result<()> {
        guest.run(&self.load(&["dispatches", "--dispatches", "2000"]), Duration::from_secs(120))?.ensure(STRESS)
    }
}

/// The error of a program that had to fail on its own: an exit code, no signal, no time limit.
fn failed_by_itself(finished: &Finished) -> Result<&str> {
    if finished.timed_out || !finished.status.code().is_some_and(|code| (1..=128).contains(&code)) {
        bail!("it should have ended with an error: {}\n{}", finished.describe(), finished.last_lines(12));
    }
    Ok(&finished.stderr)
}
