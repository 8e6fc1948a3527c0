//! What a worker printed, why it gave no answer, and what that says about the kernel.

use super::WorkerLimits;
use super::command::Bytes;
use crate::settings::{GGML_HSA_JIT_MEMORY_MAX, GGML_HSA_JIT_TIMEOUT};
use aie_ops::compiler::{CompileError, Failure};
use nix::sys::signal::Signal;
use rustix::process::WaitIdStatus;
use std::fmt;
use std::sync::Arc;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// With an exit status.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Another thread asked first.
    Unknown,
}

impl Exit {
    /// From what the system says.
    pub fn of(status: &WaitIdStatus) -> Self {
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, Some(code)) => Self::Code(code),
            (None, None) => Self::Unknown,
        }
    }

    fn is(self, signals: &[Signal]) -> bool {
        signals.iter().any(|signal| self == Self::Signal(*signal as i32))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "was killed by {signal}"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
            Self::Code(code) => write!(f, "ended with exit status {code}"),
            Self::Unknown => f.write_str("ended in an unknown way"),
        }
    }
}

/// Signals from outside: from the system when it runs out of memory or is shut down, or from a user.
const FROM_OUTSIDE: &[Signal] = &[Signal::SIGKILL, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT];
/// Among others, how programs end that run out of memory.
const PERHAPS_MEMORY: &[Signal] = &[Signal::SIGABRT, Signal::SIGSEGV, Signal::SIGBUS];

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The time has passed.
    Time,
    /// It printed more than it may.
    Printed,
    /// Its files are more than they may be.
    Folder,
    Ended(Exit),
    /// It closed its output, but runs.
    Closed,
    /// It ended, or closed its input, before it took the request.
    NotTaken(Option<Exit>),
    /// It violates the protocol: how.
    ProtocolError(String),
}

impl Ending {
    /// What happened, as the rest of a sentence about the worker, with what to do about it.
    fn describe(&self, limits: &WorkerLimits) -> String {
        match self {
            Self::Time => format!(
                "took longer than {} s and was stopped; set {GGML_HSA_JIT_TIMEOUT}, in seconds, to allow more",
                limits.time.as_secs_f64()
            ),
            Self::Printed => format!(
                "printed more than {} and was stopped; its output up to then shows what repeats",
                Bytes(limits.output_bytes as u64)
            ),
            Self::Folder => format!(
                "wrote more than {} into its work folder and was stopped; a kernel takes a few megabytes, so this is an error in \
                 its design",
                Bytes(limits.folder_bytes)
            ),
            Self::Ended(exit) if exit.is(&[Signal::SIGXFSZ]) => {
                format!("{exit} because it wrote a file of more than {}", Bytes(limits.file_bytes))
            }
            Self::Ended(exit) if exit.is(FROM_OUTSIDE) => format!(
                "{exit}, by the system because memory ran out, or by a user; nothing is known about this kernel; set \
                 {GGML_HSA_JIT_MEMORY_MAX} below the current {} if memory ran out",
                Bytes(limits.memory_bytes)
            ),
            Self::Ended(exit) if exit.is(PERHAPS_MEMORY) => format!(
                "{exit}; if it ran out of memory, set {GGML_HSA_JIT_MEMORY_MAX} to allow each of its processes more than {}",
                Bytes(limits.memory_bytes)
            ),
            Self::Ended(exit) => format!("{exit} instead of answering"),
            Self::Closed => "closed its output instead of answering".into(),
            Self::NotTaken(Some(exit)) => {
                format!("{exit} before it was given this kernel; nothing is known about the kernel")
            }
            Self::NotTaken(None) => "accepts no requests; nothing is known about this kernel".into(),
            Self::ProtocolError(what) => format!("violates the protocol: {what}"),
        }
    }

    /// The result of a kernel that a worker of `compiler` was compiling.
    pub fn of_job(&self, compiler: &str, limits: &WorkerLimits, captured: Captured<'_>) -> CompileError {
        let mut cause = format!("the {compiler} compiler {}", self.describe(limits));
        match self {
            Self::NotTaken(_) => return CompileError::Unavailable(cause),
            Self::Ended(exit) if exit.is(FROM_OUTSIDE) => return CompileError::Unavailable(cause),
            _ => {}
        }
        if let Some(line) = captured.last_line() {
            cause += &format!("; its last output: {line}");
        }
        CompileError::Failed(Failure { cause, output: captured.into_bytes() })
    }

