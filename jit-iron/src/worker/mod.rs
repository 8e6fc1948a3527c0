//! Compiling in worker processes.
//!
//! A toolchain for the array is a Python interpreter, a compiler infrastructure and a C++ compiler. Any of them may crash, hang,
//! exhaust memory or fill the disk, and the process that needs the kernel is a user's llama.cpp. So nothing of it runs there:
//! a [`WorkerCompiler`] is a [`KernelCompiler`](aie_ops::compiler::KernelCompiler) that asks a program, over pipes, to do it.
//!
//! * A worker is started for the first kernel and reused: importing the toolchain takes seconds. There are as many
//!   as kernels are requested at a time, up to [`WorkerLimits::workers`].
//! * The messages are in [`protocol`]: one line of JSON each way per kernel. What the compiler prints is stored with its
//!   verdict.
//! * Whatever a worker does, the answer comes within [`WorkerLimits`], and afterwards none of its processes is left: each worker
//!   leads a process group, its environment has a mark that its descendants inherit, and everything in the group, with the mark
//!   or descended from the worker is killed. Only a process that leaves the group, empties its environment and outlives its
//!   parents gets away, unless the worker is a subreaper, as [`serve`] makes it.
//! * When the host dies, a worker sees the end of its standard input and does the same on its own.
//!
//! No thread is started in the host: the caller that needs a kernel watches the worker.
//!
//! [`serve`] is the other side, for compilers written in Rust; `ggml-hsa-jit-worker` is that with the reference compiler.

mod command;
mod compiler;
mod ending;
mod folder;
pub mod locate;
mod orphans;
mod pool;
mod process;
pub mod protocol;
pub mod serve;

pub use command::{WorkerCommand, WorkerLimits};
pub use compiler::WorkerCompiler;
pub use locate::{LocateError, WORKER_NAME, WorkerPlaces};
