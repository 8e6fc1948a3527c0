//! Running a program to its end: both outputs captured, a time limit, and an end that is described in words.
//!
//! The commands judge stock programs by what they print, because their exit codes prove little. An end by a signal is
//! distinguished from an exit code: "llama.cpp never aborts because of us" is one of the things checked.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use wait4::Wait4;

/// How a program ended and what it printed.
#[derive(Debug)]
pub struct Finished {
    /// The program's own end, or what it was after we killed it.
    pub status: ExitStatus,
    /// Standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, with invalid UTF-8 replaced.
    pub stderr: String,
    /// Wall time from start to end.
    pub elapsed: Duration,
    /// Whether it was killed because the time limit passed.
    pub timed_out: bool,
    /// The most memory it had resident at one time, in bytes: its own, shared and mapped files' pages alike. Linux counts
    /// from the fork on, so this is at least what we had resident then, a few MB.
    pub peak_resident: u64,
}

impl Finished {
    /// Exit code 0 and no time-out.
    pub fn success(&self) -> bool {
        self.status.success() && !self.timed_out
    }

    /// The end in words, for a message.
    pub fn describe(&self) -> String {
        if self.timed_out {
            return format!("stopped after {} s: the time limit", self.elapsed.as_secs());
        }
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}{}", signal_name(signal)),
            (None, None) => "ended without an exit code".to_owned(),
        }
    }

    /// Errors with the last output of `program` if it failed.
    pub fn ensure(&self, program: &str) -> Result<()> {
        ensure!(self.success(), "{program}: {}\n{}", self.describe(), self.last_lines(12));
        Ok(())
    }

    /// What one of our programs printed.
    pub fn json<T: DeserializeOwned>(&self, program: &str) -> Result<T> {
        self.ensure(program)?;
        serde_json::from_str(&self.stdout).with_context(|| format!("{program} printed no report but {:?}", self.stdout))
    }

    /// The last lines of standard error that say something, for a message.
    pub fn last_lines(&self, lines: usize) -> String {
        let kept: Vec<&str> = meaningful(&self.stderr).collect();
        kept[kept.len().saturating_sub(lines)..].join("\n")
    }
}

/// Lines of a ggml program's standard error without those every run prints: the compiled-in backend folder is absent
/// outside a Debian system, and ggml says so once per backend family.
pub fn meaningful(stderr: &str) -> impl Iterator<Item = &str> {
    stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .filter(|line| !line.starts_with("ggml_backend_load_best: failed to enumerate"))
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL: an instruction this CPU does not have)",
        6 => " (SIGABRT: it aborted)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL: killed, perhaps out of memory)",
        11 => " (SIGSEGV: invalid memory access)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

/// Runs `command` to its end, at most for `limit`, with nothing on standard input.
///
/// `on_stdout` sees standard output as it arrives. Errors only if the program cannot be started.
pub fn run_watched(command: &mut Command, limit: Duration, mut on_stdout: impl FnMut(&[u8])) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let (sender, receiver) = mpsc::channel();
    let mut streams = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        streams.push(forward(stdout, false, sender.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        streams.push(forward(stderr, true, sender.clone()));
    }
    drop(sender);

    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut timed_out = false;
    loop {
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok((true, bytes)) => stderr.extend_from_slice(&bytes),
            Ok((false, bytes)) => {
                on_stdout(&bytes);
                stdout.extend_from_slice(&bytes);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if !timed_out && started.elapsed() > limit {
            timed_out = true;
            child.kill().with_context(|| format!("cannot stop {name}"))?;
        }
    }
    let ended = child.wait4().with_context(|| format!("cannot wait for {name}"))?;
    for stream in streams {
        let _ = stream.join();
    }
    Ok(Finished {
        status: ended.status,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        elapsed: started.elapsed(),
        timed_out,
        peak_resident: ended.rusage.maxrss,
    })
}

/// [`run_watched`] without a watcher.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    run_watched(command, limit, |_| ())
}

