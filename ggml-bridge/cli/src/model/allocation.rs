//! Where ggml's graph allocator puts results.
//!
//! Results that nobody reads any more make room for others, and some operations write over their source. Whether nodes may be
//! fused depends on that, so it is done here as `ggml-alloc.c` does it: the best fitting free block, else the end; with a
//! result in its source's place where the operation allows it and nothing else reads the source.

use super::arena::Event;
use aie_ops::Tensor;
use std::collections::HashMap;

/// Operations that may write over a source (`ggml_op_can_inplace`); activations of one source besides.
const IN_PLACE: [&str; 14] = [
    "SCALE", "ADD", "SUB", "MUL", "DIV", "SQR", "SQRT", "ROPE", "RMS_NORM", "SOFT_MAX", "TANH", "RELU", "GELU", "SILU",
];

/// Free blocks: first byte and bytes, in order. The last one has no end.
struct FreeBlocks(Vec<(usize, usize)>);

impl FreeBlocks {
    fn take(&mut self, size: usize) -> usize {
        let last = self.0.len() - 1;
        let fits = |(index, block): &(usize, &(usize, usize))| *index < last && block.1 >= size;
        // Of blocks of the same size the last one.
        let best = self.0.iter().enumerate().filter(fits).min_by_key(|(index, block)| (block.1, last - index));
        let index = best.map_or(last, |(index, _)| index);
        let block = &mut self.0[index];
        let offset = block.0;
        *block = (block.0 + size, block.1 - size);
        if block.1 == 0 {
            self.0.remove(index);
        }
        offset
    }

    fn give_back(&mut self, offset: usize, size: usize) {
        let index = self.0.partition_point(|block| block.0 < offset);
        self.0.insert(index, (offset, size));
        for index in [index, index.saturating_sub(1)] {
            if let (Some(block), Some(next)) = (self.0.get(index).copied(), self.0.get(index + 1).copied())
                && block.0 + block.1 == next.0
            {
                self.0[index].1 += next.1;
                self.0.remove(index + 1);
            }
        }
    }
}

/// What the allocator knows of a tensor.
#[derive(Default)]
struct State {
    /// Readers to come, views among them.
    children: usize,
    /// Views of it that are still read.
    views: usize,
    /// Where it is, and how many bytes it takes.
    place: Option<(usize, usize)>,
}

struct Allocator {
    states: HashMap<usize, State>,
    /// The tensor that each view is of.
    roots: HashMap<usize, usize>,
    free: FreeBlocks,
}

/// Offsets of the results of `events`, by tensor; `alignment` is that of each.
pub fn offsets(events: &[Event], alignment: usize) -> HashMap<usize, usize> {
    let mut allocator = Allocator {
        states: HashMap::new(),
        roots: events.iter().filter_map(|event| Some((event.id, event.root?))).collect(),
        free: FreeBlocks(vec![(0, usize::MAX / 2)]),
    };
    for event in events {
        if let Some(root) = event.root {
            allocator.states.entry(root).or_default().views += 1;
        }
        for source in &event.sources {
            allocator.states.entry(*source).or_default().children += 1;
        }
    }
    let tensors: HashMap<usize, Tensor> = events.iter().map(|event| (event.id, event.tensor)).collect();
    let mut found = HashMap::new();
    for event in events {
        if event.root.is_none() {
            let place = allocator.place(event, &tensors, alignment);
            allocator.states.entry(event.id).or_default().place = Some(place);
            found.insert(event.id, place.0);
        }
        event.sources.iter().for_each(|source| allocator.was_read(*source));
    }
    found
}

impl Allocator {
    fn place(&mut self, event: &Event, tensors: &HashMap<usize, Tensor>, alignment: usize) -> (usize, usize) {
        // Not over a view: what it is of has the place, and the allocator does not look for that.
        let inherited = event.sources.iter().filter(|_| IN_PLACE.contains(&event.op)).find_map(|source| {
            let same = tensors.get(source) == Some(&event.tensor);
            let state = self.states.get_mut(source)?;
            let alone = same && state.children == 1 && state.views == 0;
            if alone { state.place.take() } else { None }
        });
        inherited.unwrap_or_else(|| {
            let size = event.tensor.span_bytes().next_multiple_of(alignment);
            (self.free.take(size), size)
        })
    }

    /// A reader of `tensor` is done.
    fn was_read(&mut self, tensor: usize) {
        let Some(state) = self.states.get_mut(&tensor) else { return };
        state.children -= 1;
        if state.children > 0 || state.views > 0 {
            return;
        }
        let owner = match self.roots.get(&tensor) {
            Some(root) => {
                let Some(state) = self.states.get_mut(root) else { return };
                state.views -= 1;
                if state.views > 0 || state.children > 0 {
                    return;
                }
                *root
            }
            None => tensor,
        };
        if let Some((offset, size)) = self.states.get_mut(&owner).and_then(|state| state.place.take()) {
            self.free.give_back(offset, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::DataType::F32;

    fn event(id: usize, op: &'static str, elements: usize, sources: &[usize], root: Option<usize>) -> Event {
        Event { id, op, tensor: Tensor::contiguous(F32, [elements, 1, 1, 1]), sources: sources.to_vec(), root }
    }

    #[test]
    fn results_take_the_room_of_what_nobody_reads() {
        let events = [
            event(1, "MUL_MAT", 32, &[], None),
            event(2, "MUL_MAT", 16, &[1], None),
            // In the first one's room: the smallest block that is large enough.
            event(3, "MUL_MAT", 8, &[2], None),
            // Over its source, which only it reads.
            event(4, "MUL", 8, &[3], None),
            event(5, "MUL_MAT", 40, &[4, 2], None),
        ];
        let found = offsets(&events, 64);
        assert_eq!([1, 2, 3, 4, 5].map(|id| found[&id]), [0, 128, 0, 0, 192]);
    }

    #[test]
    fn views_keep_what_they_are_of() {
        let events = [
            event(1, "MUL_MAT", 16, &[], None),
            event(2, "VIEW", 16, &[1], Some(1)),
            event(3, "MUL_MAT", 16, &[], None),
            event(4, "ROPE", 16, &[2], None),
            event(5, "ADD", 16, &[4, 3], None),
        ];
        let found = offsets(&events, 64);
        assert_eq!([1, 3, 4, 5].map(|id| found[&id]), [0, 64, 128, 128]);
    }

    #[test]
    fn blocks_join_their_neighbours() {
        let mut free = FreeBlocks(vec![(0, 1 << 20)]);
        let offsets = [free.take(64), free.take(64), free.take(64)];
        assert_eq!(offsets, [0, 64, 128]);
        free.give_back(0, 64);
        free.give_back(64, 64);
        assert_eq!(free.0[0], (0, 128));
        free.give_back(128, 64);
        assert_eq!(free.0, [(0, 1 << 20)]);
    }
}
