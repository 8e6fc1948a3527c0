//! One kernel: request, reply, result files.

use super::captured::{Captured, Listener};
use super::ending::Ending;
use super::folder::JobFolder;
use super::process::{Watch, WorkerProcess};
use super::protocol::{self, Reply, Request};
use super::{WorkerLimits, pool};
use crate::compiler::{CompileError, Failure};
use crate::kernel_source::KernelSource;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::fit;
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};

/// What a job is, besides the worker that does it.
pub(super) struct Task<'a> {
    /// Name of the compiler, for messages.
    pub compiler: &'a str,
    pub limits: &'a WorkerLimits,
    pub listener: Option<&'a Listener>,
    /// Unlike that of any other job of the worker.
    pub id: u64,
    pub op: &'a dyn Operation,
    pub node: &'a Node,
    pub arch: &'a Arch,
}

/// The answer of a worker, and whether the worker can be given another job.
pub(super) struct Answer {
    pub result: Result<KernelArtifact, CompileError>,
    pub usable: bool,
}

impl Task<'_> {
    /// Has `worker` do it. Its folder is gone when this returns.
    pub fn run(&self, worker: &mut WorkerProcess) -> Answer {
        let folder = match worker.folder().job(self.id) {
            Ok(folder) => folder,
            Err(error) => {
                let cause = format!("cannot make a work folder in {}: {error}", worker.folder().path().display());
                return Answer { result: Err(CompileError::Unavailable(cause)), usable: false };
            }
        };
        let answer = self.ask(worker, &folder);
        if !answer.usable {
            // Before its folder is removed, so that nobody writes there any more.
            worker.kill();
        } else {
            worker.sweep();
        }
        answer
    }

    fn ask(&self, worker: &mut WorkerProcess, folder: &JobFolder) -> Answer {
        let kernel = kernel_name(self.op, self.node);
        let request = match self.request(&kernel, folder) {
            Ok(request) => request,
            Err(cause) => return Answer { result: Err(CompileError::Unavailable(cause)), usable: true },
        };
        let mut captured = Captured::new(self.limits.output_bytes, &kernel, self.listener);
        let mut watch =
            Watch { time: self.limits.time, captured: &mut captured, folder_bytes: self.limits.folder_bytes };
        let reply = worker.ask(&request, &mut watch).and_then(|line| self.parse(&line));
        let (error, usable) = match reply {
            Ok(Reply::Done { pdi, instructions, .. }) => match self.artifact(&kernel, folder, &pdi, &instructions) {
                Ok(artifact) => return Answer { result: Ok(artifact), usable: true },
                Err(reason) => {
                    let cause = format!("the {} compiler wrote wrong files: {reason}", self.compiler);
                    (CompileError::Failed(Failure { cause, output: captured.into_bytes() }), false)
                }
            },
            Ok(Reply::Failed { cause, .. }) => {
                (CompileError::Failed(Failure { cause, output: captured.into_bytes() }), true)
            }
            Ok(Reply::Unsupported { cause, .. }) => (CompileError::Unsupported(cause), true),
            Ok(Reply::Unavailable { cause, .. }) => (CompileError::Unavailable(pool::with_hint(cause)), true),
            Err(ending) => (ending.of_job(self.compiler, self.limits, captured), false),
        };
        Answer { result: Err(blame_the_disk(error, folder)), usable }
    }

    fn request(&self, kernel: &str, folder: &JobFolder) -> Result<Vec<u8>, String> {
        let path = folder.path();
        let work_dir = path.to_str().ok_or_else(|| {
            format!(
                "the work folder {} is not UTF-8, which the protocol cannot say; choose another one",
                path.display()
            )
        })?;
        let KernelSource { file, function } = KernelSource::of(self.op);
        let job = protocol::Job {
            id: self.id,
            kernel: kernel.to_owned(),
            arch: self.arch.name.clone(),
            node: self.node.clone(),
            source: file,
            function,
            work_dir: work_dir.to_owned(),
            verbose: self.listener.is_some(),
        };
        protocol::line(&Request::Compile(job)).map_err(|error| format!("the request cannot be written: {error}"))
    }

    fn parse(&self, line: &[u8]) -> Result<Reply, Ending> {
        let reply: Reply = serde_json::from_slice(line).map_err(|error| {
            Ending::Nonsense(format!("it answered {}, which is no reply: {error}", protocol::quote(line)))
        })?;
        if reply.id() == self.id {
            Ok(reply)
        } else {
            Err(Ending::Nonsense(format!("it answered job {}, the job is {}", reply.id(), self.id)))
        }
    }

    fn artifact(&self, kernel: &str, folder: &JobFolder, pdi: &str, insts: &str) -> Result<KernelArtifact, String> {
        let limit = self.arch.limits.device_heap_bytes;
        let (pdi, insts) = (folder.read(pdi, limit)?, folder.read(insts, limit)?);
        let artifact = KernelArtifact::new(kernel, self.arch.name.as_str(), self.arch.dev_gen, pdi, insts)
            .map_err(|error| error.to_string())?;
        let (found, expected) = (artifact.argument_count(), self.node.arguments().count());
        if found > expected {
            return Err(format!("the kernel uses {found} arguments, the operation has {expected}"));
        }
        fit::check(self.op, self.node, &artifact).map_err(|misfit| misfit.to_string())?;
        Ok(artifact)
    }
}

/// On a full disk everything fails, which says nothing about the kernel.
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
