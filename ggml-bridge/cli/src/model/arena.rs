//! Nodes of a graph with memory that does not exist: places for tensors, views of them, and how often each is read.

use super::allocation;
use aie_ops::{DataType, OpParams, Tensor};
use ggml_hsa::memory::host_memory::HostSpan;
use ggml_hsa::plan::graph::{Graph, GraphNode, TensorView};
use std::collections::HashMap;

/// What a tensor is for. Each has a buffer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Weights.
    Weights,
    /// Keys and values of earlier tokens.
    Cache,
    /// What the program sets before each graph.
    Inputs,
    /// Results of nodes.
    Compute,
}

/// The distance of two places: none is larger.
const APART: usize = 1 << 44;
/// Tensors begin at multiples of this, as in the backend's buffers.
const ALIGNMENT: usize = ggml_hsa::memory::host_memory::ALIGNMENT;

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Weights, Self::Cache, Self::Inputs, Self::Compute];

    /// Where its buffer begins.
    pub fn base(self) -> usize {
        APART * (1 + self as usize)
    }
}

/// A node or a view, for the allocator of results. Only tensors among results are named.
#[derive(Debug, Clone)]
pub struct Event {
    /// The tensor that it is.
    pub id: usize,
    /// Its operation.
    pub op: &'static str,
    /// Type and shape.
    pub tensor: Tensor,
    /// What it reads.
    pub sources: Vec<usize>,
    /// The result that it is a view of.
    pub root: Option<usize>,
}

/// A graph being built.
#[derive(Debug, Default)]
pub struct Arena {
    nodes: Vec<GraphNode>,
    /// How often a tensor is read, by nodes and as a view.
    uses: HashMap<usize, usize>,
    tensors: usize,
    used: [usize; Place::ALL.len()],
    named: HashMap<String, TensorView>,
    events: Vec<Event>,
    /// The result that a tensor is, or is a view of.
    roots: HashMap<usize, usize>,
    /// Where results are; each behind the one before when nothing is said.
    offsets: HashMap<usize, usize>,
}

impl Arena {
    fn id(&mut self) -> usize {
        self.tensors += 1;
        self.tensors
    }

    /// An arena with results where the allocator puts those of `largest`, a graph of the same nodes. llama.cpp reserves memory for
    /// the largest graph, and smaller ones keep its places.
    pub fn reserved(largest: &Self) -> Self {
        Self { offsets: allocation::offsets(&largest.events, ALIGNMENT), ..Self::default() }
    }

    /// A new tensor in `place`.
    fn tensor(&mut self, place: Place, tensor: Tensor) -> TensorView {
        let id = self.id();
        let known = self.offsets.get(&id).filter(|_| place == Place::Compute).copied();
        let used = &mut self.used[place as usize];
        let offset = known.unwrap_or(*used);
        let span = HostSpan::imagined(place.base() + offset, tensor.span_bytes());
        *used = (*used).max(offset + span.length().next_multiple_of(ALIGNMENT));
        TensorView { weights: place == Place::Weights, ..TensorView::plain(id, tensor, span) }
    }

    fn note(&mut self, of: &TensorView, op: &'static str, sources: &[Option<TensorView>], root: Option<usize>) {
        let sources =
            sources.iter().flatten().map(|source| source.id).filter(|id| self.roots.contains_key(id)).collect();
        self.roots.insert(of.id, root.unwrap_or(of.id));
        self.events.push(Event { id: of.id, op, tensor: of.tensor, sources, root });
    }

    /// The tensor that is called `name`, made on the first request: weights, caches and inputs, which many nodes read.
    pub fn named(&mut self, place: Place, name: &str, tensor: Tensor) -> TensorView {
        if let Some(view) = self.named.get(name) {
            return *view;
        }
        let view = TensorView { input: place == Place::Inputs, ..self.tensor(place, tensor) };
        self.named.insert(name.to_owned(), view);
        view
    }

