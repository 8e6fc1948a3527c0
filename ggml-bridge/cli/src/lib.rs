//! What the programs beside `libggml-hsa.so` share: reading the command line, what they print, their manuals, models as their files describe them, and
//! what such a model would do on a device.
//!
//! The library that llama.cpp loads does not depend on this crate, so that tables, argument parsers and readers of model files are not
//! in it.
#![forbid(unsafe_code)]

pub mod child;
pub mod command_line;
pub mod explain;
pub mod llama_cpp;
pub mod manual;
pub mod model;
pub mod output;
