//! What the families take of a node's tensors.

use super::format::Format;
use crate::kit::NativeError;
use aie_ops::{Node, Tensor};

/// The error of a node that a family does not take.
pub(super) fn unsupported(family: &'static str, node: &Node, reason: impl Into<String>) -> NativeError {
    NativeError::Unsupported { family, op: node.op.clone(), reason: reason.into() }
}

/// Source `slot`, which has to be f32 with strides of whole words.
pub(super) fn f32_source<'a>(family: &'static str, node: &'a Node, slot: usize) -> Result<&'a Tensor, NativeError> {
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
pub(super) fn source<'a>(
    family: &'static str,
    node: &'a Node,
    slot: usize,
) -> Result<(&'a Tensor, Format), NativeError> {
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
pub(super) fn f32_result<'a>(family: &'static str, node: &'a Node) -> Result<&'a Tensor, NativeError> {
    let (tensor, format) = result(family, node)?;
    only_f32(family, node, "the result", format)?;
    Ok(tensor)
}

/// The result, which has to be without gaps, with its elements' format.
pub(super) fn result<'a>(family: &'static str, node: &'a Node) -> Result<(&'a Tensor, Format), NativeError> {
    let format = checked(family, node, "the result", &node.output)?;
    if !node.output.is_contiguous() {
        return Err(unsupported(family, node, "the result has gaps"));
    }
    Ok((&node.output, format))
}

/// Strides in elements.
pub(super) fn strides(tensor: &Tensor) -> [u64; 4] {
    tensor.nb.map(|stride| (stride / tensor.dtype.block_bytes()) as u64)
}
