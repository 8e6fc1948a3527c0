//! Host memory that a graph names, as buffers.
//!
//! Tensors in our own buffers are found in the device's map. Everything else is imported, in place and by whole buffers, so
//! that all plans import the same ranges. Buffers that overlap are imported as one: two imports of the same bytes would be two
//! views that do not agree on a device that is not coherent.

use super::PlanError;
use crate::memory::host_memory::{HostSpan, TensorMemory};
use crate::plan::context::DeviceContext;
use crate::plan::graph::Graph;
use aie_hal::{Binding, Buffer, BufferParams};
use std::ops::Range;
use std::sync::Arc;

/// The buffers of one graph.
pub struct GraphMemory<'a> {
    context: &'a DeviceContext,
    imports: Vec<(HostSpan, Arc<dyn Buffer>)>,
}

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
    /// Imports what is not in our buffers. For a plan that nothing runs, buffers of the same sizes stand for it.
    ///
    /// # Errors
    /// [`PlanError::Import`] when the device cannot reach some memory.
    pub fn new(context: &'a DeviceContext, graph: &Graph) -> Result<Self, PlanError> {
        let views = graph.nodes.iter().flat_map(|node| node.inputs().chain(std::iter::once(&node.output)));
        let foreign = views.filter(|view| view.span.length() > 0 && !context.buffers.contains(&view.span.range()));
        let written = |span: HostSpan| graph.nodes.iter().any(|node| span.contains(node.output.buffer));
        let imports = join(foreign.map(|view| view.buffer).collect()).into_iter().map(|span| {
            let buffer = match context.only_plans {
                true => context.hal.allocate(&BufferParams::data(span.length())),
                false => context.hal.import(Arc::new(TensorMemory::of_graph(span, written(span)))),
            };
            Ok((span, buffer.map_err(PlanError::Import)?))
        });
        Ok(Self { context, imports: imports.collect::<Result<_, PlanError>>()? })
    }

    /// The part of a buffer at the addresses `range`, which are of a span of the graph.
    ///
    /// # Errors
    /// [`PlanError::Memory`] when they are not.
    pub fn find(&self, range: &Range<usize>) -> Result<Binding, PlanError> {
        if let Some(own) = self.context.buffers.find(range) {
            return Ok(own);
        }
        let at = self.imports.partition_point(|(span, _)| span.end() <= range.start);
        match self.imports.get(at) {
            Some((span, buffer)) if span.address() <= range.start && range.end <= span.end() => {
                Ok(Binding { buffer: Arc::clone(buffer), offset: range.start - span.address(), length: range.len() })
            }
            _ => Err(PlanError::Memory { address: range.start, length: range.len() }),
        }
    }

    /// Adds the parts of buffers at `range`, which may continue from one buffer into the next, to `parts`. Errors as
    /// [`GraphMemory::find`].
    pub fn split(&self, mut range: Range<usize>, parts: &mut Vec<Binding>) -> Result<(), PlanError> {
        while !range.is_empty() {
            let first = self.find(&(range.start..range.start + 1))?;
            let length = range.len().min(first.buffer.size() - first.offset);
            parts.push(Binding { length, ..first });
            range.start += length;
        }
        Ok(())
    }
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
