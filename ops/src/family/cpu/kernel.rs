//! A kernel from a closure: the signature is checked once, in one place.

use super::threads::join_pool;
use crate::node::Node;
use crate::tensor::Tensor;
use aie_hal::{HostFunction, HostFunctionError};
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

/// What a node's kernel is given.
struct Signature {
    name: String,
    /// Slot of each source, for messages, and bytes that must be there; 0 for one that is not read.
    inputs: Vec<(usize, usize)>,
    outputs: Vec<usize>,
}

impl Signature {
    fn new(node: &Node, unread: Option<usize>) -> Self {
        let inputs = node.sources.iter().enumerate().filter_map(|(slot, source)| {
            let bytes = source.as_ref()?.span_bytes();
            Some((slot, if unread == Some(slot) { 0 } else { bytes }))
        });
        let (inputs, outputs) = (inputs.collect(), node.outputs().map(Tensor::span_bytes).collect());
        Self { name: node.op.clone(), inputs, outputs }
    }

    /// The outputs cut to their spans.
    fn cut<'o>(&self, inputs: &[&[u8]], outputs: &'o mut [&mut [u8]]) -> Result<Vec<&'o mut [u8]>, HostFunctionError> {
        let wrong = |reason| Err(HostFunctionError::Arguments { kernel: self.name.clone(), reason });
        let (expected, given) = ([self.inputs.len(), self.outputs.len()], [inputs.len(), outputs.len()]);
        if given != expected {
            return wrong(format!("expected {expected:?} inputs and outputs, given {given:?}"));
        }
        if let Some(((slot, bytes), given)) =
            self.inputs.iter().zip(inputs).find(|((_, bytes), given)| given.len() < *bytes)
        {
            return wrong(format!("source {slot} needs {bytes} bytes, given {}", given.len()));
        }
        let mut cut = Vec::with_capacity(outputs.len());
        for (bytes, output) in self.outputs.iter().zip(outputs) {
            let given = output.len();
            match output.get_mut(..*bytes) {
                Some(output) => cut.push(output),
                None => return wrong(format!("the result needs {bytes} bytes, given {given}")),
            }
        }
        Ok(cut)
    }
}

/// A closure with the signature of a node.
struct Reference<F> {
    signature: Signature,
    body: F,
}

impl<F> Debug for Reference<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reference").field("name", &self.signature.name).finish_non_exhaustive()
    }
}

impl<F> HostFunction for Reference<F>
where
    F: Fn(&[&[u8]], &mut [&mut [u8]]) -> Result<(), HostFunctionError> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.signature.name
    }

    fn input_count(&self) -> usize {
        self.signature.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.signature.outputs.len()
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        self.run_all(inputs, &mut [output])
    }

    fn run_all(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), HostFunctionError> {
        let mut cut = self.signature.cut(inputs, outputs)?;
        if cut.iter().all(|output| output.is_empty()) {
            return Ok(());
        }
        join_pool();
        (self.body)(inputs, &mut cut)
    }
}

/// Makes a kernel for a node that its operation's `check` accepted. `body` gets the inputs by position ([`KernelInput`]), each
/// at least the span of its tensor, and the output cut to its span; it is not called for an empty result. The source in slot
/// `unread` may be of any length.
pub fn kernel<F>(node: &Node, unread: Option<usize>, body: F) -> Arc<dyn HostFunction>
where
    F: Fn(&[&[u8]], &mut [u8]) -> Result<(), HostFunctionError> + Send + Sync + 'static,
{
    let body = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| body(inputs, outputs[0]);
    Arc::new(Reference { signature: Signature::new(node, unread), body })
}

/// `index`, which was read from data, if it is below `end`.
///
/// # Errors
/// [`HostFunctionError::Data`], which calls it `what`.
pub fn in_range(op: &str, what: &str, index: i64, end: usize) -> Result<usize, HostFunctionError> {
    usize::try_from(index).ok().filter(|index| *index < end).ok_or_else(|| HostFunctionError::Data {
        kernel: op.to_owned(),
        reason: format!("{what} {index} is out of range; possible: 0 to {end}, exclusive"),
    })
}

/// A tensor with its position among the inputs.
#[derive(Debug, Clone, Copy)]
pub struct KernelInput {
    /// Position.
    pub position: usize,
    /// Type and layout.
    pub tensor: Tensor,
}

impl KernelInput {
    /// Source `slot` of `node`, if present.
    pub fn of(node: &Node, slot: usize) -> Option<Self> {
        // Holes take no place.
        Some(Self { tensor: *node.source(slot)?, position: node.sources[..slot].iter().flatten().count() })
    }
}

/// The first `N` sources of a node whose operation's `check` found that they are there.
pub fn arguments<const N: usize>(node: &Node) -> [KernelInput; N] {
    std::array::from_fn(|slot| KernelInput::of(node, slot).expect("check finds the sources"))
}
