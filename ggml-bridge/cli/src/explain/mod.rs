//! What a model would do on a device, without running it: the plans of its graphs, made by the code that makes them in a run.
//!
//! [`plan`](planning::plan) takes graphs that llama.cpp has built ([`crate::llama_cpp`]) and has [`ggml_hsa::plan`] record them on a
//! [`PaperDevice`], which has no memory and computes nothing; kernels come from a store that foresees them and compiles nothing that takes
//! time. So what is said here of fusion, of array and host, of kernels and conversions is what a run does.

pub mod contexts;
pub mod html;
pub mod operation;
pub mod ordinary_run;
pub mod paper;
pub mod planning;
pub mod prediction;
pub mod report;
pub mod sequence;
#[cfg(test)]
pub(crate) mod tests;

pub use paper::PaperDevice;
pub use report::{Explanation, Pass};
