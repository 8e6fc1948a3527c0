//! `cargo xtask vm shell`: a prompt in a guest on the caller's terminal.

use super::NO_MACHINE;
use super::options::MachineArgs;
use crate::session::Options;
use crate::virtual_machine::{BOOT_LIMIT, Guest, Host, Machine};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::IsTerminal;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// What is assumed of a terminal that does not say.
const SIZE: (u16, u16) = (24, 80);

/// Open a shell in a guest; `exit` powers it off
#[derive(Debug, Args)]
pub struct ShellArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Longest time for the whole session; by default there is no limit
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

pub fn run(args: &ShellArgs, options: &Options) -> Result<ExitCode> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!(
            "`vm shell` needs a terminal, and standard input or output is none; for scripts there is `vm run sh -c ...`"
        );
    }
    let host = Host::ensure(options, args.machine.device_server.as_deref())?;
    let machine = Machine { terminal: true, ..args.machine.one(&host.parts.kernels())? };
    eprintln!("booting {} ...", machine.name());
    // QEMU sets the terminal so that every key goes to the guest. It is set back however this ends.
    let _terminal = Terminal::keep()?;
    let mut guest = Guest::boot(&host, &machine, BOOT_LIMIT)?;
    let (rows, columns) = size();
    // Lines need the return that the terminal does not add now.
    match guest.npu() {
        Ok(npu) => eprint!("{} ({}), Linux {}\r\n", npu.name, npu.pci, npu.kernel),
        Err(error) => eprint!("warning: {}\r\n", format!("{error:#}").replace('\n', "\r\n")),
    }
    eprint!("results and logs: {}\r\n", guest.logs().display());
    let kind = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
    let code = guest.shell(rows, columns, &kind, args.timeout.map(Duration::from_secs))?;
    guest.power_off()?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(NO_MACHINE)))
}

/// The settings of the caller's terminal, set back when this is dropped.
struct Terminal(String);

impl Terminal {
    fn keep() -> Result<Self> {
        Ok(Self(stty(&["-g"])?.trim().to_owned()))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that has been closed cannot be set.
        let _ = stty(&[&self.0]);
    }
}

/// Rows and columns of the caller's terminal.
fn size() -> (u16, u16) {
    let read = |text: String| {
        let (rows, columns) = text.trim().split_once(' ')?;
        Some((rows.parse().ok().filter(|rows| *rows > 0)?, columns.parse().ok()?))
    };
    stty(&["size"]).ok().and_then(read).unwrap_or(SIZE)
}

fn stty(arguments: &[&str]) -> Result<String> {
    let output = Command::new("stty").args(arguments).stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let output = output.context("cannot start stty, which keeps the terminal's settings")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
