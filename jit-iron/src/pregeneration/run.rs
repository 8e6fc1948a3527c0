//! Generating kernels, several at a time; after Ctrl-C nothing partial is left.
//!
//! The first SIGINT, SIGTERM or SIGHUP finishes the kernels in progress and starts no further one. The second ends the process, but never
//! while the files of a kernel are being put in place. Signals are blocked in every thread and taken by one that waits for
//! them, which needs no handler and so no unsafe code.

use super::output::{Existing, Links, OutputDirectory, OutputError, existing, plan_links};
use super::progress::Progress;
use super::report::{KernelReport, Report, Status};
use crate::configuration::{KernelRequest, KernelSet};
use crate::manifest::Manifest;
use aie_hal::KernelArtifact;
use aie_ops::compiler::{CompileError, KernelCompiler};
use nix::sys::signal::{SigSet, Signal};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How much of a compiler's output a report carries, in bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// How kernels are made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Compilations at a time, at least 1.
    pub jobs: usize,
    /// Rebuilds kernels that are up to date too.
    pub force: bool,
    /// Only kernels of these generations; of all, when empty.
    pub arches: Vec<String>,
}

impl Options {
    fn wants(&self, kernel: &KernelRequest) -> bool {
        self.arches.is_empty() || self.arches.contains(&kernel.arch.name)
    }
}

/// Whether the run has been interrupted.
#[derive(Debug, Default)]
pub struct Interruption {
    requested: AtomicBool,
    /// Read by the threads that write kernels, written by the signal handler.
    writing: RwLock<()>,
}

impl Interruption {
    /// Watches the signals of this process. To be called before other threads are started, because these inherit that the
    /// signals are blocked; so do child processes, which have to be ended by other means.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn watch() -> std::io::Result<Arc<Self>> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        // The terminal was closed. `nohup` has the signal ignored, which blocking would undo.
        if !is_ignored(Signal::SIGHUP) {
            signals.add(Signal::SIGHUP);
        }
        signals.thread_block()?;
        let this = Arc::new(Self::default());
        let watched = Arc::clone(&this);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                if watched.request() {
                    eprintln!("interrupted: finishing the kernels in progress; interrupt again to stop at once");
                    continue;
                }
                let _writing = watched.writing.write();
                // What a shell reports of a process that a signal ended.
                std::process::exit(128 + signal as i32);
            }
        })?;
        Ok(this)
    }

    /// Asks the run to end; whether this is the first time.
    pub fn request(&self) -> bool {
        !self.requested.swap(true, SeqCst)
    }

    /// Whether the run has to end.
    pub fn requested(&self) -> bool {
        self.requested.load(SeqCst)
    }

    /// Runs something that the end of the process must not interrupt.
    pub fn uninterrupted<T>(&self, action: impl FnOnce() -> T) -> T {
        let _writing = self.writing.read();
        action()
    }
}

/// Whether this process was started with `signal` ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal as u32 - 1) & 1 == 1
}

struct Run<'a> {
    compilers: &'a [&'a dyn KernelCompiler],
    /// Those of them that made or had a kernel.
    used: Mutex<BTreeSet<usize>>,
    output: &'a OutputDirectory,
    force: bool,
    interruption: &'a Interruption,
    /// Whether a kernel was not generated because the compiler is unavailable.
    unavailable: AtomicUsize,
}

