//! Generating kernels ahead of time: the library half of `ggml-hsa-gen-kernels`.
//!
//! A configuration ([`crate::configuration`]) or the statistics of a run ([`stats_file`]) say which kernels to generate. They are
//! compiled by the first of several [`KernelCompiler`](aie_ops::compiler::KernelCompiler)s that supports them, several at a time,
//! into a directory that serves as `GGML_HSA_KERNEL_DIR`. A complete kernel from the same sources is not generated again: an interrupted run is
//! resumed by starting it again. Each kernel appears with all of its files or not at all.

mod deferred;
mod output;
mod progress;
mod report;
mod run;
pub mod simulation;
pub mod stats_file;
mod toolchain;

pub use deferred::Deferred;
pub use output::{Links, OutputDirectory, OutputError, plan_links, write_hsacos, write_packs};
pub use progress::Progress;
pub use report::{KernelReport, Report, Status};
pub use run::{Interruption, Options, generate, plan};
pub use toolchain::iron_compiler;

#[cfg(test)]
mod tests;
