//! Configurations: the lists of kernels that `ggml-hsa-gen-kernels` makes ahead of time.
//!
//! The format is that of the C++ ggml-hsa backend's tool. Reading has two halves. [`mod@file`] turns text into [`Entry`]s and knows
//! JSON, [`validation`] turns entries into [`KernelRequest`]s and knows operations. Both go on after a mistake, and every
//! [`Problem`] carries its place, so that one run reports all that is wrong with a file. Nothing here compiles or writes, and
//! nothing needs a toolchain.

mod advice;
mod document;
mod exported_name;
pub mod file;
mod nearest;
mod parameters;
mod place;
pub mod tensor_text;
pub mod validation;

pub use document::{Document, Value};
pub use exported_name::{ExportedNameError, check_exported_name};
pub use file::Entry;
pub use parameters::parse_parameters;
pub use place::{Located, Place, Problem};
pub use validation::{KernelRequest, NameTable, Rules, Validated, check_request, validate};

use std::path::Path;

/// Reads and validates the configuration in `path`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the file. Never empty.
pub fn load(path: &Path, rules: &Rules<'_>) -> Result<Validated, Vec<Problem>> {
    let document = Document::read(path).map_err(|problem| vec![problem])?;
    parse(&document, rules)
}

/// Validates the configuration in `document`.
///
/// # Errors
/// As [`load`].
pub fn parse(document: &Document, rules: &Rules<'_>) -> Result<Validated, Vec<Problem>> {
    let (entries, mut problems) = file::parse(document);
    match validate(&entries, rules) {
        Ok(validated) if problems.is_empty() => return Ok(validated),
        Ok(_) => {}
        Err(found) => problems.extend(found),
    }
    problems.sort_by_key(|problem| problem.place.position);
    Err(problems)
}

#[cfg(test)]
mod tests;
