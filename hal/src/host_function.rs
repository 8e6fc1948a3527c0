//! Code that computes what a kernel computes, on the CPU.
//!
//! A [`HostFunction`] is a pure function on bytes. It appears twice: as the body of a host call inside a command list, and as what a
//! software device runs when it is asked to execute a [`KernelArtifact`](crate::KernelArtifact). In the second role a
//! [`KernelExecutor`](crate::KernelExecutor), given to the
//! device from outside, turns the artifact into a kernel, so that drivers need not know any operation.

use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use thiserror::Error;

/// A kernel could not be prepared or run.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostFunctionError {
    /// The artifact holds nothing this executor can execute, for instance compiled AIE code.
    #[error("cannot execute: {0}")]
    NotExecutable(String),
    /// The arguments do not fit: wrong number or too short.
    #[error("arguments of `{kernel}`: {reason}")]
    Arguments {
        /// Kernel name.
        kernel: String,
        /// What was expected and what was given.
        reason: String,
    },
    /// An index or value in the data is out of range.
    #[error("data of `{kernel}`: {reason}")]
    Data {
        /// Kernel name.
        kernel: String,
        /// What is wrong.
        reason: String,
    },
    /// It panicked, with this message.
    #[error("it panicked: {0}")]
    Panicked(String),
}

/// A function on byte ranges. Thread-safe; may use all cores.
pub trait HostFunction: Send + Sync + Debug {
    /// Name for messages and statistics.
    fn name(&self) -> &str;
    /// Number of input ranges [`HostFunction::run`] expects.
    fn input_count(&self) -> usize;
    /// Reads `inputs`, writes `output`. Bytes of `output` that the function does not define keep their value, so `output` may be
    /// a larger object that is partly updated. The ranges do not overlap; alignment of a slice is not guaranteed.
    ///
    /// # Errors
    /// [`HostFunctionError::Arguments`] or [`HostFunctionError::Data`]; `output` may then be partly written. The caller treats a
    /// panic as a failure too. As a host call it may submit to its own device, but must not wait for it: other work of the queue
    /// starts only when the call has returned.
    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError>;
    /// Tells `each` the ranges of the output that [`HostFunction::run`] on these inputs writes, in bytes; returns whether it did. A
    /// kernel that updates a few places of a large object says so here, and the caller need not write back the caches of all of it.
    /// `false` and no call: any byte may be written.
    fn written(&self, inputs: &[&[u8]], each: &mut dyn FnMut(Range<usize>)) -> bool {
        let _ = (inputs, each);
        false
    }
    /// Bytes of the argument at `index`, inputs first, that the kernel looks at; `None` where it goes by the length it is given.
    fn argument_bytes(&self, index: usize) -> Option<usize> {
        let _ = index;
        None
    }
    /// Number of outputs. A kernel with more than one defines [`HostFunction::run_all`] as well, and rejects [`HostFunction::run`].
    fn output_count(&self) -> usize {
        1
    }
    /// As [`HostFunction::run`], with every output in order. They overlap neither each other nor the inputs.
    ///
    /// # Errors
    /// As [`HostFunction::run`].
    fn run_all(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), HostFunctionError> {
        match outputs {
            [output] => self.run(inputs, output),
            _ => {
                let reason = format!("expected 1 output, given {}", outputs.len());
                Err(HostFunctionError::Arguments { kernel: self.name().to_owned(), reason })
            }
        }
    }
}

struct FromFn<F> {
    name: String,
    inputs: usize,
    body: F,
}

impl<F> Debug for FromFn<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FromFn").field("name", &self.name).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl<F: Fn(&[&[u8]], &mut [u8]) -> Result<(), HostFunctionError> + Send + Sync> HostFunction for FromFn<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn input_count(&self) -> usize {
        self.inputs
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        (self.body)(inputs, output)
    }
}

/// A host function of `inputs` inputs and one output, called `name`, that runs `body`.
pub fn from_fn(
    name: impl Into<String>,
    inputs: usize,
    body: impl Fn(&[&[u8]], &mut [u8]) -> Result<(), HostFunctionError> + Send + Sync + 'static,
) -> Arc<dyn HostFunction> {
    Arc::new(FromFn { name: name.into(), inputs, body })
}

/// Runs a kernel for a driver: one that panics has failed, and its thread continues.
///
/// # Errors
/// What [`HostFunction::run_all`] reports, or [`HostFunctionError::Panicked`].
pub fn run_guarded(
    kernel: &dyn HostFunction,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), HostFunctionError> {
    catch_unwind(AssertUnwindSafe(|| kernel.run_all(inputs, outputs)))
        .unwrap_or_else(|panic| Err(HostFunctionError::Panicked(panic_text(&*panic).to_owned())))
}

/// The message of a panic, from what [`catch_unwind`] gives.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
