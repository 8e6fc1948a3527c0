//! How a worker is started.

use std::ffi::OsString;
use std::path::PathBuf;

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
    /// Whether to look for processes that a compilation left behind after each one that went well, too, and to kill them.
    ///
    /// Looking means to read about every process of the machine, twice, at tens of microseconds each: nothing beside the
    /// seconds that a toolchain takes, and a toolchain starts programs. A worker that compiles by itself, as the reference
    /// worker does, starts none and can do without. After a failure and at the end of a worker it is always done.
    pub sweep_after_each: bool,
}

impl WorkerCommand {
    /// `program` without arguments, which starts no programs.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable.
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// See [`WorkerCommand::sweep_after_each`].
    pub fn sweep_after_each(mut self, sweep: bool) -> Self {
        self.sweep_after_each = sweep;
        self
    }
}
