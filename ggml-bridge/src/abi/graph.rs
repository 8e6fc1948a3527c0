//! Reading ggml's graphs and tensors.

use super::layout::Layout;
use super::names::OpKind;
use super::types::{BufferFields, FLAG_COMPUTE, FLAG_INPUT, FLAG_OUTPUT, RawGraph, RawTensor, USAGE_WEIGHTS};
use super::{Ggml, ggml};
use crate::memory::host_memory::HostSpan;
use crate::plan::graph::{Graph, GraphError, GraphNode, GraphSource, TensorView};
use aie_ops::{Node, OpParams, Tensor};
use std::ffi::{c_char, c_void};

/// A graph in ggml's memory, for the time of one call.
pub struct GraphRef<'a> {
    nodes: &'a [*mut RawTensor],
    uses: Uses<'a>,
    ggml: &'static Ggml,
}

/// Type and shape of a tensor.
///
/// # Errors
/// What is not understood.
pub fn tensor(ggml: &Ggml, raw: &RawTensor) -> Result<Tensor, GraphError> {
    let dtype = ggml.names.data_type(ggml.symbols, raw.dtype).ok_or_else(|| {
        let name = ggml.symbols.type_name(raw.dtype).unwrap_or("?");
        GraphError::DataType(name.to_owned(), raw.dtype)
    })?;
    let mut ne = [0; 4];
    for (to, from) in ne.iter_mut().zip(raw.ne) {
        *to = usize::try_from(from).map_err(|_| GraphError::Extent(from))?;
    }
    Ok(Tensor { dtype, ne, nb: raw.nb })
}

/// The program's name of a tensor, as far as it is text.
fn name(raw: &RawTensor) -> String {
    let bytes = raw.name.map(c_char::cast_unsigned);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn is_empty(raw: &RawTensor) -> bool {
    raw.ne.contains(&0)
}

/// A node as the rules want it, for questions before there is any memory. `Ok(None)`: a view operation, nothing to compute.
///
/// # Errors
/// What is not understood.
///
/// # Safety
/// The sources of `raw` are null or valid tensors.
pub unsafe fn node(ggml: &Ggml, raw: &RawTensor) -> Result<Option<Node>, GraphError> {
    if ggml.names.op(raw.op) == Some(OpKind::View) {
        return Ok(None);
    }
    let op = ggml.names.description(ggml.symbols, raw.op, raw.op_params[0]).ok_or(GraphError::Operation(raw.op))?;
    let mut sources = Vec::new();
    for source in raw.src {
        // SAFETY: by the contract of this function.
        sources.push(unsafe { source.as_ref() }.map(|source| tensor(ggml, source)).transpose()?);
    }
    while matches!(sources.last(), Some(None)) {
        sources.pop();
    }
    Ok(Some(Node::new(op, OpParams(raw.op_params), tensor(ggml, raw)?, sources)))
}

/// Whether a tensor lies in a buffer that holds weights.
fn is_weights(layout: Layout, buffer: *const c_void) -> bool {
    // SAFETY: a tensor's buffer is null or a live `ggml_backend_buffer` in the layout of the loaded ggml.
    !buffer.is_null() && unsafe { BufferFields::of(layout, buffer) }.usage == USAGE_WEIGHTS
}

/// The memory of a tensor's buffer.
fn buffer_span(layout: Layout, buffer: *mut c_void) -> Option<HostSpan> {
    if buffer.is_null() {
        return None;
    }
    // SAFETY: as in `is_weights`; the callback belongs to this buffer.
    let (base, size) = unsafe {
        let BufferFields { get_base, size, .. } = BufferFields::of(layout, buffer);
        (get_base?(buffer).expose_provenance(), size)
    };
    base.checked_add(size)?;
    // SAFETY: a buffer is `size` bytes of memory from its base on, and lives while a graph with a tensor in it is computed.
    Some(unsafe { HostSpan::new(base, size) })
}

/// How often tensors are used: by the nodes of the whole graph, of which the backend may see a part.
struct Uses<'a> {
    counts: &'a [i32],
    used: &'a [u32],
    keys: &'a [*const RawTensor],
}

impl<'a> Uses<'a> {
    /// The tables of a graph; empty ones when it has none.
    ///
    /// # Safety
    /// The tables are null or have as many entries as the set's size says, and stay valid and unchanged for `'a`.
    unsafe fn of(graph: &'a RawGraph) -> Self {
        let (set, size) = (&graph.visited, graph.visited.size);
        let missing = graph.use_counts.is_null() || set.used.is_null() || set.keys.is_null();
        if missing || isize::try_from(size.saturating_mul(size_of::<*const RawTensor>())).is_err() {
            return Self { counts: &[], used: &[], keys: &[] };
        }
        // SAFETY: by the contract of this function; the bits are in words of 32.
        unsafe {
            Self {
                counts: std::slice::from_raw_parts(graph.use_counts, size),
                used: std::slice::from_raw_parts(set.used, size.div_ceil(32)),
                keys: std::slice::from_raw_parts(set.keys, size),
            }
        }
    }

    /// The number of uses of `tensor`; `None` when the graph does not know it.
    fn count(&self, tensor: *const RawTensor) -> Option<i32> {
        let size = self.keys.len();
        let first = (tensor.addr() >> 4).checked_rem(size)?;
        let slots = (first..size).chain(0..first);
        let mut occupied = slots.take_while(|slot| self.used[slot / 32] >> (slot % 32) & 1 == 1);
        occupied.find(|slot| std::ptr::eq(self.keys[*slot], tensor)).map(|slot| self.counts[slot])
    }
}

