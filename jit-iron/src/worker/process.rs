//! A worker as a process: started, limited, read from, ended with all its descendants.

use super::ending::{Captured, Ending, Exit};
use super::folder::{WorkerFolder, disk_usage};
use super::orphans::{Family, Process, new_mark};
use super::protocol::LINE_BYTES;
use super::{WorkerCommand, WorkerLimits};
use crate::settings::GGML_HSA_JIT_JOB;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How often the folder and the process itself are polled while a job runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How often a process that is about to end is polled.
const END_INTERVAL: Duration = Duration::from_millis(2);
/// How long a worker that has closed its output may take to end, so that it can be said how.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long killed processes may take to disappear.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// A running worker, the leader of a process group. Dropping it kills it and everything it started.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    family: Family,
    /// None once it is reaped: its number may then belong to another process.
    child: Option<Child>,
    /// A socket instead of a pipe: writing to a pipe without a reader raises SIGPIPE, which ends a host that does not expect it.
    input: Option<UnixStream>,
    output: ChildStdout,
    /// None once it is closed.
    errors: Option<ChildStderr>,
    /// What was read behind the last line.
    rest: Vec<u8>,
    /// Processes that belong to the worker itself; None when jobs are not swept.
    spared: Option<Vec<Process>>,
    folder: WorkerFolder,
    folder_bytes: u64,
}

/// A process was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("cannot create a folder for a kernel compiler in {}: {source}", parent.display())]
    Folder { parent: PathBuf, source: io::Error },
    #[error("cannot start the kernel compiler {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot limit what the kernel compiler {} may use: {source}", program.display())]
    Limit { program: PathBuf, source: io::Error },
}

impl WorkerProcess {
    /// Starts `command` under `limits`, with a folder in `parent`.
    pub fn start(command: &WorkerCommand, limits: &WorkerLimits, parent: &Path) -> Result<Self, SpawnError> {
        let folder =
            WorkerFolder::create(parent).map_err(|source| SpawnError::Folder { parent: parent.to_owned(), source })?;
        let fail = |source| SpawnError::Start { program: command.program.clone(), source };
        let (input, theirs) = UnixStream::pair().map_err(fail)?;
        // It writes nothing there.
        theirs.shutdown(Shutdown::Write).map_err(fail)?;
        let mark = new_mark();
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .env("TMPDIR", folder.temporary())
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .env(GGML_HSA_JIT_JOB.name, &mark)
            .current_dir(folder.temporary())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group, so that one signal ends it with what it started, and Ctrl-C reaches the host alone.
            .process_group(0)
            .spawn()
            .map_err(fail)?;
        let family = Family { leader: Pid::from_child(&child), mark };
        let (Some(output), errors @ Some(_)) = (child.stdout.take(), child.stderr.take()) else {
            // Both were requested; without them the process is of no use.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(fail(io::Error::other("its output cannot be read")));
        };
        let process = Self {
            family,
            child: Some(child),
            input: Some(input),
            output,
            errors,
            rest: Vec::new(),
            spared: None,
            folder,
            folder_bytes: limits.folder_bytes,
        };
        // From here on, dropping it ends it.
        process.errors.iter().try_for_each(|errors| ioctl_fionbio(errors, true)).map_err(|error| fail(error.into()))?;
        ioctl_fionbio(&process.output, true).map_err(|error| fail(error.into()))?;
        limits
            .apply(process.family.leader)
            .map_err(|source| SpawnError::Limit { program: command.program.clone(), source })?;
        Ok(process)
    }

    /// Where it writes.
    pub fn folder(&self) -> &WorkerFolder {
        &self.folder
    }

    /// Whether it can be given a job: it runs and has sent nothing unasked.
    pub fn is_ready(&self) -> bool {
        let mut byte = [0];
        self.exit().is_none() && self.rest.is_empty() && read(&self.output, &mut byte) == Err(Errno::AGAIN)
    }

