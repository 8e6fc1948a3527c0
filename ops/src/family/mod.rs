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
//! Extents and strides whose span overflows the address space are refused, so that a node from a damaged file does no harm.

pub mod attention;
pub mod binary;
pub mod clamp;
pub mod concat;
pub mod copy;
pub mod delta_net;
pub mod diagonal;
pub mod fill;
pub mod fused;
pub mod glu;
pub mod im2col;
pub mod loss;
pub mod mask;
pub mod mixture;
pub mod mul_mat;
pub mod norm;
pub mod outer_product;
pub mod pad;
pub mod pool;
pub mod recurrence;
pub mod reduce;
pub mod repeat;
pub mod roll;
pub mod rope;
pub mod rows;
pub mod scale;
pub mod silu_back;
pub mod soft_max;
pub mod solve;
pub mod sort;
pub mod ssm;
pub mod timestep;
pub mod unary;
pub mod upscale;
pub mod window;

mod cpu;
mod moving;
mod prelude;
mod rules;
#[cfg(test)]
mod testing;