    /// Other extents and strides of the bytes of `of`, from `offset` on.
    pub fn view(&mut self, of: TensorView, tensor: Tensor, offset: usize) -> TensorView {
        *self.uses.entry(of.id).or_default() += 1;
        let span = HostSpan::imagined(of.span.address() + offset, tensor.span_bytes());
        let view = TensorView { id: self.id(), tensor, span, view: true, ..of };
        if let Some(root) = self.roots.get(&of.id).copied() {
            self.note(&view, "VIEW", &[Some(of)], Some(root));
        }
        view
    }

    /// `of` with other extents and no gaps.
    pub fn reshape(&mut self, of: TensorView, ne: [usize; 4]) -> TensorView {
        self.view(of, Tensor::contiguous(of.tensor.dtype, ne), 0)
    }

    /// `of` with dimension `i` as dimension `axes[i]`.
    pub fn permute(&mut self, of: TensorView, axes: [usize; 4]) -> TensorView {
        let mut tensor = of.tensor;
        for (from, to) in axes.into_iter().enumerate() {
            (tensor.ne[to], tensor.nb[to]) = (of.tensor.ne[from], of.tensor.nb[from]);
        }
        self.view(of, tensor, 0)
    }

    /// A node with a result of `dtype` and `ne`.
    pub fn node(
        &mut self,
        name: &str,
        op: &'static str,
        params: OpParams,
        result: (DataType, [usize; 4]),
        sources: &[Option<TensorView>],
    ) -> TensorView {
        let output = self.tensor(Place::Compute, Tensor::contiguous(result.0, result.1));
        self.note(&output, op, sources, None);
        self.push(name, op, params, output, sources)
    }

    /// A node whose result is `output`, which has a place: a view of a cache.
    pub fn node_into(
        &mut self,
        name: &str,
        op: &'static str,
        params: OpParams,
        output: TensorView,
        sources: &[Option<TensorView>],
    ) -> TensorView {
        // It takes no room, and the results it reads may be free behind it.
        let sources_of_results = sources.iter().flatten().map(|source| source.id);
        let sources_of_results = sources_of_results.filter(|id| self.roots.contains_key(id)).collect();
        let (id, tensor) = (output.id, output.tensor);
        self.events.push(Event { id, op, tensor, sources: sources_of_results, root: Some(id) });
        self.push(name, op, params, output, sources)
    }

    /// A node that ggml computes over its source: the result is a view of it.
    pub fn node_over(&mut self, name: &str, op: &'static str, params: OpParams, of: TensorView) -> TensorView {
        let output = TensorView { id: self.id(), view: true, ..of };
        let root = self.roots.get(&of.id).copied();
        self.note(&output, op, &[Some(of)], root);
        self.push(name, op, params, output, &[Some(of)])
    }

    /// Room for a result that llama.cpp's graph has and does not compute, and for one that is never read.
    pub fn passed_over(&mut self, tensor: Tensor) {
        let [read, kept] = [0, 1].map(|_| {
            let id = self.id();
            self.roots.insert(id, id);
            self.events.push(Event { id, op: "GET_ROWS", tensor, sources: Vec::new(), root: None });
            id
        });
        let view = self.id();
        self.events.push(Event { id: view, op: "SET_ROWS", tensor, sources: vec![read, kept], root: Some(kept) });
    }

    fn push(
        &mut self,
        name: &str,
        op: &'static str,
        params: OpParams,
        output: TensorView,
        sources: &[Option<TensorView>],
    ) -> TensorView {
        for source in sources.iter().flatten() {
            *self.uses.entry(source.id).or_default() += 1;
        }
        let node = GraphNode::new(op, params, output, sources.to_vec());
        self.nodes.push(GraphNode { name: name.to_owned(), ..node });
        output
    }

    /// Bytes of a place.
    pub fn bytes(&self, place: Place) -> usize {
        self.used[place as usize]
    }

    /// The graph, whose tensors know now how often they are read.
    pub fn finish(&mut self) -> Graph {
        let mut graph = Graph { nodes: std::mem::take(&mut self.nodes) };
        let uses = &self.uses;
        let count = |view: &mut TensorView| view.read_once = uses.get(&view.id) == Some(&1);
        for node in &mut graph.nodes {
            count(&mut node.output);
            node.sources.iter_mut().flatten().for_each(count);
        }
        graph
    }
}
