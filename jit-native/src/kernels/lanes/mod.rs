//! The lanes: operations on elements and on rows, with three programs, and so three PDIs, for all of them.
//!
//! Each column has one core (see [`crate::array::Lanes`] for the array). What it does with a tile is a list of [`step::Step`]s in its
//! parameters ([`program`]), each with one of the program's [`functions`]; where tiles come from and go to is a [`walk::Walk`]
//! through the tensors, which is dealt over the columns. [`elementwise`], [`rows`] and [`rope`] say for each operation what its steps
//! and its walk are.

mod compute;
pub mod dispatch;
pub mod elementwise;
pub mod format;
pub mod functions;
mod long_rows;
pub mod program;
mod repetition;
pub mod rope;
pub mod rotation;
pub mod rows;
pub mod step;
pub mod walk;

#[cfg(test)]
mod tests;

use super::NativeError;
use aie_ops::{Node, Tensor};
use format::Format;

/// The generations that the programs are for.
const GENERATIONS: &[&str] = &["aie2", "aie2p"];

/// The error of a node that a family does not take.
fn unsupported(family: &'static str, node: &Node, reason: impl Into<String>) -> NativeError {
    NativeError::Unsupported { family, op: node.op.clone(), reason: reason.into() }
}

/// Source `slot`, which has to be f32 with strides of whole words.
fn f32_source<'a>(family: &'static str, node: &'a Node, slot: usize) -> Result<&'a Tensor, NativeError> {
    let (tensor, format) = source(family, node, slot)?;
    only_f32(family, node, &format!("source {slot}"), format)?;
    Ok(tensor)
}

fn only_f32(family: &'static str, node: &Node, what: &str, format: Format) -> Result<(), NativeError> {
    if format == Format::F32 {
        return Ok(());
    }
    Err(unsupported(family, node, format!("{what} is {}; possible: f32", format.name())))
}

/// Source `slot`, with its elements' format.
fn source<'a>(family: &'static str, node: &'a Node, slot: usize) -> Result<(&'a Tensor, Format), NativeError> {
    let tensor = node.source(slot).ok_or_else(|| unsupported(family, node, format!("no source {slot}")))?;
    let format = checked(family, node, &format!("source {slot}"), tensor)?;
    Ok((tensor, format))
}

fn checked(family: &'static str, node: &Node, what: &str, tensor: &Tensor) -> Result<Format, NativeError> {
    let Some(format) = Format::of(tensor.dtype) else {
        return Err(unsupported(family, node, format!("{what} is {}; possible: f32, bf16", tensor.dtype)));
    };
    if tensor.nb.iter().any(|stride| !stride.is_multiple_of(format.bytes())) {
        return Err(unsupported(family, node, format!("{what} has strides {:?}, no whole elements", tensor.nb)));
    }
    if let Err(error) = tensor.validate() {
        return Err(unsupported(family, node, error.to_string()));
    }
    if tensor.elements() == 0 {
        return Err(unsupported(family, node, format!("{what} has no elements")));
    }
    Ok(format)
}

/// The result, which has to be f32 without gaps.
fn f32_result<'a>(family: &'static str, node: &'a Node) -> Result<&'a Tensor, NativeError> {
    let (tensor, format) = result(family, node)?;
    only_f32(family, node, "the result", format)?;
    Ok(tensor)
}

/// The result, which has to be without gaps, with its elements' format.
fn result<'a>(family: &'static str, node: &'a Node) -> Result<(&'a Tensor, Format), NativeError> {
    let format = checked(family, node, "the result", &node.output)?;
    if !node.output.is_contiguous() {
        return Err(unsupported(family, node, "the result has gaps"));
    }
    Ok((&node.output, format))
}

/// Strides in elements.
fn strides(tensor: &Tensor) -> [u64; 4] {
    tensor.nb.map(|stride| (stride / tensor.dtype.block_bytes()) as u64)
}