    /// Sends `request`, a line, if there is one, and waits for a line, no longer than `time`. The line is returned without its
    /// end, and `captured` takes what is printed meanwhile.
    ///
    /// After an error the worker is unusable.
    pub fn ask(&mut self, request: &[u8], time: Duration, captured: &mut Captured<'_>) -> Result<Vec<u8>, Ending> {
        let start = Instant::now();
        let mut unsent = request;
        let mut look = start + LOOK_INTERVAL;
        loop {
            self.send(&mut unsent)?;
            let line = self.take_output(captured)?;
            self.take_errors(captured, CHUNKS)?;
            let now = Instant::now();
            if line.is_some() || now >= look {
                if disk_usage(self.folder.path(), self.folder_bytes) > self.folder_bytes {
                    return Err(Ending::Folder);
                }
                // A program that inherited the output keeps it open when the worker has ended.
                let exit = if line.is_none() { self.exit() } else { None };
                if let Some(exit) = exit {
                    self.take_errors(captured, usize::MAX)?;
                    return Err(Ending::Ended(exit));
                }
                look = Instant::now() + LOOK_INTERVAL;
            }
            if let Some(line) = line {
                // It was printed before the line was sent.
                self.take_errors(captured, usize::MAX)?;
                if !unsent.is_empty() {
                    return Err(Ending::ProtocolError("it answered before a request".into()));
                }
                return Ok(line);
            }
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Ending::Time);
            }
            self.wait(!unsent.is_empty(), left.min(look.saturating_duration_since(Instant::now())));
        }
    }

    /// Sends what fits.
    fn send(&self, unsent: &mut &[u8]) -> Result<(), Ending> {
        let Some(input) = self.input.as_ref().filter(|_| !unsent.is_empty()) else { return Ok(()) };
        match send(input, unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => *unsent = &unsent[sent..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Err(Ending::NotTaken(self.wait_for_exit(LAST_WORDS))),
        }
        Ok(())
    }

    /// Reads its output; a line, when one is complete.
    fn take_output(&mut self, captured: &mut Captured<'_>) -> Result<Option<Vec<u8>>, Ending> {
        let mut chunk = vec![0; CHUNK_BYTES];
        match read(&self.output, &mut chunk[..]) {
            Ok(0) => {
                let exit = self.wait_for_exit(LAST_WORDS);
                self.take_errors(captured, usize::MAX)?;
                return Err(exit.map_or(Ending::Closed, Ending::Ended));
            }
            Ok(length) => self.rest.extend_from_slice(&chunk[..length]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(Ending::ProtocolError(format!("its output cannot be read: {error}"))),
        }
        let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') else {
            if self.rest.len() > LINE_BYTES {
                return Err(Ending::ProtocolError(format!("it sent a line of more than {LINE_BYTES} bytes")));
            }
            return Ok(None);
        };
        let behind = self.rest.split_off(end + 1);
        let mut line = std::mem::take(&mut self.rest);
        line.pop();
        if !behind.is_empty() {
            let quote = super::protocol::quote(&behind);
            return Err(Ending::ProtocolError(format!("it answered more than once, with {quote}")));
        }
        Ok(Some(line))
    }

    /// Reads what it prints, up to `chunks` times.
    fn take_errors(&mut self, captured: &mut Captured<'_>, chunks: usize) -> Result<(), Ending> {
        let mut chunk = vec![0; CHUNK_BYTES];
        for _ in 0..chunks {
            let Some(errors) = &self.errors else { return Ok(()) };
            match read(errors, &mut chunk[..]) {
                Ok(0) => self.errors = None,
                Ok(length) => captured.add(&chunk[..length]).map_err(|_| Ending::Printed)?,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => self.errors = None,
            }
        }
        Ok(())
    }

    /// Sleeps until something can be read, or sent if there is something to send, but no longer than `limit`.
    fn wait(&self, sending: bool, limit: Duration) {
        let mut fds = vec![PollFd::new(&self.output, PollFlags::IN)];
        fds.extend(self.errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
        if let Some(input) = self.input.as_ref().filter(|_| sending) {
            fds.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::OUT));
        }
        // Not zero: that would be spinning until the time has passed.
        let limit = limit.max(Duration::from_millis(1));
        let limit =
            Timespec { tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() };
        // An error means that it is to be tried again, as the caller does.
        let _ = poll(&mut fds, Some(&limit));
    }

    /// How it ended, if it has. It is not reaped by that.
    fn exit(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.family.leader), options) {
            Ok(Some(status)) => Some(Exit::of(&status)),
            // Reaped by someone else, or never to be reaped because the host ignores SIGCHLD.
            Err(Errno::CHILD) => Some(Exit::Unknown),
            Ok(None) | Err(_) => None,
        }
    }

    fn wait_for_exit(&self, limit: Duration) -> Option<Exit> {
        let end = Instant::now() + limit;
        loop {
            let exit = self.exit();
            if exit.is_some() || Instant::now() >= end {
                return exit;
            }
            std::thread::sleep(END_INTERVAL);
        }
    }

    /// From now on, every new descendant was left behind by a job; see [`WorkerProcess::sweep`].
    pub fn spare_present(&mut self) {
        self.spared = Some(self.family.members());
    }

    /// Kills what a job left behind, if sweeping is enabled.
    pub fn sweep(&self) {
        if let Some(spared) = &self.spared {
            self.warn_if_left(self.family.sweep(spared, KILL_LIMIT));
        }
    }

    /// Ends it, by the end of its input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for its end, but no longer than until `end`.
    pub fn wait_until(&self, end: Instant) {
        self.wait_for_exit(end.saturating_duration_since(Instant::now()));
    }

    /// Kills it and everything it started. Has no effect when it has ended.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Before the worker ends: its descendants are known as such by their parents.
        let relatives = self.family.members();
        // An error means that no process is left to kill.
        let _ = kill_process_group(self.family.leader, Signal::KILL);
        relatives.iter().for_each(Process::kill);
        self.warn_if_left(self.family.sweep(&[], KILL_LIMIT));
        if self.wait_for_exit(KILL_LIMIT).is_some() {
            // Already reaped by someone else, if this fails.
            let _ = child.wait();
        } else {
            tracing::warn!("the kernel compiler, process {}, does not end although it was killed", child.id());
        }
    }

    fn warn_if_left(&self, count: usize) {
        if count > 0 {
            let (leader, mark) = (self.family.leader.as_raw_nonzero(), &self.family.mark);
            tracing::warn!(
                "{count} processes of the kernel compiler, process {leader}, do not end although they were killed; they have \
                 {GGML_HSA_JIT_JOB}={mark} in their environment"
            );
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

const CHUNK_BYTES: usize = 65536;
/// How often what is printed is read before the time and the output are looked at again.
const CHUNKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: &WorkerLimits) -> (tempfile::TempDir, WorkerProcess) {
        let parent = tempfile::tempdir().unwrap();
        let command = WorkerCommand::new("sh", ["-c", script]);
        let process = WorkerProcess::start(&command, limits, parent.path()).unwrap();
        (parent, process)
    }

    fn ask(process: &mut WorkerProcess, request: &[u8], seconds: f32) -> (Result<Vec<u8>, Ending>, Vec<u8>) {
        let mut captured = Captured::new(1 << 20, "k", None);
        let time = Duration::from_secs_f32(seconds);
        let answer = process.ask(request, time, &mut captured);
        (answer, captured.into_bytes().to_vec())
    }

    #[test]
    fn a_line_for_a_line() {
        let (_parent, mut process) =
            shell("while read -r line; do echo heard $line >&2; echo $line; done", &WorkerLimits::default());
        for line in ["one", "two"] {
            assert!(process.is_ready());
            let (answer, printed) = ask(&mut process, format!("{line}\n").as_bytes(), 20.0);
            assert_eq!(answer, Ok(line.as_bytes().to_vec()));
            assert_eq!(String::from_utf8(printed).unwrap(), format!("heard {line}\n"));
        }
    }

    #[test]
    fn a_request_larger_than_the_buffers_is_sent_as_it_is_taken() {
        let (_parent, mut process) = shell("sleep 0.1; head -c 3000000 | wc -c", &WorkerLimits::default());
        let (answer, _) = ask(&mut process, &vec![b'x'; 3_000_000], 20.0);
        assert_eq!(String::from_utf8(answer.unwrap()).unwrap().trim(), "3000000");
    }

    #[test]
    fn an_answer_before_the_request_was_read_is_none() {
        let (_parent, mut process) = shell("echo early; sleep 1000", &WorkerLimits::default());
        let error = ask(&mut process, &vec![b'x'; 3_000_000], 20.0).0.unwrap_err();
        assert_eq!(error, Ending::ProtocolError("it answered before a request".into()));
    }

    #[test]
    fn a_worker_that_ended_is_not_ready_and_takes_nothing() {
        let (_parent, mut process) = shell("exit 3", &WorkerLimits::default());
        process.wait_until(Instant::now() + Duration::from_secs(20));
        assert!(!process.is_ready());
        assert_eq!(ask(&mut process, b"x\n", 20.0).0, Err(Ending::NotTaken(Some(Exit::Code(3)))));
    }

    #[test]
    fn the_folder_and_the_variables_of_a_worker() {
        let script = "read line; test $TMPDIR = $(pwd) && test -n \"$GGML_HSA_JIT_JOB\" && echo $TMPDIR";
        let (parent, mut process) = shell(script, &WorkerLimits::default());
        let temporary = process.folder().temporary();
        assert!(temporary.starts_with(parent.path()));
        assert_eq!(ask(&mut process, b"\n", 20.0).0.unwrap(), temporary.as_os_str().as_encoded_bytes());
        drop(process);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let start = |program: &str, parent: &Path| {
            WorkerProcess::start(&WorkerCommand::new(program, [""; 0]), &WorkerLimits::default(), parent)
                .unwrap_err()
                .to_string()
        };
        let error = start("/nonexistent/compiler", parent.path());
        assert!(error.starts_with("cannot start the kernel compiler /nonexistent/compiler: No such file"), "{error}");
        let error = start("true", Path::new("/proc/nonexistent"));
        assert!(error.contains("cannot create a folder") && error.contains("/proc/nonexistent"), "{error}");
    }
}
