//! A machine that did not come up, or went down: what is known of it.

use super::logs::Logs;
use std::fmt;
use std::path::PathBuf;

/// Lines of each log in a message.
const LINES: usize = 15;

/// A machine that did not come up, or went down while it was used.
///
/// It is an error of its own, apart from programs that fail in a machine that works.
#[derive(Debug)]
pub struct BootFailure {
    /// What happened.
    reason: String,
    /// The last lines of each log that has any, with what it is.
    last: Vec<(&'static str, String)>,
    /// The folder with the complete logs.
    logs: PathBuf,
}

impl BootFailure {
    /// Collects what the logs say.
    pub fn new(reason: impl Into<String>, logs: &Logs) -> Self {
        let last = logs.kinds().map(|(name, path)| (name, super::logs::last_lines(&path, LINES)));
        let last = last.filter(|(_, lines)| !lines.is_empty()).collect();
        Self { reason: reason.into(), last, logs: logs.dir().to_path_buf() }
    }
}

impl fmt::Display for BootFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the virtual machine failed: {}", self.reason)?;
        for (name, lines) in &self.last {
            writeln!(f, "--- last lines of {name}")?;
            writeln!(f, "{lines}")?;
        }
        write!(f, "--- complete logs and command lines: {}", self.logs.display())
    }
}

impl std::error::Error for BootFailure {}
