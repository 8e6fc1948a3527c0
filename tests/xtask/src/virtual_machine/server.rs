//! The program that serves the NPU to QEMU, and processes that end when they are dropped.

use super::logs::Logs;
use super::machine::Machine;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Longest time until it listens.
const LIMIT: Duration = Duration::from_secs(20);

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    pub fn start(command: &mut Command, name: &'static str) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {name} ({program})"))?;
        Ok(Self { child, name })
    }

    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot ask how {} is", self.name))
    }

    /// Waits for its end, at most for `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            match self.ended()? {
                Some(status) => return Ok(status),
                None if started.elapsed() > limit => bail!("{} did not end within {} s", self.name, limit.as_secs()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended on its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that serves a machine's NPU.
pub fn command(program: &Path, socket: &Path, machine: &Machine, logs: &Logs) -> Command {
    let mut command = Command::new(program);
    command.arg("--socket").arg(socket).args(["--npu", machine.npu.name()]);
    command.arg("--journal").arg(logs.dir.join("journal.txt")).args(&machine.device_options);
    command
}

/// Starts the server and waits until it listens. The error is a sentence for the report of a boot that failed.
pub fn start(mut command: Command, socket: &Path) -> Result<Process> {
    let mut process = Process::start(&mut command, "the device server")?;
    let started = Instant::now();
    while !socket.exists() {
        if let Some(status) = process.ended()? {
            bail!("the device server ended before it listened ({status})");
        }
        if started.elapsed() > LIMIT {
            bail!("the device server did not listen within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_that_ends_or_is_not_there_is_reported() {
        let error = start(shell("exit 2"), Path::new("/nonexistent/socket")).unwrap_err().to_string();
        assert!(error.contains("before it listened") && error.contains('2'), "{error}");
        let error = start(Command::new("/nonexistent/server"), Path::new("/nonexistent/socket")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/server"), "{error}");
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start(&mut shell("exec sleep 60"), "a sleeper").unwrap();
        let entry = std::path::PathBuf::from(format!("/proc/{}", process.child.id()));
        assert!(entry.exists());
        drop(process);
        assert!(!entry.exists());
    }

    #[test]
    fn waiting_has_a_limit() {
        let mut process = Process::start(&mut shell("exec sleep 60"), "a sleeper").unwrap();
        assert!(process.wait(Duration::from_millis(50)).unwrap_err().to_string().contains("a sleeper did not end"));
        assert_eq!(Process::start(&mut shell("exit 4"), "x").unwrap().wait(LIMIT).unwrap().code(), Some(4));
    }
}
