//! The folder of one boot: its logs, its command lines, and the files host and guest share. The newest stay. And what is known
//! of a machine that did not come up, or went down.

use crate::workspace;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, fs};

/// Folder below `target`.
const FOLDER: &str = "vm-logs";
const KEPT: usize = 24;

#[derive(Debug)]
pub struct Logs {
    pub dir: PathBuf,
}

impl Logs {
    /// Makes a folder for a machine, and removes the oldest.
    pub fn create(machine: &str) -> Result<Self> {
        Self::create_in(&workspace::target().join(FOLDER), machine)
    }

    fn create_in(all: &Path, machine: &str) -> Result<Self> {
        fs::create_dir_all(all).with_context(|| format!("cannot create {}", all.display()))?;
        remove_oldest(all, KEPT - 1)?;
        let milliseconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        // Names sort by time; the end makes boots at the same moment differ.
        let dir =
            tempfile::Builder::new().prefix(&format!("{milliseconds}-{machine}-")).rand_bytes(4).tempdir_in(all)?;
        let dir = fs::canonicalize(dir.keep())?;
        fs::create_dir(dir.join("share"))?;
        Ok(Self { dir })
    }

    /// The folder the guest can write to.
    pub fn share(&self) -> PathBuf {
        self.dir.join("share")
    }

    /// The guest's first serial line.
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// What the guest's kernel had said when the guest powered off.
    fn kernel(&self) -> PathBuf {
        self.share().join("dmesg.txt")
    }

    /// The logs there can be, with what they are.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        [
            ("the guest's console", self.console()),
            ("the guest kernel's messages", self.kernel()),
            ("QEMU's messages", self.dir.join("qemu.log")),
            ("the device server's messages", self.dir.join("server.log")),
        ]
        .into_iter()
    }

    /// Sends both outputs of a command to `NAME.log`, and notes its command line.
    pub fn record(&self, command: &mut Command, name: &str) -> Result<()> {
        let log = File::create(self.dir.join(format!("{name}.log")))?;
        command.stderr(log.try_clone()?).stdout(log);
        fs::write(self.dir.join(format!("{name}.sh")), command_line(command))?;
        Ok(())
    }
}

/// A command as a shell takes it.
fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| crate::simulation::quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ") + "\n"
}

fn remove_oldest(all: &Path, kept: usize) -> Result<()> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(all)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    folders.sort();
    for folder in &folders[..folders.len().saturating_sub(kept)] {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove the old logs {}", folder.display()))?;
    }
    Ok(())
}

/// QEMU says this of every device that is served.
const HARMLESS: &str = "Could not enable error recovery";

/// The last lines of a file that say something; none if it is not there.
pub fn last_lines(path: &Path, count: usize) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
    let says_something = |line: &&str| !line.trim().is_empty() && !line.contains(HARMLESS);
    let lines: Vec<&str> = text.lines().filter(says_something).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Lines of each log in a message.
const LINES: usize = 15;

/// A machine that did not come up, or went down while it was used.
///
/// It is an error of its own, apart from programs that fail in a machine that works.
#[derive(Debug)]
pub struct BootFailure {
    reason: String,
    /// The last lines of each log that has any, with what it is.
    last: Vec<(&'static str, String)>,
    /// The folder with the complete logs.
    logs: PathBuf,
}

impl BootFailure {
    pub fn new(reason: impl Into<String>, logs: &Logs) -> Self {
        let last = logs.kinds().map(|(name, path)| (name, last_lines(&path, LINES)));
        let last = last.filter(|(_, lines)| !lines.is_empty()).collect();
        Self { reason: reason.into(), last, logs: logs.dir.to_path_buf() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let all = tempfile::tempdir().unwrap();
        for name in ["1000-a", "1001-b", "1002-c"] {
            fs::create_dir(all.path().join(name)).unwrap();
        }
        remove_oldest(all.path(), 2).unwrap();
        assert!(!all.path().join("1000-a").exists() && all.path().join("1001-b").exists());
        let logs = Logs::create_in(all.path(), "7.2-npu4").unwrap();
        assert!(logs.share().is_dir() && logs.dir.to_string_lossy().contains("7.2-npu4"));
    }

    #[test]
    fn the_end_of_a_log_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one\r\n\n  \ntwo\r\nx: Could not enable error recovery for y\nthree\n").unwrap();
        assert_eq!(last_lines(&path, 2), "two\nthree");
        assert_eq!(last_lines(&dir.path().join("none"), 2), "");
    }

    #[test]
    fn command_lines_can_be_used_again() {
        let mut command = Command::new("/q/qemu");
        command.args(["-append", "a b"]);
        assert_eq!(command_line(&command), "'/q/qemu' '-append' 'a b'\n");
    }
}
