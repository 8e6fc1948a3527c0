//! The compiler that asks workers: request, reply, result files.

use super::ending::{Captured, Ending, Listener};
use super::folder::JobFolder;
use super::pool::{self, Pool};
use super::process::WorkerProcess;
use super::protocol::{self, NoKernel, Reply, Request};
use super::{WorkerCommand, WorkerLimits};
use crate::kernel_files::assemble;
use crate::kernel_source::KernelSource;
use crate::wanted::Wanted;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, DesignName, Failure, KernelCompiler};
use aie_ops::{Node, Operation, fit};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

type Requirement = dyn Fn() -> Result<(), CompileError> + Send + Sync;

/// Compiles in worker processes; see the [module](super).
///
/// Thread-safe: as many kernels are compiled at a time as [`WorkerLimits::workers`] says; further callers wait for a
/// worker. Dropping it closes the workers' input, waits half a second, and kills what is left of them.
pub struct WorkerCompiler {
    folder: String,
    sources: String,
    requirement: Option<Box<Requirement>>,
    designs: Option<PathBuf>,
    pool: Pool,
}

impl WorkerCompiler {
    /// A compiler with a name, the command of its workers, and the digest of what kernels are made from
    /// ([`KernelCompiler::sources`]). Nothing is started yet.
    pub fn new(name: impl Into<String>, command: WorkerCommand, sources: impl Into<String>) -> Self {
        let pool = Pool::new(name.into(), command);
        Self { folder: String::new(), sources: sources.into(), requirement: None, designs: None, pool }
    }

    /// The folder of its kernels in a cache ([`KernelCompiler::folder`]). Empty unless set.
    pub fn cache_folder(mut self, folder: impl Into<String>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: WorkerLimits) -> Self {
        self.pool.limits = limits;
        self
    }

    /// Where workers write until a kernel is done; made if it is missing. The folder for temporary files unless set. The path
    /// must be UTF-8.
    pub fn work_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.pool.parent = path.into();
        self
    }

    /// Makes the compiler verbose, and passes its output on as it comes: the kernel's name and bytes that may
    /// begin and end anywhere. The name is empty while a worker starts. Called by the threads that ask for kernels.
    pub fn verbose(mut self, listener: impl Fn(&str, &[u8]) + Send + Sync + 'static) -> Self {
        self.pool.listener = Some(Arc::new(listener));
        self
    }

    /// The identity that workers must report ([`KernelCompiler::identity`]), when that is known before one is started. Kernels can
    /// then be looked up in a cache without starting one, and a worker of another version is rejected.
    pub fn known_identity(mut self, identity: impl Into<String>) -> Self {
        self.pool.identity = OnceLock::from(identity.into());
        self
    }

    /// Something without which the workers would start and make no kernel: checked before one is started to learn whether there is
    /// a compiler at all ([`KernelCompiler::available`]).
    pub fn requirement(mut self, requirement: impl Fn() -> Result<(), CompileError> + Send + Sync + 'static) -> Self {
        self.requirement = Some(Box::new(requirement));
        self
    }

    /// The folder of the designs that it compiles. An operation without a file there is not [taken](KernelCompiler::takes).
    pub fn designs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.designs = Some(folder.into());
        self
    }

    /// Starts a worker, if none has been, so that a missing toolchain is known before there is anything to compile.
    ///
    /// # Errors
    /// [`CompileError::Unavailable`] with what the worker said, or why it did not start.
    pub fn start(&self) -> Result<(), CompileError> {
        self.pool.lend().map(|lease| lease.give_back())
    }
}

impl KernelCompiler for WorkerCompiler {
    fn name(&self) -> &str {
        &self.pool.name
    }

    fn folder(&self) -> &str {
        &self.folder
    }

    /// The identity that workers report; empty when they do not start. Starts a worker unless it was known before, which may take seconds.
    fn identity(&self) -> String {
        self.pool.identity().unwrap_or_default()
    }

    fn sources(&self) -> String {
        self.sources.clone()
    }

    /// Starts a worker, if none has been.
    fn available(&self) -> Result<(), CompileError> {
        self.requirement.as_ref().map_or(Ok(()), |requirement| requirement())?;
        self.start()
    }

    /// An operation that there is a design for, where it is known where designs are.
    fn takes(&self, op: &dyn Operation, _node: &Node, _arch: &Arch) -> Result<(), CompileError> {
        let file = KernelSource::of(op).file;
        match &self.designs {
            Some(folder) if !folder.join(&file).is_file() => {
                let folder = folder.display();
                Err(CompileError::Unsupported(format!("{}: there is no design {file} in {folder}", op.name())))
            }
            _ => Ok(()),
        }
    }

    /// See the trait. A worker that exceeds a limit or crashes has failed to compile the kernel; one that cannot be started, is
    /// killed from outside, or has no space left on the disk was unavailable. After three starts in a row that failed, or
    /// a worker that says that its toolchain is missing, all further calls are answered with the same reason.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        self.compile_design(&KernelSource::of(op).name(), op, node, arch)
    }

    /// As [`KernelCompiler::compile`] does.
    fn compile_design(
        &self,
        design: &DesignName<'_>,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
    ) -> Result<KernelArtifact, CompileError> {
        let pool = &self.pool;
        let mut lease = pool.lend()?;
        let Some(worker) = lease.worker() else {
            return Err(CompileError::Unavailable(format!("the {} compiler has lost its worker", pool.name)));
        };
        let (compiler, limits, listener) = (pool.name.as_str(), &pool.limits, pool.listener.as_deref());
        let wanted = Wanted::of(op, node, arch);
        let task = Task { compiler, limits, listener, id: pool.next_job(), design, wanted };
        let (result, usable) = task.run(worker);
        if usable {
            lease.give_back();
        }
        result
    }
}

