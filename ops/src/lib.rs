//! The operations of the NPU, defined once.
//!
//! An [`Operation`] states its names, its rules for shapes and types, how its tensors are normalised, its kernel name, and a
//! reference kernel. Everything else asks the [`table`]: the ggml bridge what it may claim, the kernel store what to compile,
//! the simulated device what an artifact computes. How an operation is done on the array, and whether it can be, is up to the
//! [compilers](compiler::KernelCompiler). Adding an operation is one entry
//! in one family file and one line in the table.
//!
//! The way of a node: [`Node`] -> [`table::lookup`] -> [`Operation::check`] -> [`normalise`](normalise::normalise) ->
//! [`kernel_name`](name::kernel_name) -> [`KernelCompiler`](compiler::KernelCompiler), whose artifacts are code or, from the [`ReferenceCompiler`](compiler::ReferenceCompiler), a [description](artifact::reference_artifact).
//!
//! # Example
//!
//! ```
//! use aie_ops::{DataType, F16Policy, Node, OpParams, Tensor, name, normalise::normalise, table};
//!
//! let x = Tensor::contiguous(DataType::F32, [256, 1, 1, 1]);
//! let node = Node::new("ADD", OpParams::default(), x, vec![Some(x), Some(x)]);
//! let op = table::lookup(&node.op).expect("a known operation");
//! op.check(&node)?;
//! let array = normalise(op, &node, F16Policy::default())?.node;
//! assert_eq!(name::kernel_name(op, &array), "add-256f32-256f32-256f32");
//! let (ones, mut sum) = (1_f32.to_le_bytes().repeat(256), [0; 1024]);
//! op.reference(&array)?.run(&[&ones, &ones], &mut sum)?;
//! assert_eq!(sum[..4], 2_f32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod artifact;
pub mod blocks;
pub mod compiler;
pub mod family;
pub mod fit;
pub mod fused_form;
pub mod name;
pub mod node;
pub mod normalise;
pub mod operation;
pub mod table;
pub mod tensor;
pub mod work;

/// SHA-256 of this crate's sources in hexadecimal. What was derived from other sources may differ.
pub const SOURCE_DIGEST: &str = env!("AIE_OPS_SOURCE_DIGEST");

pub use artifact::ReferenceExecutor;
pub use node::{Node, OpParams};
pub use normalise::{F16Policy, Normalised};
pub use operation::{Operation, Placement, Unsupported};
pub use tensor::{DataType, Tensor};