/// Generates the kernels, each with the first of `compilers` that supports it, and whether every attempt ended in
/// [`CompileError::Unavailable`], so that nothing is known about the kernels.
pub fn generate(
    wanted: &KernelSet,
    compilers: &[&dyn KernelCompiler],
    output: &OutputDirectory,
    options: &Options,
    progress: &Progress,
    interruption: &Interruption,
) -> (Report, bool) {
    let start = Instant::now();
    let Links { names, notes } = plan_links(&wanted.kernels);
    let (used, unavailable) = (Mutex::default(), AtomicUsize::new(0));
    let run = Run { compilers, used, output, force: options.force, interruption, unavailable };
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            let (Some(kernel), Some(links)) = (wanted.kernels.get(index), names.get(index)) else { return };
            let report = if !options.wants(kernel) {
                progress.passed_over();
                skipped(kernel)
            } else if interruption.requested() {
                not_begun(kernel)
            } else {
                progress.started(&kernel.exported_name);
                let report = run.make(kernel, links);
                progress.finished(&report);
                report
            };
            reports.lock().push((index, report));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.jobs.min(wanted.kernels.len()) {
            scope.spawn(work);
        }
        work();
    });
    progress.end();
    let mut reports = reports.into_inner();
    reports.sort_by_key(|(index, _)| *index);
    let kernels: Vec<KernelReport> = reports.into_iter().map(|(_, report)| report).collect();
    let failed = kernels.iter().filter(|kernel| kernel.status == Status::Failed).count();
    let used: Vec<_> = run.used.into_inner().into_iter().map(|index| compilers[index]).collect();
    // What a compiler made while another one was missing is something.
    let nothing_tried =
        (used.is_empty() || compilers.len() == 1) && failed > 0 && failed == run.unavailable.into_inner();
    let mut report = Report::new(kernels, wanted.notes.iter().cloned().chain(notes).collect());
    report.compiler = compilers.iter().map(|compiler| compiler.name()).collect::<Vec<_>>().join(", ");
    // Of the others it may be unknown: that they exist is of no interest when they were not needed.
    let toolchains = if used.is_empty() { compilers } else { &used };
    report.toolchain = toolchains.iter().map(|compiler| compiler.identity()).collect::<Vec<_>>().join("; ");
    report.output_dir = output.path().display().to_string();
    report.interrupted = interruption.requested();
    report.milliseconds = milliseconds(start.elapsed());
    (report, nothing_tried)
}

/// What [`generate`] would do, without a compiler: complete kernels count as kept, whatever they were built from.
pub fn plan(wanted: &KernelSet, output: Option<&Path>, options: &Options) -> Report {
    let Links { names, notes } = plan_links(&wanted.kernels);
    let report = |(kernel, links): (&KernelRequest, &Vec<String>)| {
        if !options.wants(kernel) {
            return skipped(kernel);
        }
        let mut report = blank(kernel);
        report.links.clone_from(links);
        if let Some(output) = output {
            report.found(existing(output, kernel, None), options.force);
        }
        report
    };
    let kernels = wanted.kernels.iter().zip(&names).map(report).collect();
    Report::new(kernels, wanted.notes.iter().cloned().chain(notes).collect())
}

