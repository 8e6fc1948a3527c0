//! How a worker is started, and what it may use, so that a compilation always ends and never harms the machine.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

/// The default: more do not help on a machine that runs a model at the same time.
const DEFAULT_WORKERS: usize = 4;

/// Limits of the workers of a [`WorkerCompiler`](super::WorkerCompiler).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Workers at a time, each of which compiles one kernel at a time; 0 counts as 1.
    pub workers: usize,
    /// Of one compilation.
    pub time: Duration,
    /// From the start of a worker to its first line.
    pub hello: Duration,
    /// Of the address space of each process, in bytes.
    pub memory_bytes: u64,
    /// Of what is printed during one compilation, in bytes; may all be buffered in memory.
    pub output_bytes: usize,
    /// Of each file, in bytes.
    pub file_bytes: u64,
    /// Of all files in the work folder and the temporary folder of a worker, in bytes on the disk, checked five times a
    /// second. Files that a compiler writes elsewhere are not counted.
    pub folder_bytes: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, NonZero::get).min(DEFAULT_WORKERS),
            time: Duration::from_secs(300),
            hello: Duration::from_secs(60),
            memory_bytes: 16 << 30,
            output_bytes: 64 << 20,
            file_bytes: 1 << 30,
            folder_bytes: 2 << 30,
        }
    }
}

impl WorkerLimits {
    /// Sets the limits that the kernel enforces, for a process and its children. No core files either: they
    /// would be as large as the memory.
    pub(super) fn apply(&self, pid: Pid) -> io::Result<()> {
        for (resource, wanted) in
            [(Resource::As, self.memory_bytes), (Resource::Fsize, self.file_bytes), (Resource::Core, 0)]
        {
            // The limit may be lower already; raising it is not allowed.
            let most = getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
            prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        Ok(())
    }
}

/// A number of bytes in the largest unit that shows it exactly.
pub(super) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// The program of a worker. Its environment is that of the host with some additions.
///
/// It is started in a temporary folder of its own, which is also its `TMPDIR`, so that paths among the arguments are best
/// absolute. A program without a directory is looked for in `PATH`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables to set, besides those of the host.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether to look for processes that a compilation left behind after each success, too, and to kill them.
    ///
    /// Looking means to read about every process of the machine, twice, at tens of microseconds each: nothing beside the
    /// seconds that a toolchain takes, and a toolchain starts programs. A worker that compiles on its own, as the reference
    /// worker does, starts none and can do without. After a failure and at the end of a worker it is always done.
    pub sweep_after_each: bool,
}

impl WorkerCommand {
    /// `program` with `arguments`, which starts no programs.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item: Into<OsString>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::process::{Command, Stdio};

    #[rstest]
    #[case(16 << 30, "16 GiB")]
    #[case(1536 << 20, "1536 MiB")]
    #[case(4096, "4 KiB")]
    #[case(1001, "1001 bytes")]
    #[case(0, "0 bytes")]
    fn sizes_are_shown_exactly(#[case] bytes: u64, #[case] text: &str) {
        assert_eq!(Bytes(bytes).to_string(), text);
    }

    #[test]
    fn the_documented_defaults() {
        let limits = WorkerLimits::default();
        assert!((1..=4).contains(&limits.workers), "{limits:?}");
        assert_eq!((limits.time.as_secs(), limits.hello.as_secs()), (300, 60));
        let bytes = [limits.memory_bytes, limits.output_bytes as u64, limits.file_bytes, limits.folder_bytes];
        assert_eq!(bytes.map(|bytes| Bytes(bytes).to_string()), ["16 GiB", "64 MiB", "1 GiB", "2 GiB"]);
    }

    #[test]
    fn limits_reach_the_process() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let limits = WorkerLimits { memory_bytes: 1 << 30, file_bytes: 1 << 20, ..WorkerLimits::default() };
        limits.apply(Pid::from_child(&child)).unwrap();
        let text = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let values = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(values("Max address space"), ["1073741824"; 2]);
        assert_eq!(values("Max file size"), ["1048576"; 2]);
        assert_eq!(values("Max core file size"), ["0"; 2]);
    }
}
