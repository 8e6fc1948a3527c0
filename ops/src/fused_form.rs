//! Fused operations as data: which nodes of a graph one stands for.

use crate::node::{Node, OpParams, Unsupported};
use crate::tensor::{DataType, Tensor};

/// A matrix product: its operation.
pub const PRODUCT: &str = "MUL_MAT";

/// Where a part gets a source from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A source of the fused node.
    Source(usize),
    /// The result of an earlier part. Nothing else may read it.
    Made(usize),
}

/// A node that a fused one stands for.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its operation.
    pub op: &'static str,
    /// Its sources, all of them.
    pub sources: &'static [Origin],
}

/// A fused operation. A graph has it where its last node, with those that make its sources, is the pattern of the parts.
#[derive(Debug)]
pub struct Form {
    /// Its name in the table.
    pub name: &'static str,
    /// What it stands for, in the order of a graph. The last one gives the result; f32 is between them.
    pub parts: &'static [Part],
    /// The part whose parameters are its own. Others have none, but for what products only wish for.
    pub parameters: usize,
    /// Whether the two sources of the last part may change places, where they have the same extents.
    pub commutes: bool,
    /// Sources whose memory may be that of the result, as each row or element of them is read before it is written.
    pub in_place: &'static [usize],
    /// A node with a type for source 0, for the documentation.
    pub example: fn(DataType) -> Node,
}

impl Form {
    /// How many sources it has.
    pub fn sources(&self) -> usize {
        let slots = self.parts.iter().flat_map(|part| part.sources).filter_map(|from| match from {
            Origin::Source(slot) => Some(slot + 1),
            Origin::Made(_) => None,
        });
        slots.max().unwrap_or(0)
    }

    /// The nodes that `node`, which is of this form, stands for.
    ///
    /// # Errors
    /// [`Unsupported::Shape`] for other sources or results than the form has.
    pub fn nodes(&self, node: &Node) -> Result<Vec<Node>, Unsupported> {
        let wrong = |reason: String| Unsupported::Shape { op: self.name, reason };
        for (what, given, needed) in
            [("sources", node.sources.len(), self.sources()), ("results", node.outputs().count(), 1)]
        {
            if given != needed {
                return Err(wrong(format!("{given} {what} given, {needed} needed")));
            }
        }
        let mut nodes: Vec<Node> = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            let get = |from: &Origin| match *from {
                Origin::Source(slot) => {
                    node.source(slot).copied().ok_or_else(|| wrong(format!("source {slot} is missing")))
                }
                Origin::Made(earlier) => Ok(nodes[earlier].output),
            };
            let sources = part.sources.iter().map(get).collect::<Result<Vec<_>, _>>()?;
            let between = |ne| Tensor::contiguous(DataType::F32, ne);
            let output = match sources[..] {
                _ if index + 1 == self.parts.len() => node.output,
                [a, b] if part.op == PRODUCT => between([a.ne[1], b.ne[1], b.ne[2], b.ne[3]]),
                _ => between(sources[0].ne),
            };
            let params = if index == self.parameters { node.params } else { OpParams::default() };
            nodes.push(Node::new(part.op, params, output, sources.into_iter().map(Some).collect()));
        }
        Ok(nodes)
    }

    /// Whether the part `index` can have `params`: those of the fused node, none, or a product's wish for precision, which is met always.
    pub fn takes_parameters(&self, index: usize, params: &OpParams) -> bool {
        let hints = usize::from(self.parts[index].op == PRODUCT);
        index == self.parameters || params.0[hints..].iter().all(|word| *word == 0)
    }
}
