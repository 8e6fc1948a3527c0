//! Kernels from their IRON designs on the simulator (`simulate.py`, docs/iron-simulator.md), beside the reference kernels.
//!
//! Needs Python with numpy and ml_dtypes and a C++ compiler, and none of IRON. Each kernel has a simulator of its own, in a process
//! group: starting one takes a second, compiling core functions takes several, and one that hangs or dies is one kernel's end.

mod process;
mod values;

use crate::configuration::{KernelRequest, KernelSet};
use crate::iron::{KERNELS, PYTHON};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use process::{Answer, Request};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The simulator's file in the IRON folder.
const SIMULATOR: &str = "simulate.py";

/// The simulator cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum SimulationError {
    /// It is not there.
    #[error(
        "there is no {SIMULATOR} in {}; name the installed folder share/ggml-hsa/iron, or jit-iron/iron of the sources, with \
         GGML_HSA_IRON_DIR",
        .0.display()
    )]
    Missing(PathBuf),
    /// The folder of designs is not there.
    #[error("there are no designs in {}; name a folder with --kernels-dir", .0.display())]
    NoDesigns(PathBuf),
    /// Python cannot be started, or lacks what the simulator imports.
    #[error("{0}")]
    Python(String),
}

/// What became of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// It computes what the reference kernel does.
    Right {
        /// The normalised mean squared error; 0 for whole numbers, all of which are the same.
        nmse: f64,
    },
    /// It ran, and there is no reference kernel: what it computes is not one of ggml's operations.
    Unjudged,
    /// It computes something else.
    Wrong {
        /// The normalised mean squared error.
        nmse: f64,
        /// What is allowed.
        allowed: f64,
        /// The element that differs most, what it is, and what it should be.
        element: usize,
        /// What the design computed there.
        found: f64,
        /// What the reference kernel did.
        expected: f64,
    },
    /// The design is wrong, or the simulator ended without an answer.
    Failed {
        /// Why.
        cause: String,
        /// File and line of the design, where they are known.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<String>,
    },
    /// The design does not do this kernel, or there is none.
    Unsupported {
        /// Why.
        cause: String,
    },
}

impl Verdict {
    /// Whether something is wrong.
    pub fn is_bad(&self) -> bool {
        matches!(self, Self::Wrong { .. } | Self::Failed { .. })
    }
}

/// Computes a kernel another way: the bytes of its result, from those of the sources that are present.
///
/// # Errors
/// [`Verdict::Unsupported`] when this way does not have the kernel, [`Verdict::Failed`] when it went wrong.
pub type OtherWay<'a> = dyn Fn(&KernelRequest, &[&[u8]]) -> Result<Vec<u8>, Verdict> + Sync + 'a;

/// The same kernel, computed another way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Other {
    /// Beside the reference kernel.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Beside the design, where that has a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Difference>,
}

/// How far two results are apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// Elements that are not the same, in any bit.
    pub elements: usize,
    /// Elements that there are.
    pub of: usize,
    /// The normalised mean squared error.
    pub nmse: f64,
}

/// A kernel that was simulated.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Simulated {
    /// Name of the kernel.
    pub name: String,
    /// Generation.
    pub arch: String,
    /// Operation, ggml's description.
    pub operation: String,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Cores and columns that it used; 0 where it did not run.
    pub cores: u64,
    /// See `cores`.
    pub columns: u64,
    /// How long that took.
    pub milliseconds: u64,
    /// The same kernel another way, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Other>,
}

impl Simulated {
    /// Whether something is wrong.
    pub fn is_bad(&self) -> bool {
        self.verdict.is_bad() || self.other.as_ref().is_some_and(|other| other.verdict.is_bad())
    }
}

/// Where the simulator is, and how long it may take.
#[derive(Debug, Clone)]
pub struct Simulator {
    program: PathBuf,
    kernels: PathBuf,
    python: PathBuf,
    limit: Duration,
}

