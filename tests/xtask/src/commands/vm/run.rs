//! `cargo xtask vm run`: one program in a guest.

use super::options::MachineArgs;
use super::{NO_MACHINE, TIME_LIMIT};
use crate::output;
use crate::process::Finished;
use crate::session::Options;
use crate::virtual_machine::{BOOT_LIMIT, BootFailure, Guest, Host, Rocr, Stream, Times};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Run a program in a guest: one of the testbed by its name, or one of ours by its path
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask vm run xrt-smi examine
  cargo xtask vm run dmesg
  cargo xtask vm run --env RUST_LOG=debug --timeout 60 target/release/my-program
  cargo xtask vm run --rocr target/release/xdna-stress dispatches --device 'xdna:0?runtime=rocr'

Every applet of busybox is there too (sh, cat, dmesg, insmod, ...). /run/modules has the kernel's modules.")]
pub struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Longest time for the program
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// A variable of its environment. Can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::options::assignment)]
    env: Vec<String>,
    /// Provide AMD's runtime of the testbed, and a stand-in for KFD, which the guest's kernel does not have
    #[arg(long)]
    rocr: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    line: Vec<OsString>,
}

pub fn run(args: &RunArgs, options: &Options) -> Result<ExitCode> {
    let (program, arguments) = args.line.split_first().context("clap asks for a program")?;
    let program = Program::find(Path::new(program))?;
    let host = Host::ensure(options, args.machine.device_server.as_deref())?;
    let machine = args.machine.one(&host.parts.kernels())?;
    let rocr = args.rocr.then(|| Rocr::ensure(&host, options.offline)).transpose()?;
    let mut guest = Guest::boot(&host, &machine, BOOT_LIMIT)?;
    if let Err(error) = guest.npu() {
        eprintln!("warning: {error:#}");
    }
    let mut command = Command::new(program.in_guest(&host, &guest.shared_folder())?);
    command.args(arguments);
    rocr.iter().for_each(|rocr| rocr.prepare(&mut command));
    command.envs(args.env.iter().filter_map(|variable| variable.split_once('=')));
    let limit = Duration::from_secs(args.timeout);
    let finished = if options.json { guest.run(&command, limit)? } else { guest.run_watched(&command, limit, show)? };
    let (times, logs) = (guest.times, guest.logs().to_path_buf());
    match guest.power_off() {
        // The program's own end is what was requested.
        Err(error) if error.is::<BootFailure>() && !finished.success() => eprintln!("warning: {error:#}"),
        other => drop(other?),
    }
    let code = exit_code(&finished);
    if options.json {
        output::json(&Report {
            machine: machine.name(),
            times,
            exit_code: code,
            end: finished.describe(),
            seconds: finished.elapsed.as_secs_f64(),
            stdout: &finished.stdout,
            stderr: &finished.stderr,
            logs: &logs,
        })?;
    } else if !finished.success() {
        eprintln!("the program in the guest: {}; logs: {}", finished.describe(), logs.display());
    }
    Ok(ExitCode::from(code))
}

/// Our exit code for the end of a program, as shells have it.
fn exit_code(finished: &Finished) -> u8 {
    let code = match (finished.timed_out, finished.status.code(), finished.status.signal()) {
        (true, ..) => return TIME_LIMIT,
        (false, Some(code), _) => code,
        (false, None, signal) => 128 + signal.unwrap_or_default(),
    };
    u8::try_from(code).unwrap_or(NO_MACHINE)
}

#[derive(Serialize)]
struct Report<'a> {
    machine: String,
    #[serde(flatten)]
    times: Times,
    exit_code: u8,
    end: String,
    seconds: f64,
    stdout: &'a str,
    stderr: &'a str,
    logs: &'a Path,
}

fn show(stream: Stream, bytes: &[u8]) {
    // The reader may be gone; then the program continues.
    let _ = match stream {
        Stream::Output => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
        Stream::Error => std::io::stderr().write_all(bytes),
    };
}

/// A program to run in a guest.
#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// One of the testbed or of busybox.
    Named(PathBuf),
    File(PathBuf),
}

impl Program {
    fn find(given: &Path) -> Result<Self> {
        if given.components().count() == 1 && !given.is_absolute() {
            return Ok(Self::Named(given.to_path_buf()));
        }
        match fs::canonicalize(given) {
            Ok(path) if path.is_file() => Ok(Self::File(path)),
            // A path of the guest's own, such as /usr/bin/env.
            Err(_) if given.is_absolute() => Ok(Self::Named(given.to_path_buf())),
            Ok(path) => bail!("{} is not a file", path.display()),
            Err(error) => Err(error).with_context(|| {
                format!("cannot read the program {}; a program of the testbed is given by its name", given.display())
            }),
        }
    }

    /// The word that starts it in the guest.
    fn in_guest(&self, host: &Host, shared: &Path) -> Result<PathBuf> {
        match self {
            // Some are in folders that no shell searches.
            Self::Named(name) => Ok(match name.to_str().map(|name| host.testbed.program(name)) {
                Some(Ok(path)) if name.is_relative() => {
                    Path::new("/").join(path.strip_prefix(host.testbed.root()).unwrap_or(&path))
                }
                _ => name.clone(),
            }),
            Self::File(path) if host.shares()?.iter().any(|folder| path.starts_with(folder)) => Ok(path.clone()),
            // The guest does not see where it is.
            Self::File(path) => {
                let copy = shared.join(path.file_name().context("a file has a name")?);
                fs::copy(path, &copy).with_context(|| format!("cannot copy {} for the guest", path.display()))?;
                Ok(copy)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_end_becomes_ours() {
        let finished = |status, timed_out| Finished { timed_out, ..crate::process::tests::ended(status, "", "") };
        assert_eq!(exit_code(&finished(3 << 8, false)), 3);
        assert_eq!(exit_code(&finished(11, false)), 139);
        assert_eq!(exit_code(&finished(9, true)), TIME_LIMIT);
    }

    #[test]
    fn names_are_the_testbed_s_and_paths_are_files() {
        assert_eq!(Program::find(Path::new("xrt-smi")).unwrap(), Program::Named("xrt-smi".into()));
        assert_eq!(Program::find(Path::new("/nonexistent/x")).unwrap(), Program::Named("/nonexistent/x".into()));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "").unwrap();
        assert!(matches!(Program::find(&file).unwrap(), Program::File(path) if path.ends_with("x")));
        let error = format!("{:#}", Program::find(Path::new("no/such/x")).unwrap_err());
        assert!(error.contains("no/such/x") && error.contains("by its name"), "{error}");
    }
}
