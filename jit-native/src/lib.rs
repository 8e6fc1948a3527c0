//! Kernels for the AI Engine array, made in the process: no IRON, no Peano, no file.
//!
//! A kernel is what its cores execute and how data reaches them. Both are built here from the instruction tables of
//! [`aie_isa`] and written with the format writers of [`aie_hal`]:
//!
//! - [`core`]: programs of cores. Loops over virtual registers become scheduled bundles.
//! - [`array`](mod@array): tiles, streams, buffer descriptors and locks become a PDI, and a dispatch an instruction stream.
//! - [`check`]: the rules that a finished program has to keep, shown along all its paths.
//! - [`kernels`]: the families of operations, written with both.
//! - [`selftest`]: what each family has to get right on an NPU before it is used there.
//! - [`NativeCompiler`] offers them to kernel stores, as one compiler among others.
#![forbid(unsafe_code)]

pub mod array;
pub mod check;
mod compiler;
pub mod core;
pub mod kernels;
pub mod selftest;

pub use compiler::{Admission, NativeCompiler};

/// SHA-256 in hexadecimal of the sources that kernels are made from. What was made from other sources may differ.
pub const SOURCE_DIGEST: &str = env!("AIE_JIT_NATIVE_SOURCE_DIGEST");
