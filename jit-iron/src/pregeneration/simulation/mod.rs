//! Kernels from their IRON designs on the simulator (`simulate.py`, docs/iron-simulator.md), beside the reference kernels.
//!
//! Needs Python with numpy and ml_dtypes and a C++ compiler, and none of IRON. Each kernel has a simulator of its own, in a process
//! group: starting one takes a second, compiling core functions takes several, and one that hangs or dies is one kernel's end.

mod process;
mod values;

use crate::configuration::{KernelRequest, KernelSet};
use crate::iron::{KERNELS, PYTHON};
use crate::kernel_source::KernelSource;
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
pub const SIMULATOR: &str = "simulate.py";

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

    /// Simulates the kernels of `wanted` that are for one of `arches`, or all where it is empty, `jobs` at a time.
    pub fn run(&self, wanted: &KernelSet, arches: &[String], jobs: usize) -> Vec<Simulated> {
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
                let one = self.simulate(kernel);
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

    fn simulate(&self, kernel: &KernelRequest) -> Simulated {
        let start = Instant::now();
        let failed = |cause: String| (Verdict::Failed { cause, place: None }, 0, 0);
        let (verdict, cores, columns) = self.compared(kernel).unwrap_or_else(failed);
        Simulated {
            name: kernel.exported_name.clone(),
            arch: kernel.arch.name.clone(),
            operation: kernel.op.name().to_owned(),
            verdict,
            cores,
            columns,
            milliseconds: start.elapsed().as_millis() as u64,
        }
    }

    fn compared(&self, kernel: &KernelRequest) -> Result<(Verdict, u64, u64), String> {
        let source = KernelSource::of(kernel.op);
        // The simulator says the same of a design that declines; a folder without the file is more likely the wrong folder.
        let path = self.kernels.join(&source.file);
        if !path.is_file() {
            return Ok((Verdict::Unsupported { cause: format!("there is no {}", path.display()) }, 0, 0));
        }
        let node = &kernel.node;
        let reference = kernel.op.reference(node).map_err(|error| error.to_string())?;
        let inputs = values::inputs(kernel.op.name(), node)?;
        let filled: Vec<&[u8]> = inputs.iter().flatten().map(Vec::as_slice).collect();
        let mut expected = vec![0; node.output.span_bytes()];
        reference.run(&filled, &mut expected).map_err(|error| format!("the reference kernel failed: {error}"))?;

        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let write = |index: usize, bytes: &Vec<u8>| {
            let path = folder.path().join(format!("{index}.bin"));
            fs::write(&path, bytes).map(|()| path).map_err(|error| error.to_string())
        };
        let files =
            inputs.iter().enumerate().map(|(index, bytes)| bytes.as_ref().map(|bytes| write(index, bytes)).transpose());
        let output = folder.path().join("output.bin");
        let request = Request {
            id: 1,
            kernel: &kernel.name,
            arch: &kernel.arch.name,
            node,
            source: &source.file,
            function: &source.function,
            kernels_dir: &self.kernels,
            inputs: files.collect::<Result<_, String>>()?,
            output: &output,
        };
        match process::ask(&self.python, &self.program, folder.path(), &request, self.limit)? {
            Answer::Done { cores, columns } => {
                let found = fs::read(&output).map_err(|error| format!("the simulator left no result: {error}"))?;
                Ok((values::compared(kernel.op.name(), node, &found, &expected)?, cores, columns))
            }
            Answer::Failed { cause, place } => Ok((Verdict::Failed { cause, place }, 0, 0)),
            Answer::Unsupported { cause } => Ok((Verdict::Unsupported { cause }, 0, 0)),
        }
    }
}

#[cfg(test)]
mod tests;