impl GraphRef<'_> {
    /// Takes a graph from ggml.
    ///
    /// # Safety
    /// `graph` is a valid graph whose nodes, sources and buffers stay valid and unchanged for the life of the reference, and
    /// whose tensors' memory is valid until the graph is computed, each time it is computed.
    pub unsafe fn new(graph: *const RawGraph) -> Result<Self, GraphError> {
        let ggml = ggml().map_err(|cause| GraphError::Ggml(cause.into()))?;
        // SAFETY: by the contract of this function.
        let graph = unsafe { graph.as_ref() }.ok_or(GraphError::Missing)?;
        let count = usize::try_from(graph.n_nodes).map_err(|_| GraphError::Length)?;
        let nodes: &[*mut RawTensor] = if count == 0 || graph.nodes.is_null() {
            &[]
        } else {
            // SAFETY: `nodes` has `n_nodes` entries.
            unsafe { std::slice::from_raw_parts(graph.nodes, count) }
        };
        // SAFETY: by the contract of this function the graph's tables are valid and unchanged for the life of the reference.
        let uses = unsafe { Uses::of(graph) };
        Ok(Self { nodes, uses, ggml })
    }

    /// The nodes that compute something.
    fn computed(&self) -> impl Iterator<Item = &RawTensor> {
        // SAFETY: by the contract of `new`, nodes are valid tensors.
        self.nodes.iter().filter_map(|&node| unsafe { node.as_ref() }).filter(|node| {
            let asked = !self.ggml.has_compute_flag || node.flags & FLAG_COMPUTE != 0;
            asked && !is_empty(node) && self.ggml.names.op(node.op) != Some(OpKind::View)
        })
    }

    /// The sources of a node with their slots.
    fn sources<'t>(&self, node: &'t RawTensor) -> impl Iterator<Item = (usize, &'t RawTensor)> {
        // SAFETY: by the contract of `new`, sources are null or valid tensors.
        node.src.iter().enumerate().filter_map(|(slot, source)| Some((slot, unsafe { source.as_ref() }?)))
    }

    /// What may be fused away.
    fn read_once(&self, raw: &RawTensor) -> bool {
        raw.flags & FLAG_OUTPUT == 0 && self.uses.count(raw) == Some(1)
    }

    fn view(&self, raw: &RawTensor) -> Result<TensorView, GraphError> {
        let tensor = tensor(self.ggml, raw)?;
        tensor.validate()?;
        let length = tensor.span_bytes();
        let address = raw.data.expose_provenance();
        if address == 0 && length > 0 {
            return Err(GraphError::Memory);
        }
        if address.checked_add(length).is_none_or(|end| isize::try_from(end).is_err()) {
            return Err(GraphError::Address(address, length));
        }
        // SAFETY: ggml allocates `ggml_nbytes` bytes for a tensor at `data`, which is what `span_bytes` computes, and by the
        // contract of `new` they are valid whenever the graph is computed.
        let span = unsafe { HostSpan::new(address, length) };
        let layout = self.ggml.symbols.layout;
        let weights = is_weights(layout, raw.buffer);
        let buffer = buffer_span(layout, raw.buffer).filter(|buffer| buffer.contains(span)).unwrap_or(span);
        // SAFETY: `view_src` is null or a valid tensor, as sources are.
        let origin = unsafe { raw.view_src.as_ref() };
        let input = (raw.flags | origin.map_or(0, |origin| origin.flags)) & FLAG_INPUT != 0;
        let id = std::ptr::from_ref(raw).addr();
        let read_once = self.read_once(raw);
        let read = raw.flags & FLAG_OUTPUT != 0;
        Ok(TensorView { id, read, read_once, tensor, span, buffer, weights, input, view: origin.is_some() })
    }
}

/// What of a tensor decides a plan.
#[inline]
fn tensor_words(layout: Layout, tag: u64, raw: &RawTensor, word: &mut impl FnMut(u64) -> bool) -> bool {
    let weights = u64::from(is_weights(layout, raw.buffer));
    let view = u64::from(!raw.view_src.is_null());
    word(tag << 34 | u64::from(raw.dtype.cast_unsigned()) << 2 | view << 1 | weights)
        && raw.ne.iter().all(|ne| word(ne.cast_unsigned()))
        && raw.nb.iter().all(|nb| word(*nb as u64))
        && word(raw.data.addr() as u64)
}

impl GraphSource for GraphRef<'_> {
    fn read(&self) -> Result<Graph, GraphError> {
        let nodes = self.computed().map(|raw| {
            let op = self.ggml.names.description(self.ggml.symbols, raw.op, raw.op_params[0]);
            let op = op.ok_or(GraphError::Operation(raw.op))?;
            let of = |part: String| move |cause| GraphError::Node(part, Box::new(cause));
            let mut sources = Vec::new();
            for (slot, source) in self.sources(raw) {
                sources.resize(slot, None);
                sources.push(Some(self.view(source).map_err(of(format!("{op}, source {slot}")))?));
            }
            let output = self.view(raw).map_err(of(op.to_owned()))?;
            Ok(GraphNode { name: name(raw), ..GraphNode::new(op, OpParams(raw.op_params), output, sources) })
        });
        Ok(Graph { nodes: nodes.collect::<Result<_, GraphError>>()? })
    }

    fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool {
        let layout = self.ggml.symbols.layout;
        // Tags: 0 to 9 are the slots of sources, others the operation. What is read once can be fused away.
        self.computed().all(|node| {
            tensor_words(layout, 16 + u64::from(node.op.cast_unsigned()), node, word)
                && word(u64::from(self.read_once(node)))
                && node
                    .op_params
                    .chunks_exact(2)
                    .all(|pair| word(u64::from(pair[0].cast_unsigned()) << 32 | u64::from(pair[1].cast_unsigned())))
                && self.sources(node).all(|(slot, source)| tensor_words(layout, slot as u64, source, word))
        })
    }
}
