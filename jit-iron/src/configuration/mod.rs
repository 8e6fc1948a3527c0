//! Configurations: the lists of kernels that `ggml-hsa-gen-kernels` makes ahead of time.
//!
//! The format is that of the C++ ggml-hsa backend's tool. `document` is JSON whose values know their place, `reader` turns it
//! into [`KernelRequest`]s (`request`), which the backend would ask for. Reading continues after a mistake, and every [`Problem`]
//! carries its place, so that one run reports all that is wrong with a file. Nothing here compiles or writes, and nothing needs a
//! toolchain.

mod design;
mod document;
mod nearest;
mod parameters;
mod reader;
mod request;
pub mod tensor_text;
mod unlisted;

pub use document::{Document, Member, Place, Problem, Value};
pub use parameters::parse_parameters;
pub use reader::{Rules, parse};
pub use request::{KernelRequest, KernelSet, RequestError, check_request};

use std::path::Path;

/// Reads and validates the configuration in `path`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the file. Never empty.
pub fn load(path: &Path, rules: &Rules<'_>) -> Result<KernelSet, Vec<Problem>> {
    parse(&Document::read(path).map_err(|problem| vec![problem])?, rules)
}

#[cfg(test)]
mod tests;
