//! Messages, through ggml's logger when there is one, else to standard error.
//!
//! Errors and warnings are always logged: a user who enables the NPU must learn why it is not used. Information is logged
//! only when `GGML_HSA_ENABLE_LOG` asks for it.
//!
//! A program may have put a logger of its own into ggml that drops what it gets (llama-bench does), or that is gone when a
//! backend ends. What a user must learn in any case, that the NPU is not used at all, goes to standard error ([`notice`]).

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// ggml's levels (`enum ggml_log_level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For people who look for a problem.
    Info = 2,
    /// A request could not be met as it was made; work continues.
    Warn = 3,
    /// A request failed.
    Error = 4,
}

/// Where messages go; a message is one line with its newline.
pub type Sink = Box<dyn Fn(Level, &str) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Sets the sink; the first call wins.
pub fn set_sink(sink: Sink) {
    SINK.set(sink).ok();
}

fn send(level: Level, message: &str) {
    let line = format!("ggml-hsa: {message}\n");
    match SINK.get() {
        Some(sink) => sink(level, &line),
        None => write(&line),
    }
}

/// Writes a line at once, whole. There is no one to tell when standard error is closed.
fn write(line: &str) {
    drop(std::io::stderr().write_all(line.as_bytes()));
}

/// Sends a warning to standard error, whatever the program does with ggml's log.
pub fn notice(message: &str) {
    write(&format!("ggml-hsa: warning: {message}\n"));
}

/// Sends information to standard error, if it is enabled, whatever the program does with ggml's log: llama.cpp's programs drop
/// information that comes while they load backends.
pub fn tell(message: impl FnOnce() -> String) {
    if is_verbose() {
        write(&format!("ggml-hsa: {}\n", message()));
    }
}

/// Logs an error.
pub fn error(message: &str) {
    send(Level::Error, message);
}

/// Logs a warning.
pub fn warn(message: &str) {
    send(Level::Warn, message);
}

/// Logs information that another setting enables.
pub fn say(message: &str) {
    send(Level::Info, message);
}

/// Sets whether information is logged; off by default.
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

/// Whether informational messages are logged.
pub fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Logs information, if that is enabled. The message is formatted only then.
pub fn info(message: impl FnOnce() -> String) {
    if is_verbose() {
        say(&message());
    }
}