impl fmt::Debug for WorkerCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pool { name, command, limits, .. } = &self.pool;
        let mut shown = f.debug_struct("WorkerCompiler");
        shown.field("name", name).field("command", command).field("limits", limits).finish_non_exhaustive()
    }
}

/// The answer of a worker, and whether the worker can be given another job.
type Answer = (Result<KernelArtifact, CompileError>, bool);

/// One kernel: what a job is, besides the worker that does it.
struct Task<'a> {
    /// Name of the compiler, for messages.
    compiler: &'a str,
    limits: &'a WorkerLimits,
    listener: Option<&'a Listener>,
    /// Unlike that of any other job of the worker.
    id: u64,
    design: &'a DesignName<'a>,
    wanted: Wanted<'a>,
}

impl Task<'_> {
    /// Runs it on `worker`. Its folder is removed when this returns.
    fn run(&self, worker: &mut WorkerProcess) -> Answer {
        let folder = match worker.folder().job() {
            Ok(folder) => folder,
            Err(error) => {
                let cause = format!("cannot create a work folder in {}: {error}", worker.folder().path().display());
                return (Err(CompileError::Unavailable(cause)), false);
            }
        };
        let answer = self.ask(worker, &folder);
        if !answer.1 {
            // Before its folder is removed, so that nothing writes there any more.
            worker.kill();
        } else {
            worker.sweep();
        }
        folder.close();
        answer
    }

    fn ask(&self, worker: &mut WorkerProcess, folder: &JobFolder) -> Answer {
        let request = match self.request(folder) {
            Ok(request) => request,
            Err(cause) => return (Err(cause), true),
        };
        let mut captured = Captured::new(self.limits.output_bytes, &self.wanted.name, self.listener);
        let reply = worker.ask(&request, self.limits.time, &mut captured).and_then(|line| self.parse(&line));
        let (error, usable) = match reply {
            Ok(Reply::Done { pdi, instructions, .. }) => match self.artifact(folder, &pdi, &instructions) {
                Ok(artifact) => return (Ok(artifact), true),
                Err(reason) => {
                    let cause = format!("the {} compiler wrote invalid files: {reason}", self.compiler);
                    (CompileError::Failed(Failure { cause, output: captured.into_bytes() }), false)
                }
            },
            Ok(Reply::Failed(NoKernel { cause, .. })) => {
                (CompileError::Failed(Failure { cause, output: captured.into_bytes() }), true)
            }
            Ok(Reply::Unsupported(NoKernel { cause, .. })) => (CompileError::Unsupported(cause), true),
            Ok(Reply::Unavailable(NoKernel { cause, .. })) => (CompileError::Unavailable(pool::with_hint(cause)), true),
            Err(ending) => (ending.of_job(self.compiler, self.limits, captured), false),
        };
        (Err(blame_the_disk(error, folder)), usable)
    }

    fn request(&self, folder: &JobFolder) -> Result<Vec<u8>, CompileError> {
        let path = folder.path();
        let work_dir = path.to_str().ok_or_else(|| {
            CompileError::Unavailable(format!(
                "the work folder {} is not UTF-8, which the protocol cannot express; choose another one",
                path.display()
            ))
        })?;
        let job = protocol::Job {
            id: self.id,
            kernel: self.wanted.name.clone(),
            arch: self.wanted.arch.name.clone(),
            node: self.wanted.node.clone(),
            source: self.design.file.to_owned(),
            function: self.design.function.to_owned(),
            work_dir: work_dir.to_owned(),
            verbose: self.listener.is_some(),
        };
        protocol::line(&Request::Compile(job))
            .map_err(|error| CompileError::Unavailable(format!("the request cannot be written: {error}")))
    }

    fn parse(&self, line: &[u8]) -> Result<Reply, Ending> {
        let reply: Reply = serde_json::from_slice(line).map_err(|error| {
            Ending::ProtocolError(format!("it answered {}, which is not a reply: {error}", protocol::quote(line)))
        })?;
        if reply.id() == self.id {
            Ok(reply)
        } else {
            Err(Ending::ProtocolError(format!("it answered job {}, the job is {}", reply.id(), self.id)))
        }
    }

    fn artifact(&self, folder: &JobFolder, pdi: &str, insts: &str) -> Result<KernelArtifact, String> {
        let Wanted { op, node, arch, name, .. } = &self.wanted;
        let limit = arch.limits.device_heap_bytes;
        let (pdi, insts) = (folder.read(pdi, limit)?, folder.read(insts, limit)?);
        let artifact = assemble(name, arch, pdi, insts, None, Some(node)).map_err(|(_, reason)| reason)?;
        fit::check(*op, node, &artifact).map_err(|misfit| misfit.to_string())?;
        Ok(artifact)
    }
}

/// On a full disk everything fails, whatever the kernel.
fn blame_the_disk(error: CompileError, folder: &JobFolder) -> CompileError {
    match error {
        CompileError::Failed(failure) if folder.is_full() => CompileError::Unavailable(format!(
            "no space is left for {}: free some, or choose another folder for temporary files; the compiler says: {}",
            folder.path().display(),
            failure.cause
        )),
        error => error,
    }
}
