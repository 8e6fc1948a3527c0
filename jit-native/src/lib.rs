//! Kernels for the AI Engine array, made in the process: no IRON, no Peano, no file.
//!
//! A kernel is what its cores execute and how data reaches them. Both are built here from the instruction tables of
//! [`aie_isa`] and written with the format writers of [`aie_hal`]:
//!
//! - [`NativeCompiler`] offers them to kernel stores, as one compiler among others.
//! - [`families`]: the families of operations, each with what it has to get right on an NPU before it is used there.
//! - [`numerics`]: functions of f32 on the vector units. [`kit`]: what families share.
//! - [`array`](mod@array): tiles, streams, buffer descriptors and locks become a PDI, and a dispatch an instruction stream.
//! - [`codegen`]: programs of cores. Loops over virtual registers become scheduled bundles.
//! - [`check`]: the rules that a finished program has to keep, shown along all its paths.
//!
//! Each of these uses only those that follow it.
#![forbid(unsafe_code)]

pub mod array;
pub mod check;
pub mod codegen;
mod compiler;
pub mod families;
pub mod kit;
pub mod numerics;

pub use compiler::{Admission, NativeCompiler, Products, SOURCE_DIGEST};