impl Simulator {
    /// The simulator in the IRON folder `directory`, with the designs in `kernels`, else beside it, and the interpreter `python`,
    /// else [`PYTHON`]; a kernel may take `limit`.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn new(
        directory: &Path,
        kernels: Option<PathBuf>,
        python: Option<PathBuf>,
        limit: Duration,
    ) -> Result<Self, SimulationError> {
        let program = directory.join(SIMULATOR);
        if !program.is_file() {
            return Err(SimulationError::Missing(directory.to_owned()));
        }
        let kernels = kernels.unwrap_or_else(|| directory.join(KERNELS));
        let kernels = kernels.canonicalize().ok().filter(|folder| folder.is_dir());
        let kernels = kernels.ok_or_else(|| SimulationError::NoDesigns(directory.join(KERNELS)))?;
        let python = python.unwrap_or_else(|| PYTHON.into());
        process::check(&python).map_err(SimulationError::Python)?;
        Ok(Self { program, kernels, python, limit })
    }

    /// Simulates the kernels of `wanted` that are for one of `arches`, or all where it is empty, `jobs` at a time, and computes each
    /// the `other` way too.
    pub fn run(
        &self,
        wanted: &KernelSet,
        arches: &[String],
        jobs: usize,
        other: Option<&OtherWay<'_>>,
    ) -> Vec<Simulated> {
        let kernels: Vec<&KernelRequest> =
            wanted.kernels.iter().filter(|kernel| arches.is_empty() || arches.contains(&kernel.arch.name)).collect();
        let bar = ProgressBar::new(kernels.len() as u64);
        // The template is a constant that indicatif understands; without it the bar has another look.
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {wide_msg}") {
            bar.set_style(style);
        }
        let (next, simulated) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let index = next.fetch_add(1, Relaxed);
                let Some(kernel) = kernels.get(index) else { return };
                bar.set_message(kernel.exported_name.clone());
                let one = self.simulate(kernel, other);
                simulated.lock().push((index, one));
                bar.inc(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs.min(kernels.len()) {
                scope.spawn(work);
            }
            work();
        });
        bar.finish_and_clear();
        let mut simulated = simulated.into_inner();
        simulated.sort_by_key(|(index, _)| *index);
        simulated.into_iter().map(|(_, one)| one).collect()
    }

    fn simulate(&self, kernel: &KernelRequest, other: Option<&OtherWay<'_>>) -> Simulated {
        let start = Instant::now();
        let mut simulated = Simulated {
            name: kernel.exported_name.clone(),
            arch: kernel.arch.name.clone(),
            operation: kernel.op.name().to_owned(),
            verdict: Verdict::Unsupported { cause: String::new() },
            cores: 0,
            columns: 0,
            milliseconds: 0,
            other: None,
        };
        match Bytes::of(kernel) {
            Ok(bytes) => self.compare(kernel, &bytes, other, &mut simulated),
            Err(cause) => simulated.verdict = Verdict::Failed { cause, place: None },
        }
        simulated.milliseconds = start.elapsed().as_millis() as u64;
        simulated
    }

    /// Fills in what became of a kernel.
    fn compare(&self, kernel: &KernelRequest, bytes: &Bytes, other: Option<&OtherWay<'_>>, into: &mut Simulated) {
        let (op, node) = (kernel.op.name(), &kernel.node);
        let judged = |found: &[u8]| {
            let failed = |cause| Verdict::Failed { cause, place: None };
            let expected = bytes.expected.as_ref();
            expected.map_or(Verdict::Unjudged, |expected| {
                values::compared(op, node, found, expected).unwrap_or_else(failed)
            })
        };
        let mut result = None;
        match self.computed(kernel, bytes) {
            Ok(Computed { found, cores, columns }) => {
                into.verdict = judged(&found);
                (into.cores, into.columns) = (cores, columns);
                result = Some(found);
            }
            Err(verdict) => into.verdict = verdict,
        }
        into.other = other.map(|other| {
            let inputs: Vec<&[u8]> = bytes.inputs.iter().flatten().map(Vec::as_slice).collect();
            match other(kernel, &inputs) {
                Ok(found) => {
                    let difference = |result: Vec<u8>| values::difference(node.output.dtype, &found, &result);
                    Other { verdict: judged(&found), beside: result.and_then(difference) }
                }
                Err(verdict) => Other { verdict, beside: None },
            }
        });
    }

    /// What the design computes, or the verdict that there is nothing.
    fn computed(&self, kernel: &KernelRequest, bytes: &Bytes) -> Result<Computed, Verdict> {
        let failed = |cause: String| Verdict::Failed { cause, place: None };
        let source = kernel.design();
        // The simulator says the same of a design that declines; a folder without the file is more likely the wrong folder.
        let path = self.kernels.join(&source.file);
        if !path.is_file() {
            return Err(Verdict::Unsupported { cause: format!("there is no {}", path.display()) });
        }
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let write = |index: usize, bytes: &Vec<u8>| {
            let path = folder.path().join(format!("{index}.bin"));
            fs::write(&path, bytes).map(|()| path).map_err(|error| failed(error.to_string()))
        };
        let inputs = bytes.inputs.iter().enumerate();
        let files = inputs.map(|(index, bytes)| bytes.as_ref().map(|bytes| write(index, bytes)).transpose());
        let output = folder.path().join("output.bin");
        let request = Request {
            id: 1,
            kernel: &kernel.name,
            arch: &kernel.arch.name,
            node: &kernel.node,
            source: &source.file,
            function: &source.function,
            kernels_dir: &self.kernels,
            inputs: files.collect::<Result<_, Verdict>>()?,
            output: &output,
        };
        match process::ask(&self.python, &self.program, folder.path(), &request, self.limit).map_err(failed)? {
            Answer::Done { cores, columns } => {
                let found =
                    fs::read(&output).map_err(|error| failed(format!("the simulator left no result: {error}")))?;
                Ok(Computed { found, cores, columns })
            }
            Answer::Failed { cause, place } => Err(Verdict::Failed { cause, place }),
            Answer::Unsupported { cause } => Err(Verdict::Unsupported { cause }),
        }
    }
}

/// What a design computes, with cores of columns.
struct Computed {
    found: Vec<u8>,
    cores: u64,
    columns: u64,
}

/// Random sources of a kernel, and what its reference kernel makes of them, if there is one.
struct Bytes {
    inputs: Vec<Option<Vec<u8>>>,
    expected: Option<Vec<u8>>,
}

impl Bytes {
    fn of(kernel: &KernelRequest) -> Result<Self, String> {
        let node = &kernel.node;
        let inputs = values::inputs(kernel.op.name(), node)?;
        if !kernel.is_listed() {
            return Ok(Self { inputs, expected: None });
        }
        let reference = kernel.op.reference(node).map_err(|error| error.to_string())?;
        let filled: Vec<&[u8]> = inputs.iter().flatten().map(Vec::as_slice).collect();
        let mut expected = vec![0; node.output.span_bytes()];
        reference.run(&filled, &mut expected).map_err(|error| format!("the reference kernel failed: {error}"))?;
        Ok(Self { inputs, expected: Some(expected) })
    }
}

#[cfg(test)]
mod tests;
