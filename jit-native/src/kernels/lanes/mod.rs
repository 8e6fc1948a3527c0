//! The lanes: operations on elements and on rows, f32, with one program and one PDI for all of them.
//!
//! Each column has one core (see [`crate::array::Lanes`] for the array). What it does with a tile is a list of [`step::Step`]s in its
//! parameters ([`program`]); where tiles come from and go to is a [`walk::Walk`] through the tensors, which is dealt over the
//! columns. [`elementwise`], [`rows`] and [`rope`] say for each operation what its steps and its walk are.

pub mod dispatch;
pub mod elementwise;
pub mod program;
pub mod rope;
pub mod rotation;
pub mod rows;
pub mod step;
pub mod walk;

#[cfg(test)]
mod tests;

use super::NativeError;
use aie_ops::{DataType, Node, Tensor};

/// The error of a node that a family does not take.
fn unsupported(family: &'static str, node: &Node, reason: impl Into<String>) -> NativeError {
    NativeError::Unsupported { family, op: node.op.clone(), reason: reason.into() }
}

/// Source `slot`, which has to be f32 with strides of whole words.
fn f32_source<'a>(family: &'static str, node: &'a Node, slot: usize) -> Result<&'a Tensor, NativeError> {
    let tensor = node.source(slot).ok_or_else(|| unsupported(family, node, format!("no source {slot}")))?;
    checked_f32(family, node, &format!("source {slot}"), tensor)?;
    Ok(tensor)
}

fn checked_f32(family: &'static str, node: &Node, what: &str, tensor: &Tensor) -> Result<(), NativeError> {
    if tensor.dtype != DataType::F32 {
        return Err(unsupported(family, node, format!("{what} is {}; possible: f32", tensor.dtype)));
    }
    if tensor.nb.iter().any(|stride| !stride.is_multiple_of(4)) {
        return Err(unsupported(family, node, format!("{what} has strides {:?}, no whole words", tensor.nb)));
    }
    if let Err(error) = tensor.validate() {
        return Err(unsupported(family, node, error.to_string()));
    }
    if tensor.elements() == 0 {
        return Err(unsupported(family, node, format!("{what} has no elements")));
    }
    Ok(())
}

/// The result, which has to be f32 without gaps.
fn f32_result<'a>(family: &'static str, node: &'a Node) -> Result<&'a Tensor, NativeError> {
    checked_f32(family, node, "the result", &node.output)?;
    if !node.output.is_contiguous() {
        return Err(unsupported(family, node, "the result has gaps"));
    }
    Ok(&node.output)
}

/// Strides in words.
fn words(tensor: &Tensor) -> [u64; 4] {
    tensor.nb.map(|stride| stride as u64 / 4)
}
