//! The worker's side, for compilers written in Rust.

use super::orphans::Family;
use super::protocol::{self, Greeting, Job, LINE_BYTES, NoKernel, Reply, Request};
use crate::settings::GGML_HSA_JIT_JOB;
use aie_hal::{ArchRegistry, Environment};
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::name::kernel_name;
use aie_ops::table;
use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group, set_child_subreaper};
use std::fs::{self, File};
use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Names of the result files.
const PDI: &str = "kernel.pdi";
const INSTRUCTIONS: &str = "kernel_insts.bin";
/// How long processes may take to disappear when the host has gone.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Serves requests on the standard input until it ends, and reserves the standard output for the replies: what anything
/// else in this process prints there goes to the standard error from now on.
///
/// When the input ends during a compilation, this process, its descendants and its process group are killed; so this function is
/// for processes that do nothing else.
///
/// # Errors
/// When the standard output cannot be duplicated or written, or a request is not one.
pub fn serve(compiler: &dyn KernelCompiler, archs: &ArchRegistry) -> io::Result<()> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    serve_over(io::BufReader::new(io::stdin()), output, compiler, archs)
}

/// As [`serve`], with other streams.
///
/// # Errors
/// When `output` cannot be written, or a request is not one.
pub fn serve_over(
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    compiler: &dyn KernelCompiler,
    archs: &ArchRegistry,
) -> io::Result<()> {
    // Orphans become children of this process, and so are found without their mark, too. Old kernels and
    // sandboxes may deny this; then the mark is used.
    let _ = set_child_subreaper(Some(getpid()));
    let identity = compiler.identity();
    send(
        &mut output,
        &Greeting::Hello { protocol: protocol::VERSION, compiler: compiler.name().to_owned(), identity },
    )?;
    let busy = Arc::new(AtomicBool::new(false));
    let (sender, requests) = mpsc::channel();
    let watched = Arc::clone(&busy);
    thread::Builder::new().name("requests".into()).spawn(move || {
        listen(input, &watched, &sender);
        end(&watched);
    })?;
    for line in requests {
        let line: Vec<u8> = line;
        let request: Request = serde_json::from_slice(&line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a request: {error}", protocol::quote(&line)))
        })?;
        let Request::Compile(job) = request;
        let reply = answer(&job, compiler, archs);
        // Before the host knows: it may close the input as soon as it does.
        busy.store(false, Ordering::Release);
        send(&mut output, &reply)?;
    }
    Ok(())
}

fn send(output: &mut impl Write, message: &impl serde::Serialize) -> io::Result<()> {
    output.write_all(&protocol::line(message)?)?;
    output.flush()
}

/// Passes lines on until the input ends, by an error or otherwise.
fn listen(mut input: impl BufRead, busy: &AtomicBool, requests: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LINE_BYTES as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        busy.store(true, Ordering::Release);
        if requests.send(line).is_err() {
            return;
        }
    }
}

/// The host has gone, or wants this process to end: nothing stays behind.
fn end(busy: &AtomicBool) {
    if let Some(mark) = Environment::process().text(&GGML_HSA_JIT_JOB) {
        Family { leader: getpid(), mark }.sweep(&[], END_LIMIT);
    }
    if busy.load(Ordering::Acquire) {
        if getpgrp() == getpid() {
            // Ends this process, too.
            let _ = kill_current_process_group(Signal::KILL);
        }
        // Started by hand, in the group of a shell, which is not ours to kill.
        std::process::exit(1);
    }
}

fn answer(job: &Job, compiler: &dyn KernelCompiler, archs: &ArchRegistry) -> Reply {
    let id = job.id;
    match compile(job, compiler, archs) {
        Ok(()) => Reply::Done { id, pdi: PDI.into(), instructions: INSTRUCTIONS.into() },
        Err(CompileError::Unsupported(cause)) => Reply::Unsupported(NoKernel { id, cause }),
        Err(CompileError::Unavailable(cause)) => Reply::Unavailable(NoKernel { id, cause }),
        Err(CompileError::Failed(failure)) => {
            // The host captures what this process prints.
            let _ = io::stderr().write_all(&failure.output);
            Reply::Failed(NoKernel { id, cause: failure.cause })
        }
    }
}

/// Writes the kernel into the job's folder.
fn compile(job: &Job, compiler: &dyn KernelCompiler, archs: &ArchRegistry) -> Result<(), CompileError> {
    let unavailable = |cause| Err(CompileError::Unavailable(cause));
    let Some(arch) = archs.get(&job.arch) else {
        let known = archs.names().collect::<Vec<_>>().join(", ");
        return unavailable(format!("this compiler does not know the generation {}; it knows: {known}", job.arch));
    };
    let Some(op) = table::lookup(&job.node.op) else {
        return Err(CompileError::Unsupported(format!("there is no operation {}", job.node.op)));
    };
    let name = kernel_name(op, &job.node);
    if name != job.kernel {
        let cause =
            format!("the host calls this kernel {}, the worker {name}: they are not from one build", job.kernel);
        return unavailable(cause);
    }
    let (artifact, folder) = (compiler.compile(op, &job.node, &arch)?, Path::new(&job.work_dir));
    fs::write(folder.join(PDI), artifact.pdi())
        .and_then(|()| fs::write(folder.join(INSTRUCTIONS), artifact.instructions()))
        .or_else(|error| unavailable(format!("cannot write the kernel into {}: {error}", job.work_dir)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::compiler::ReferenceCompiler;
    use aie_ops::{DataType, Node, OpParams, Tensor};
    use rstest::rstest;

    fn job(folder: &Path) -> Job {
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
        Job {
            id: 7,
            kernel: kernel_name(table::lookup("ADD").unwrap(), &node),
            arch: "aie2".into(),
            node,
            source: "binary_ops.py".into(),
            function: "ggml_op_add".into(),
            work_dir: folder.to_str().unwrap().into(),
            verbose: false,
        }
    }

    #[rstest]
    #[case(|job: &mut Job| job.arch = "aie9".into(), "unavailable", "does not know the generation aie9; it knows: aie2")]
    #[case(|job: &mut Job| job.node.op = "ADDX".into(), "unsupported", "there is no operation ADDX")]
    #[case(|job: &mut Job| job.kernel = "add".into(), "unavailable", "they are not from one build")]
    #[case(|job: &mut Job| job.work_dir = "/nonexistent".into(), "unavailable", "cannot write the kernel into /nonexistent")]
    fn what_is_wrong_is_said(#[case] spoil: impl Fn(&mut Job), #[case] kind: &str, #[case] text: &str) {
        let folder = tempfile::tempdir().unwrap();
        let mut job = job(folder.path());
        spoil(&mut job);
        let reply = answer(&job, &ReferenceCompiler, &ArchRegistry::builtin());
        let reply = serde_json::to_string(&reply).unwrap();
        assert!(reply.starts_with(&format!("{{\"{kind}\":{{\"id\":7,")) && reply.contains(text), "{reply}");
    }
}