    /// Why a worker of `compiler`, made by `program`, did not start.
    pub fn of_start(&self, compiler: &str, program: &str, limits: &WorkerLimits, captured: &Captured<'_>) -> String {
        let what = match self {
            Self::Time => format!("printed nothing for {} s and was stopped", limits.hello.as_secs_f64()),
            other => other.describe(limits),
        };
        let words = captured.last_line().map_or_else(String::new, |line| format!("; its last output: {line}"));
        format!("the {compiler} compiler does not start: {program} {what}{words}")
    }
}

/// Receives what a compiler prints, as it comes: the kernel's name and the bytes, which may end anywhere. Called by the thread
/// that requested the kernel.
pub(super) type Listener = dyn Fn(&str, &[u8]) + Send + Sync;

/// It printed more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// The output of one compilation.
pub(super) struct Captured<'a> {
    bytes: Vec<u8>,
    limit: usize,
    kernel: &'a str,
    listener: Option<&'a Listener>,
}

impl<'a> Captured<'a> {
    /// Nothing yet, of at most `limit` bytes.
    pub fn new(limit: usize, kernel: &'a str, listener: Option<&'a Listener>) -> Self {
        Self { bytes: Vec::new(), limit, kernel, listener }
    }

    /// Adds what came, as far as it fits.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), TooMuch> {
        let fitting = &bytes[..bytes.len().min(self.limit - self.bytes.len())];
        self.bytes.extend_from_slice(fitting);
        if let Some(listener) = self.listener.filter(|_| !fitting.is_empty()) {
            listener(self.kernel, fitting);
        }
        if fitting.len() < bytes.len() { Err(TooMuch) } else { Ok(()) }
    }

    /// All of it.
    pub fn into_bytes(self) -> Arc<[u8]> {
        self.bytes.into()
    }

    /// The last line that is not blank, for messages.
    pub fn last_line(&self) -> Option<String> {
        let tail = &self.bytes[self.bytes.len().saturating_sub(4096)..];
        let text = String::from_utf8_lossy(tail);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(200).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::sync::Mutex;

    #[rstest]
    #[case(Ending::NotTaken(Some(Exit::Code(1))), "ended with exit status 1 before it was given this kernel")]
    #[case(Ending::NotTaken(None), "accepts no requests")]
    fn what_was_not_taken_says_nothing_about_the_kernel(#[case] ending: Ending, #[case] text: &str) {
        let error = ending.of_job("iron", &WorkerLimits::default(), Captured::new(100, "k", None));
        let CompileError::Unavailable(cause) = error else { panic!("{error:?}") };
        assert!(cause.starts_with(&format!("the iron compiler {text}")), "{cause}");
    }

    #[test]
    fn all_that_fits_is_kept_and_passed_on() {
        let heard = Mutex::new(Vec::new());
        let heard = Arc::new(heard);
        let sink = Arc::clone(&heard);
        let listener = move |kernel: &str, bytes: &[u8]| sink.lock().unwrap().push((kernel.to_owned(), bytes.to_vec()));
        let mut captured = Captured::new(5, "k", Some(&listener));
        assert_eq!(captured.add(b"abc"), Ok(()));
        assert_eq!(captured.add(b"de"), Ok(()));
        assert_eq!(captured.add(b""), Ok(()));
        assert_eq!(captured.add(b"f"), Err(TooMuch));
        let pieces = [("k".to_owned(), b"abc".to_vec()), ("k".to_owned(), b"de".to_vec())];
        assert_eq!(*heard.lock().unwrap(), pieces);
        assert_eq!(*captured.into_bytes(), *b"abcde");
    }

    #[test]
    fn the_last_line_that_says_something() {
        let mut captured = Captured::new(1 << 20, "k", None);
        assert_eq!(captured.last_line(), None);
        captured.add(b"one\n two \n\n").unwrap();
        assert_eq!(captured.last_line().unwrap(), "two");
        captured.add(&[b'x'; 100_000]).unwrap();
        assert_eq!(captured.last_line().unwrap().len(), 200);
    }
}