/// Runs `work` for each item in `jobs` threads, starting in the order of the items, in which the results come.
pub fn parallel<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let run = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(done) };
            // Nothing more is started after a failure.
            let result = work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            done.push((index, result));
        }
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(run)).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ends.collect::<Result<Vec<_>>>()
    })?;
    let mut results: Vec<_> = results.into_iter().flatten().collect();
    results.sort_unstable_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a helper program (apt, dpkg, pip, ...) that must succeed; its error output becomes the error.
pub fn run_helper(command: &mut Command, limit: Duration) -> Result<String> {
    let finished = run(command, limit)?;
    if !finished.success() {
        let line = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ");
        finished.ensure(&format!("`{line}`"))?;
    }
    Ok(finished.stdout)
}

/// Takes ggml's, llama.cpp's and the dynamic loader's settings out of a command's environment: what a command reports
/// must not depend on what the caller's shell has exported.
pub fn clear_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_foreign(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

/// Whether a variable of the caller's must not reach a program. Settings of our library (kernel folder, logging) stay;
/// its devices and its statistics file are the command's to choose.
fn is_foreign(name: &str) -> bool {
    match name {
        "GGML_HSA_DEVICES" | "GGML_HSA_STATS" => true,
        _ if name.starts_with("GGML_HSA_") => false,
        _ => ["GGML_", "LLAMA_", "LD_"].iter().any(|prefix| name.starts_with(prefix)),
    }
}

fn forward(
    mut from: impl Read + Send + 'static,
    is_error: bool,
    to: mpsc::Sender<(bool, Vec<u8>)>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        // A read error is the end of the stream, as it is for the shell.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.send((is_error, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    })
}

/// Whether this program runs as the superuser.
pub fn is_superuser() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The same command as the last words of another, `line`, which has at least one word.
pub fn prefixed(line: Vec<OsString>, command: &Command) -> Command {
    let mut words = line.into_iter();
    let mut outer = Command::new(words.next().unwrap_or_default());
    outer.args(words).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    outer
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A program that ended with what `wait` returns and printed these.
    pub fn ended(status: i32, stdout: &str, stderr: &str) -> Finished {
        Finished {
            status: ExitStatus::from_raw(status),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            elapsed: Duration::ZERO,
            timed_out: false,
            peak_resident: 0,
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_code_are_kept() {
        let end = run(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(20)).unwrap();
        assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("out\n", "err\n"));
        assert!(!end.success());
        assert_eq!(end.describe(), "exit code 3");
    }

    #[test]
    fn a_signal_is_not_an_exit_code() {
        let end = run(&mut shell("kill -ABRT $$"), Duration::from_secs(20)).unwrap();
        assert_eq!(end.status.code(), None);
        assert!(end.describe().starts_with("ended by signal 6 (SIGABRT"));
    }

    #[test]
    fn the_time_limit_ends_the_program() {
        let end = run(&mut shell("exec sleep 30"), Duration::from_millis(300)).unwrap();
        assert!(end.timed_out && !end.success() && end.elapsed < Duration::from_secs(20));
        assert!(end.describe().contains("time limit"));
    }

    #[test]
    fn results_come_in_order_from_several_threads() {
        let items: Vec<usize> = (0..20).collect();
        assert_eq!(parallel(&items, 4, |item| Ok(item + 1)).unwrap(), (1..21).collect::<Vec<_>>());
        assert!(parallel(&items, 4, |item| if *item == 7 { anyhow::bail!("seven") } else { Ok(()) }).is_err());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(&mut Command::new("/nowhere/program"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("/nowhere/program"));
    }

    #[test]
    fn only_settings_of_our_library_pass() {
        assert!(
            ["GGML_HSA_DEVICES", "GGML_BACKEND_PATH", "LLAMA_ARG_NGL", "LD_PRELOAD"]
                .iter()
                .all(|name| is_foreign(name))
        );
        assert!(!["GGML_HSA_KERNEL_DIR", "PATH", "RAYON_NUM_THREADS"].iter().any(|name| is_foreign(name)));
    }

    #[test]
    fn the_lines_of_every_run_are_left_out() {
        let text = "ggml_backend_load_best: failed to enumerate /x: No such file\n\nreal trouble\n";
        assert_eq!(meaningful(text).collect::<Vec<_>>(), ["real trouble"]);
    }
}
