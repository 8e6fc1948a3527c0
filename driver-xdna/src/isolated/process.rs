//! The helper as a process: started, listened to, killed, reaped.

use super::StartError;
use super::host_log::HostLog;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a process that is about to end is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A running helper, the leader of a process group of its own.
#[derive(Debug)]
pub(super) struct HostProcess {
    program: PathBuf,
    pid: Pid,
    /// None once it is reaped: its id may then belong to another process.
    child: Mutex<Option<Child>>,
    log: HostLog,
}

impl HostProcess {
    /// Starts `program` with `socket` as its standard input and nothing else of this process but its output, which is
    /// passed on to this process's standard error.
    pub fn spawn(program: &Path, environment: &[(OsString, OsString)], socket: UnixStream) -> Result<Self, StartError> {
        let fail = |source| StartError::Spawn { program: program.to_owned(), source };
        let (output, input) = std::io::pipe().map_err(fail)?;
        let mut command = Command::new(program);
        command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::from(OwnedFd::from(input.try_clone().map_err(fail)?)))
            .stderr(Stdio::from(OwnedFd::from(input)))
            // Its own group, so that what a terminal sends (Ctrl-C) reaches the client only, which then decides.
            .process_group(0);
        // SAFETY: The closure runs in the child between fork and exec and makes one system call on numbers: it takes no
        // lock and allocates nothing.
        unsafe { command.pre_exec(close_other_descriptors_on_exec) };
        let child = command.spawn().map_err(fail)?;
        // The command holds the write end of the pipe; the log ends when the last holder goes.
        drop(command);
        let pid = Pid::from_child(&child);
        let log = HostLog::follow(output).map_err(fail);
        let process = |log| Self { program: program.to_owned(), pid, child: Mutex::new(Some(child)), log };
        match log {
            Ok(log) => Ok(process(log)),
            Err(error) => {
                let process = process(HostLog::silent());
                process.kill();
                process.reap();
                Err(error)
            }
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// For messages.
    pub fn name(&self) -> String {
        format!("the helper process ({}, pid {})", self.program.display(), self.pid.as_raw_nonzero())
    }

    /// What it last said.
    pub fn last_words(&self) -> Option<String> {
        self.log.last_words()
    }

    /// Kills it and all it started in its group. No harm when it has ended.
    pub fn kill(&self) {
        // Not reaped while this lock is held, so the group cannot be a stranger's.
        let child = self.child.lock();
        if child.is_some() {
            // An error means that there is nobody left to kill.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Waits for its end without reaping it: no longer than `limit`, if there is one. True when it has ended.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let end = limit.map(|limit| Instant::now() + limit);
        // Looking instead of blocking when there is a limit: the system call has none.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let options = if end.is_some() { options | WaitIdOptions::NOHANG } else { options };
        loop {
            match waitid(WaitId::Pid(self.pid), options) {
                Ok(Some(_)) => return true,
                // Reaped by someone else, or never to be reaped because the process ignores SIGCHLD.
                Err(Errno::CHILD) => return true,
                Ok(None) | Err(_) => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Reaps it after it has ended, with what is left of its group. Says how it ended, when that is known.
    pub fn reap(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock();
        let mut ended = child.take()?;
        // Before reaping: until then the number of the group belongs to this helper.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = ended.wait().ok();
        self.log.drain();
        status
    }
}

/// How a process ended, in words.
pub(super) fn describe_exit(status: Option<ExitStatus>) -> String {
    let Some(status) = status else {
        return "ended, it is not known how".to_owned();
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended with signal {signal}{}", signal_name(signal)),
        (None, Some(code)) if code > 128 => {
            format!(
                "ended with exit status {code}: a shell says so of signal {}{}",
                code - 128,
                signal_name(code - 128)
            )
        }
        (None, Some(code)) => format!("ended with exit status {code}"),
        (None, None) => format!("ended: {status}"),
    }
}

/// Whether a process ended as a failed assert ends it.
pub(super) fn is_abort(status: Option<ExitStatus>) -> bool {
    status.is_some_and(|s| s.signal() == Some(libc::SIGABRT) || s.code() == Some(128 + libc::SIGABRT))
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGILL => " (SIGILL)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}

/// Marks every descriptor but the first three to be closed by exec: llama.cpp opens files that would otherwise be open in
/// the helper too, and keep a device or a pipe alive.
fn close_other_descriptors_on_exec() -> std::io::Result<()> {
    let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: close_range takes three numbers and touches no memory. With CLOEXEC it closes nothing yet.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::abort(6, "signal 6 (SIGABRT)")]
    #[case::killed(9, "signal 9 (SIGKILL)")]
    #[case::success(0, "exit status 0")]
    #[case::failure(1 << 8, "exit status 1")]
    #[case::shell(134 << 8, "exit status 134: a shell says so of signal 6 (SIGABRT)")]
    fn ends_are_described(#[case] raw: i32, #[case] text: &str) {
        assert_eq!(describe_exit(Some(ExitStatus::from_raw(raw))), format!("ended with {text}"));
    }

    #[rstest]
    #[case(6, true)]
    #[case(134 << 8, true)]
    #[case(9, false)]
    #[case(0, false)]
    fn aborts_are_told_from_other_ends(#[case] raw: i32, #[case] abort: bool) {
        assert_eq!(is_abort(Some(ExitStatus::from_raw(raw))), abort);
    }
}
