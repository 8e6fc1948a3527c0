//! The operations, one file per family.
//!
//! A family is a set of operations that share their rules and their CPU function: the four arithmetic operations, the gated
//! linear units, the copies. Each file lists its operations in `OPERATIONS`; [`crate::table`] collects the lists.
//!
//! # Arguments of the kernels
//!
//! A kernel made by [`Operation::reference`](crate::Operation::reference) takes one input per present source of its node, in
//! slot order, each at least as long as the [`Tensor::span_bytes`](crate::Tensor::span_bytes) of its tensor, and an output at
//! least as long as the span of the result. Too short is an error, never a panic; longer is fine.
//!
//! Two operations have a source that is the memory of the result: slot 1 of `CPY` and slot 2 of `SET_ROWS`. It is never read,
//! because bytes the kernel does not define keep their value. As inputs and output may not overlap, pass an empty range there.
//!
//! # What the rules accept
//!
//! `check` accepts what ggml's CPU backend computes (`ggml_backend_cpu_device_supports_op` and the type switches of
//! `ggml-cpu/ops.cpp`, ggml 0.26), on original tensors as well as on normalised ones. Strides are more liberal where the CPU
//! function would stop the process: any source layout is read; the result needs rows without gaps, except in copies.
//! Extents and strides whose span overflows the address space are rejected, so that a node from a damaged file does no harm.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod concat;
pub mod copy;
pub(crate) mod delta_net;
pub(crate) mod diagonal;
pub(crate) mod fill;
pub(crate) mod fused;
pub(crate) mod glu;
pub(crate) mod im2col;
pub(crate) mod loss;
pub(crate) mod mask;
pub(crate) mod mixture;
pub(crate) mod mul_mat;
pub(crate) mod norm;
pub(crate) mod outer_product;
pub(crate) mod pad;
pub(crate) mod pool;
pub(crate) mod recurrence;
pub(crate) mod reduce;
pub(crate) mod repeat;
pub(crate) mod roll;
pub(crate) mod rope;
pub(crate) mod rows;
pub(crate) mod silu_back;
pub(crate) mod soft_max;
pub(crate) mod solve;
pub(crate) mod sort;
pub(crate) mod ssm;
pub(crate) mod timestep;
pub(crate) mod unary;
pub(crate) mod upscale;
pub(crate) mod window;

mod cpu;
mod moving;
mod prelude;
mod rules;
#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod whole_tests;
