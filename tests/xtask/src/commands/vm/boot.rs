//! `cargo xtask vm boot`: boots machines, one after the other, and shows the NPU each kernel found.

use super::options::MachineArgs;
use crate::output;
use crate::session::Options;
use crate::virtual_machine::{BOOT_LIMIT, FoundNpu, Guest, Host, Machine, Times};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Boot machines, show the NPU each kernel found, and power off
#[derive(Debug, Args)]
pub struct BootArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Longest time for a boot
    #[arg(long, value_name = "SECONDS", default_value_t = BOOT_LIMIT.as_secs())]
    timeout: u64,
}

#[derive(Serialize)]
struct Report {
    downloaded_bytes: u64,
    kept_bytes: u64,
    prepare_seconds: u64,
    boots: Vec<Boot>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Boot {
    machine: String,
    npu: FoundNpu,
    #[serde(flatten)]
    times: Times,
    /// From the start to after power off.
    seconds: f64,
    logs: PathBuf,
}

/// Runs the command.
pub fn run(args: &BootArgs, options: &Options) -> Result<ExitCode> {
    let host = Host::ensure(options, args.machine.device_server.as_deref())?;
    let machines = args.machine.machines();
    let stamp = host.parts.stamp();
    let mut report = Report {
        downloaded_bytes: stamp.downloaded_bytes,
        kept_bytes: stamp.kept_bytes,
        prepare_seconds: stamp.seconds,
        boots: Vec::new(),
        problems: Vec::new(),
    };
    for machine in &machines {
        match boot(&host, machine, Duration::from_secs(args.timeout)) {
            Ok(boot) => report.boots.push(boot),
            // Alone it is the command's own failure, with an exit code of its own.
            Err(error) if machines.len() == 1 => return Err(error),
            Err(error) => report.problems.push(format!("{}: {error:#}", machine.name())),
        }
    }
    if options.json {
        output::json(&report)?;
    } else {
        print(&report);
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn boot(host: &Host, machine: &Machine, limit: Duration) -> Result<Boot> {
    let started = Instant::now();
    let mut guest = Guest::boot(host, machine, limit)?;
    let npu = guest.npu()?;
    let times = guest.times();
    let logs = guest.power_off()?;
    Ok(Boot { machine: machine.name(), npu, times, seconds: started.elapsed().as_secs_f64(), logs })
}

fn print(report: &Report) {
    let mut table = output::table(&["machine", "kernel", "NPU", "PCI", "firmware", "#guest s", "#boot s", "#all s"]);
    for Boot { machine, npu, times, seconds, .. } in &report.boots {
        let numbers = [times.guest_seconds, times.boot_seconds, *seconds].map(|number| format!("{number:.1}"));
        let [guest, boot, all] = numbers;
        table.add_row([machine, &npu.kernel, &npu.name, &npu.pci, &npu.firmware, &guest, &boot, &all]);
    }
    println!("{table}");
    for problem in &report.problems {
        println!("{} {problem}", output::bad("problem:"));
    }
    println!("{} machines booted, {} problems", report.boots.len(), report.problems.len());
}