/// Why a kernel was not made.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum NotMade {
    Output(#[from] OutputError),
    Compile(#[from] CompileError),
    /// Each compiler with its reason.
    #[error("{0}")]
    Unsupported(String),
}

impl Run<'_> {
    fn make(&self, kernel: &KernelRequest, links: &[String]) -> KernelReport {
        let start = Instant::now();
        let mut report = blank(kernel);
        match self.serve(kernel, links, &mut report) {
            Ok(()) => report.links = links.to_vec(),
            Err(cause) => {
                report.status = Status::Failed;
                report.cause = Some(cause.to_string());
            }
        }
        report.milliseconds = milliseconds(start.elapsed());
        report
    }

    /// Finds or generates the kernel, and its links.
    fn serve(&self, kernel: &KernelRequest, links: &[String], report: &mut KernelReport) -> Result<(), NotMade> {
        let _lock = self.output.lock(kernel)?;
        self.find_or_compile(kernel, report)?;
        Ok(self.interruption.uninterrupted(|| self.output.link(kernel, links))?)
    }

    /// The caller holds the kernel's lock.
    fn find_or_compile(&self, kernel: &KernelRequest, report: &mut KernelReport) -> Result<(), NotMade> {
        let mut rejections = Vec::new();
        for (index, compiler) in self.compilers.iter().enumerate() {
            match self.ask(*compiler, kernel, report) {
                Err(NotMade::Compile(CompileError::Unsupported(reason))) => {
                    rejections.push(format!("compiler {} does not support it: {reason}", compiler.name()));
                }
                Err(NotMade::Compile(error)) if !rejections.is_empty() => {
                    rejections.push(format!("compiler {}: {error}", compiler.name()));
                    return Err(NotMade::Unsupported(rejections.join("; ")));
                }
                result => {
                    if result.is_ok() {
                        report.compiler = compiler.name().into();
                        self.used.lock().insert(index);
                    }
                    return result;
                }
            }
        }
        Err(NotMade::Unsupported(rejections.join("; ")))
    }

    /// The kernel that is there, or one from this compiler.
    fn ask(
        &self,
        compiler: &dyn KernelCompiler,
        kernel: &KernelRequest,
        report: &mut KernelReport,
    ) -> Result<(), NotMade> {
        let origin = kernel.origin(compiler);
        let found = existing(self.output.path(), kernel, Some(&origin));
        report.cause = None;
        report.found(found, self.force);
        if report.status == Status::Kept {
            return Ok(());
        }
        let start = Instant::now();
        let compiled = match &kernel.source {
            Some(source) => compiler.compile_design(&source.name(), kernel.op, &kernel.node, &kernel.arch),
            None => compiler.compile(kernel.op, &kernel.node, &kernel.arch),
        };
        let artifact = compiled.inspect_err(|error| match error {
            CompileError::Unavailable(_) => drop(self.unavailable.fetch_add(1, Relaxed)),
            CompileError::Failed(failure) => report.output = end_of(&failure.output),
            CompileError::Unsupported(_) => {}
        })?;
        let manifest = Manifest::new(&artifact, &kernel.node, origin, start.elapsed());
        self.interruption.uninterrupted(|| self.output.write(kernel, &artifact, &manifest))?;
        report.has(Status::Made, &artifact);
        Ok(())
    }
}

impl KernelReport {
    fn has(&mut self, status: Status, artifact: &KernelArtifact) {
        self.status = status;
        self.bytes = artifact.pdi().len() + artifact.instructions().len();
    }

    /// What was found in its place: the kernel, or why it has to be rebuilt.
    fn found(&mut self, found: Existing, force: bool) {
        match found {
            Existing::Current(artifact) if !force => self.has(Status::Kept, &artifact),
            Existing::Stale(reason) => self.cause = Some(format!("rebuilt: {reason}")),
            Existing::Current(_) | Existing::Absent => {}
        }
    }
}

fn blank(kernel: &KernelRequest) -> KernelReport {
    KernelReport {
        name: kernel.exported_name.clone(),
        kernel: kernel.name.clone(),
        arch: kernel.arch.name.clone(),
        operation: kernel.node.op.clone(),
        place: kernel.place.clone(),
        ..KernelReport::default()
    }
}

fn skipped(kernel: &KernelRequest) -> KernelReport {
    let cause = format!("{} is not among the requested generations (--arch)", kernel.arch.name);
    KernelReport { status: Status::Skipped, cause: Some(cause), ..blank(kernel) }
}

fn not_begun(kernel: &KernelRequest) -> KernelReport {
    let cause = "interrupted before it was started; run the same command again to continue";
    KernelReport { status: Status::Failed, cause: Some(cause.into()), ..blank(kernel) }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The end of what a compiler printed, which is where compilers say what is wrong.
fn end_of(output: &[u8]) -> String {
    let end = &output[output.len().saturating_sub(OUTPUT_BYTES)..];
    let text = String::from_utf8_lossy(end);
    if end.len() == output.len() { text.into_owned() } else { format!("[...] {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_distinguished_from_the_second() {
        let interruption = Interruption::default();
        assert!(!interruption.requested());
        assert!(interruption.request());
        assert!(interruption.requested());
        assert!(!interruption.request());
        assert_eq!(interruption.uninterrupted(|| 7), 7);
    }
}
