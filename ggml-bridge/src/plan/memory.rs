//! Host memory that a graph names, as buffers.
//!
//! Tensors in our own buffers are found in the device's map. Everything else is imported, in place and by whole buffers, so
//! that all plans import the same ranges. Buffers that overlap are imported as one: two imports of the same bytes would be two views that do not agree on a device that is not coherent.

use super::BufferRange;
use crate::graph::Graph;
use crate::host_memory::{HostSpan, TensorMemory};
use crate::memory::Place;
use crate::npu::Npu;
use aie_hal::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// The buffers of one graph.
pub struct GraphMemory<'a> {
    npu: &'a Npu,
    imports: Vec<(HostSpan, Arc<dyn Buffer>)>,
}

/// Joins spans that overlap.
fn join(mut spans: Vec<HostSpan>) -> Vec<HostSpan> {
    spans.sort_unstable();
    let mut joined: Vec<HostSpan> = Vec::new();
    for span in spans {
        match joined
            .last_mut()
            .filter(|last| last.end() > span.address())
            .and_then(|last| Some((last.union(span)?, last)))
        {
            Some((union, last)) => *last = union,
            None => joined.push(span),
        }
    }
    joined
}

impl<'a> GraphMemory<'a> {
    /// Imports what is not in our buffers.
    ///
    /// # Errors
    /// Why a device cannot reach some memory.
    pub fn new(npu: &'a Npu, graph: &Graph) -> Result<Self, String> {
        let spans = graph.nodes.iter().flat_map(|node| node.inputs().chain(std::iter::once(&node.output)));
        let foreign = spans.filter(|view| view.span.length() > 0 && npu.find(&range(view.span)).is_none());
        let imports = join(foreign.map(|view| view.buffer).collect()).into_iter().map(|span| {
            let buffer = npu.device().import(Arc::new(TensorMemory(span)));
            buffer.map(|buffer| (span, buffer)).map_err(|cause| format!("memory outside the device's buffers: {cause}"))
        });
        Ok(Self { npu, imports: imports.collect::<Result<_, _>>()? })
    }

    /// The buffer that holds the addresses `range`, which are of a span of the graph.
    ///
    /// # Errors
    /// When they are not.
    pub fn place(&self, range: &Range<usize>) -> Result<Place, String> {
        if let Some(place) = self.npu.find(range) {
            return Ok(place);
        }
        let at = self.imports.partition_point(|(span, _)| span.end() <= range.start);
        match self.imports.get(at) {
            Some((span, buffer)) if span.address() <= range.start && range.end <= span.end() => {
                Ok(Place { buffer: Arc::clone(buffer), offset: range.start - span.address() })
            }
            _ => Err(format!("memory {:#x}+{} belongs to no tensor of the graph", range.start, range.len())),
        }
    }

    /// Adds the buffers that hold `range`, which may go on from one buffer into the next, to `parts`. Errors as
    /// [`GraphMemory::place`].
    pub fn split(&self, mut range: Range<usize>, parts: &mut Vec<BufferRange>) -> Result<(), String> {
        while !range.is_empty() {
            let Place { buffer, offset } = self.place(&(range.start..range.start + 1))?;
            let length = range.len().min(buffer.size() - offset);
            parts.push(BufferRange { buffer, range: offset..offset + length });
            range.start += length;
        }
        Ok(())
    }

    /// Whether `range` is in one of our buffers.
    pub fn is_own(&self, range: &Range<usize>) -> bool {
        self.npu.find(range).is_some()
    }
}

/// The addresses of a span.
pub fn range(span: HostSpan) -> Range<usize> {
    span.address()..span.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_become_one() {
        // SAFETY: the memory is never accessed.
        let span = |address, length| unsafe { HostSpan::new(address, length) };
        let joined = join(vec![span(20, 4), span(0, 8), span(4, 8), span(12, 4), span(21, 1)]);
        assert_eq!(joined, [span(0, 12), span(12, 4), span(20, 4)]);
    }
}
