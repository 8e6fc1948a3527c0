//! Models as files, and the graphs that llama.cpp builds for them.
//!
//! [`ModelFile`] reads names, types and shapes of a GGUF file's tensors and its numbers, never the weights. [`Model`] finds layers
//! in them: by the tensors' names, so that a family nobody listed is understood as far as its names are known; what is not known
//! is listed and left out. [`graph`] builds the nodes of one batch of tokens, in memory that does not exist.

pub mod allocation;
pub mod arena;
pub mod block;
pub mod conventions;
#[cfg(test)]
mod families;
pub mod file;
mod gguf;
pub mod graph;
pub mod hyper;
pub mod kind;
pub mod parts;
#[cfg(test)]
pub(crate) mod tests;

pub use file::{ModelError, ModelFile};
pub use graph::{Batch, Cache, build};
pub use parts::Model;
