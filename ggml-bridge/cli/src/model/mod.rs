//! Models as files: names, types and shapes of a GGUF file's tensors, and its numbers, never the weights.

pub mod file;
mod gguf;

pub use file::{ModelError, ModelFile};
