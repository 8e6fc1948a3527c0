//! `cargo xtask vm boot`: boots machines, one after the other, and shows the NPU each kernel found.

use super::options::MachineArgs;
use crate::output::Report;
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
struct Boot {
    machine: String,
    npu: FoundNpu,
    #[serde(flatten)]
    times: Times,
    /// From the start to after power off.
    seconds: f64,
    logs: PathBuf,
}

pub fn run(args: &BootArgs, options: &Options) -> Result<ExitCode> {
    let host = Host::ensure(options, args.machine.device_server.as_deref())?;
    let machines = args.machine.machines(&host.parts.kernels());
    let (mut report, mut boots) = (Report::default(), Vec::new());
    for machine in &machines {
        match boot(&host, machine, Duration::from_secs(args.timeout)) {
            Ok(boot) => boots.push(boot),
            // Alone it is the command's own failure, with an exit code of its own.
            Err(error) if machines.len() == 1 => return Err(error),
            Err(error) => report.problems.push(format!("{}: {error:#}", machine.name())),
        }
    }
    report.rows(
        "boots",
        &boots,
        &[
            ("machine", |boot| boot.machine.clone()),
            ("kernel", |boot| boot.npu.kernel.clone()),
            ("NPU", |boot| boot.npu.name.clone()),
            ("PCI", |boot| boot.npu.pci.clone()),
            ("firmware", |boot| boot.npu.firmware.clone()),
            ("#guest s", |boot| format!("{:.1}", boot.times.guest_seconds)),
            ("#boot s", |boot| format!("{:.1}", boot.times.boot_seconds)),
            ("#all s", |boot| format!("{:.1}", boot.seconds)),
        ],
    )?;
    report.summary(format!("{} machines booted, {} problems", boots.len(), report.problems.len()));
    let stamp = &host.parts.stamp;
    report.field("downloaded_bytes", stamp.downloaded_bytes)?;
    report.field("kept_bytes", stamp.kept_bytes)?;
    report.field("prepare_seconds", stamp.seconds)?;
    report.finish("vm boot", options).map(|()| ExitCode::SUCCESS)
}

fn boot(host: &Host, machine: &Machine, limit: Duration) -> Result<Boot> {
    let started = Instant::now();
    let mut guest = Guest::boot(host, machine, limit)?;
    let npu = guest.npu()?;
    let times = guest.times;
    let logs = guest.power_off()?;
    Ok(Boot { machine: machine.name(), npu, times, seconds: started.elapsed().as_secs_f64(), logs })
}
