//! The compiler that asks workers.

use super::captured::Listener;
use super::job::Task;
use super::pool::Pool;
use super::{WorkerCommand, WorkerLimits};
use crate::compiler::{CompileError, KernelCompiler};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::{Node, Operation};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

type Requirement = dyn Fn() -> Result<(), String> + Send + Sync;
type Sources = dyn Fn(&dyn Operation, &Node, &Arch) -> String + Send + Sync;

/// Compiles in worker processes; see the [module](super).
///
/// Thread-safe: as many kernels are compiled at a time as [`WorkerLimits::workers`] says, and who asks for more waits for a
/// worker. Dropping it closes the workers' input, waits half a second, and kills what is left of them.
pub struct WorkerCompiler {
    folder: String,
    sources: Box<Sources>,
    requirement: Option<Box<Requirement>>,
    pool: Pool,
}

/// Options of a [`WorkerCompiler`].
pub struct WorkerCompilerBuilder {
    name: String,
    folder: String,
    command: WorkerCommand,
    sources: Box<Sources>,
    limits: WorkerLimits,
    work_folder: Option<PathBuf>,
    listener: Option<Arc<Listener>>,
    identity: Option<String>,
    requirement: Option<Box<Requirement>>,
}

impl WorkerCompiler {
    /// A compiler with a name, the command of its workers, and the digest of what a kernel is made from
    /// ([`KernelCompiler::sources`]). Nothing is started yet.
    pub fn builder(
        name: impl Into<String>,
        command: WorkerCommand,
        sources: impl Fn(&dyn Operation, &Node, &Arch) -> String + Send + Sync + 'static,
    ) -> WorkerCompilerBuilder {
        WorkerCompilerBuilder {
            name: name.into(),
            folder: String::new(),
            command,
            sources: Box::new(sources),
            limits: WorkerLimits::default(),
            work_folder: None,
            listener: None,
            identity: None,
            requirement: None,
        }
    }
}

impl WorkerCompiler {
    /// Starts a worker, if none has been, so that a missing toolchain is known before there is anything to compile.
    ///
    /// # Errors
    /// [`CompileError::Unavailable`] with what the worker said, or why it did not start.
    pub fn start(&self) -> Result<(), CompileError> {
        self.pool.lend().map(|lease| lease.give_back())
    }
}

impl WorkerCompilerBuilder {
    /// The folder of its kernels in a cache ([`KernelCompiler::folder`]). Empty unless set.
    pub fn folder(mut self, folder: impl Into<String>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: WorkerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Where workers write until a kernel is done; made if it is missing. The folder for temporary files unless set. The path
    /// must be UTF-8.
    pub fn work_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.work_folder = Some(path.into());
        self
    }

    /// Asks the compiler to print what it does, and passes on what it prints, as it comes: the kernel's name and bytes that may
    /// begin and end anywhere. The name is empty while a worker starts. Called by the threads that ask for kernels.
    pub fn verbose(mut self, listener: impl Fn(&str, &[u8]) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// What the workers must say they are ([`KernelCompiler::identity`]), when that is known before one is started. Kernels can
    /// then be looked up in a cache without starting one, and a worker of another version is refused.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Something without which the workers would start and make no kernel: asked before one is started to learn whether there is
    /// a compiler at all ([`KernelCompiler::available`]).
    pub fn requirement(mut self, requirement: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.requirement = Some(Box::new(requirement));
        self
    }

    /// Makes the compiler.
    pub fn build(self) -> WorkerCompiler {
        let parent = self.work_folder.unwrap_or_else(std::env::temp_dir);
        let pool = Pool::new(self.name, self.command, self.limits, parent, self.listener, self.identity);
        WorkerCompiler { folder: self.folder, sources: self.sources, requirement: self.requirement, pool }
    }
}

impl KernelCompiler for WorkerCompiler {
    fn name(&self) -> &str {
        &self.pool.name
    }

    fn folder(&self) -> &str {
        &self.folder
    }

    /// What the workers say; empty when they do not start. Starts a worker unless it was known before, which may take seconds.
    fn identity(&self) -> String {
        self.pool.identity().unwrap_or_default()
    }

    fn sources(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> String {
        (self.sources)(op, node, arch)
    }

    /// Starts a worker, if none has been.
    fn available(&self) -> Result<(), CompileError> {
        self.requirement.as_ref().map_or(Ok(()), |requirement| requirement()).map_err(CompileError::Unavailable)?;
        self.start()
    }

    /// See the trait. A worker that is ended for what it does has failed to compile the kernel; one that cannot be started, is
    /// ended by somebody else, or has no space left on the disk was unavailable. After three starts in a row that failed, or
    /// a worker that says that its toolchain is missing, all further calls are answered with the same reason.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        let pool = &self.pool;
        let mut lease = pool.lend()?;
        let Some(worker) = lease.worker() else {
            return Err(CompileError::Unavailable(format!("the {} compiler has lost its worker", pool.name)));
        };
        let (compiler, limits, listener) = (pool.name.as_str(), &pool.limits, pool.listener.as_deref());
        let task = Task { compiler, limits, listener, id: pool.next_job(), op, node, arch };
        let answer = task.run(worker);
        if answer.usable {
            lease.give_back();
        }
        answer.result
    }
}

impl fmt::Debug for WorkerCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pool { name, command, limits, parent, .. } = &self.pool;
        f.debug_struct("WorkerCompiler")
            .field("name", name)
            .field("folder", &self.folder)
            .field("command", command)
            .field("limits", limits)
            .field("work_folder", parent)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerCompilerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCompilerBuilder")
            .field("name", &self.name)
            .field("folder", &self.folder)
            .field("command", &self.command)
            .field("limits", &self.limits)
            .field("work_folder", &self.work_folder)
            .finish_non_exhaustive()
    }
}
