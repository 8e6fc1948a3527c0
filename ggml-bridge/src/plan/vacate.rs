//! Results that get memory of their own, so that what ggml puts into theirs need not wait for their reader.
//!
//! ggml gives a node the memory of a result that has been read. In the graph of a layer that is the value projection, which gets the memory
//! of the query projection from before its rotation: it could not come in front of the rotation, and so not next to the
//! projection that has its PDI.

use super::fusion::Step;
use super::hazard::overlap;
use crate::memory::ranges::RangeSet;
use crate::plan::graph::TensorView;
use std::ops::Range;

/// Most bytes of a result that is worth the memory.
const MOST_BYTES: usize = 1 << 20;

/// Whether the result of step `index` is read by the next step alone, and the one behind that, which depends on neither, overwrites it.
pub fn is_vacated<T>(steps: &[Step<'_, T>], index: usize) -> bool {
    let Some([writer, reader, next, ..]) = steps.get(index..) else { return false };
    let output = &writer.node.output;
    let span = output.span.range();
    if !is_plain(output) || !output.read_once || !writer.node.further_outputs.is_empty() || span.len() > MOST_BYTES {
        return false;
    }
    let touches = |view: &TensorView| overlap(&view.span.range(), &span);
    let mut reads = reader.node.inputs().filter(|view| touches(view));
    let is_read =
        reads.next().is_some_and(|view| view.span.range() == span && view.read_once) && reads.next().is_none();
    let results: Vec<Range<usize>> = reader.node.outputs().map(|view| view.span.range()).collect();
    let depends = next.node.inputs().any(|view| results.iter().any(|result| overlap(result, &view.span.range())));
    let in_place = reader.node.outputs().any(touches);
    is_read && !in_place && !depends && next.node.outputs().any(touches) && is_overwritten(&steps[index + 2..], &span)
}

fn is_plain(view: &TensorView) -> bool {
    !view.view && view.tensor.is_contiguous()
}

/// Whether the steps overwrite all of `span`, and read nothing of it before.
fn is_overwritten<T>(steps: &[Step<'_, T>], span: &Range<usize>) -> bool {
    let mut written = RangeSet::default();
    let inside = |view: &TensorView| {
        let Range { start, end } = view.span.range();
        start.max(span.start)..end.min(span.end).max(start.max(span.start))
    };
    for step in steps {
        if step.node.inputs().any(|view| !written.missing(&inside(view)).is_empty()) {
            return false;
        }
        step.node.outputs().filter(|view| is_plain(view)).for_each(|view| written.insert(inside(view)));
        if written.missing(span).is_empty() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSpan;
    use crate::plan::graph::GraphNode;
    use aie_ops::{DataType, OpParams, Tensor};
    use rstest::rstest;
    use std::iter::once;

    fn view(range: Range<usize>) -> TensorView {
        let tensor = Tensor::contiguous(DataType::F32, [range.len() / 4, 1, 1, 1]);
        // SAFETY: the memory is never accessed.
        let span = unsafe { HostSpan::new(range.start, range.len()) };
        TensorView { read_once: true, ..TensorView::plain(range.start, tensor, span) }
    }

    fn node(reads: impl IntoIterator<Item = Range<usize>>, written: Range<usize>) -> GraphNode {
        let sources = reads.into_iter().map(|range| Some(view(range))).collect();
        GraphNode::new("ADD", OpParams::default(), view(written), sources)
    }

    fn vacated(nodes: &[GraphNode]) -> bool {
        let steps: Vec<Step<'_, ()>> = nodes.iter().map(Step::single).collect();
        is_vacated(&steps, 0)
    }

    /// Query projection, its rotation, value projection in its place, and something that overwrites the rest.
    fn layer() -> [GraphNode; 4] {
        [
            node(once(0..64), 128..192),
            node(once(128..192), 256..320),
            node(once(0..64), 128..160),
            node([256..320, 128..160], 128..192),
        ]
    }

    #[test]
    fn what_only_the_next_step_reads_is_vacated() {
        assert!(vacated(&layer()));
    }

    #[rstest]
    #[case::read_twice(0, |node: &mut GraphNode| node.output.read_once = false)]
    #[case::a_view(0, |node: &mut GraphNode| node.output.view = true)]
    #[case::its_view_is_read_twice(1, |node: &mut GraphNode| node.sources[0].as_mut().unwrap().read_once = false)]
    #[case::in_place(1, |node: &mut GraphNode| node.output = view(128..192))]
    #[case::another_part_is_read(1, |node: &mut GraphNode| node.sources[0] = Some(view(128..160)))]
    #[case::two_parts_are_read(1, |node: &mut GraphNode| node.sources.push(Some(view(160..164))))]
    #[case::nothing_overwrites_it_next(2, |node: &mut GraphNode| node.output = view(512..544))]
    #[case::the_next_depends_on_the_reader(2, |node: &mut GraphNode| node.sources[0] = Some(view(256..320)))]
    #[case::the_rest_is_read(3, |node: &mut GraphNode| node.sources[1] = Some(view(128..192)))]
    #[case::the_rest_stays(3, |node: &mut GraphNode| node.output = view(128..188))]
    #[case::the_rest_may_stay(3, |node: &mut GraphNode| node.output.view = true)]
    fn what_others_may_see_is_not(#[case] index: usize, #[case] change: fn(&mut GraphNode)) {
        let mut nodes = layer();
        change(&mut nodes[index]);
        assert!(!vacated(&nodes));
    }
}
