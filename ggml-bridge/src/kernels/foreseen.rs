//! Nodes that graphs may have later: those ggml asked about before the first graph.
//!
//! llama.cpp measures its graphs, of a prompt and of a token, before it computes one. The first that it computes has few of their
//! kernels, and a hardware context cannot take up another PDI: without foresight the next graph needs a new context.

use aie_ops::Node;
use parking_lot::Mutex;

/// Most nodes that are noted; a model has some dozens of different ones.
const MOST: usize = 512;

/// Nodes noted until the first graph is recorded. Thread-safe.
pub struct Foreseen(Mutex<Option<Vec<Node>>>);

impl Default for Foreseen {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Foreseen {
    /// Notes a node that can be computed, unless the nodes have been taken.
    pub fn note(&self, node: &Node) {
        if let Some(nodes) = self.0.lock().as_mut().filter(|nodes| nodes.len() < MOST && !nodes.contains(node)) {
            nodes.push(node.clone());
        }
    }

    /// What is noted now, in its order.
    pub fn noted(&self) -> Vec<Node> {
        self.0.lock().clone().unwrap_or_default()
    }

    /// What was noted, in its order. From now on there is nothing, and nothing is noted.
    pub fn take(&self) -> Vec<Node> {
        self.0.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::{DataType, OpParams, Tensor};

    #[test]
    fn nodes_are_noted_once_and_taken_once() {
        let node = |elements| {
            let x = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
            Node::new("SQR", OpParams::default(), x, vec![Some(x)])
        };
        let foreseen = Foreseen::default();
        for elements in [64, 128, 64] {
            foreseen.note(&node(elements));
        }
        assert_eq!(foreseen.take(), [node(64), node(128)]);
        foreseen.note(&node(256));
        assert_eq!(foreseen.take(), []);
    }
}
