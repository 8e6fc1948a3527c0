//! `cargo xtask vm`: a virtual PC with an NPU, on which a kernel of Debian's runs with its own amdxdna driver.
//!
//! `prepare` downloads what machines are made of, `boot` shows that the driver takes the NPU, `check` tests this project and AMD's
//! programs on it, `run` runs one program, and `shell` gives a prompt. No root, no KVM, no NPU.

mod boot;
mod check;
mod options;
mod run;
mod shell;

use crate::output;
use crate::session::Options;
use crate::testbed::virtual_machine::Parts;
use crate::virtual_machine::BootFailure;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code when there was no machine to run anything in, as programs that start programs have it.
const NO_MACHINE: u8 = 125;
/// The exit code of a program that was stopped because of its time limit.
const TIME_LIMIT: u8 = 124;

/// Boot a virtual PC with an NPU and the kernel's own driver for it; run programs in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask vm boot
  cargo xtask vm boot --kernel all --npu all --json
  cargo xtask vm check
  cargo xtask vm run xrt-smi examine
  cargo xtask vm run --npu npu1 --timeout 60 target/release/my-program --option
  cargo xtask vm shell --kernel 7.3 --iommu passthrough
  cargo xtask vm prepare --force    download kernels and QEMU again

The guest sees the testbed's Debian root as its own, and the checkout at the path it has here, read-only. Logs of each boot are
in target/vm-logs. Exit code of `run` and `shell`: that of the program; 124 if it exceeded its time; 125 if the machine did not
start or went down.")]
pub struct VmArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Prepare(PrepareArgs),
    Boot(boot::BootArgs),
    Check(check::CheckArgs),
    Run(run::RunArgs),
    Shell(shell::ShellArgs),
}

/// Download QEMU and the kernels into the testbed, or list what it has
#[derive(Debug, Args)]
struct PrepareArgs {
    /// Rebuild it even if it is complete
    #[arg(long)]
    force: bool,
    /// Debian mirror to use; by default that of AIE_TESTBED_MIRROR, else the one of this machine's apt configuration
    #[arg(long, value_name = "URI")]
    mirror: Option<String>,
}

pub fn run(args: &VmArgs, options: &Options) -> Result<ExitCode> {
    let result = match &args.action {
        Action::Prepare(args) => prepare(args, options).map(|()| ExitCode::SUCCESS),
        Action::Boot(args) => boot::run(args, options),
        Action::Check(args) => check::run(args, options),
        Action::Run(args) => run::run(args, options),
        Action::Shell(args) => shell::run(args, options),
    };
    match result {
        Err(error) if error.is::<BootFailure>() => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(NO_MACHINE))
        }
        other => other,
    }
}

#[derive(Serialize)]
struct Prepared<'a> {
    dir: PathBuf,
    #[serde(flatten)]
    stamp: &'a crate::testbed::virtual_machine::Stamp,
}

fn prepare(args: &PrepareArgs, options: &Options) -> Result<()> {
    let parts = Parts::prepare(&options.testbed, options.offline, args.force, args.mirror.as_deref())?;
    let stamp = &parts.stamp;
    if options.json {
        return output::json(&Prepared { dir: parts.dir.to_path_buf(), stamp });
    }
    let mut table = output::table(&["part", "version", "#modules"]);
    for (name, kernel) in &stamp.kernels {
        let version = format!("{} ({})", kernel.release, kernel.version);
        table.add_row([format!("kernel {name}"), version, kernel.modules.len().to_string()]);
    }
    for name in ["qemu-system-x86", "busybox-static"] {
        table.add_row([name, stamp.packages.get(name).map_or("-", String::as_str), ""]);
    }
    crate::say!("{table}");
    crate::say!(
        "{}: {} MB downloaded, {} MB of it stored, in {} s",
        parts.dir.display(),
        megabytes(stamp.downloaded_bytes),
        megabytes(stamp.kept_bytes),
        stamp.seconds
    );
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}
