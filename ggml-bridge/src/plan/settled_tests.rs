//! Graphs with kernels that work with several PDIs, on an emulated NPU.

use super::Plan;
use crate::config::Config;
use crate::device::drivers;
use crate::memory::host_memory::HostSpan;
use crate::plan::context::DeviceContext;
use crate::plan::graph::{Graph, GraphError, GraphNode, GraphSource, TensorView};
use crate::plan::stream::Stream;
use aie_hal::artifact::Digest;
use aie_hal::{ArchRegistry, Command};
use aie_jit_iron::{JitPolicy, KernelStore, KernelStoreBuilder};
use aie_jit_native::{NativeCompiler, Products};
use aie_ops::compiler::ReferenceCompiler;
use aie_ops::{DataType, OpParams, Tensor, blocks};
use std::sync::Arc;

/// A simulated NPU that is given machine code, with products on rings.
fn emulated() -> Arc<DeviceContext> {
    let native = NativeCompiler::default().with_products(Products::Rings);
    context("mock:aie2?execute=emulated", KernelStore::builder().compiler(Arc::new(native)))
}

fn context(uri: &str, builder: KernelStoreBuilder) -> Arc<DeviceContext> {
    let device = drivers::mock(ArchRegistry::builtin()).open(&uri.parse().unwrap()).unwrap().remove(0);
    let store = builder.policy(JitPolicy::Eager).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    Arc::new(DeviceContext::new(0, device, Arc::new(store), &Config::default()))
}

/// A graph that grows, each tensor with a buffer of its own.
struct Builder<'a> {
    context: &'a DeviceContext,
    tensors: usize,
    nodes: Vec<GraphNode>,
}

impl Builder<'_> {
    fn new(context: &DeviceContext) -> Builder<'_> {
        Builder { context, tensors: 0, nodes: Vec::new() }
    }

    /// A tensor with the same numbers for all that are the same.
    fn tensor(&mut self, dtype: DataType, ne: [usize; 4]) -> TensorView {
        let tensor = Tensor::contiguous(dtype, ne);
        let (base, buffer) = self.context.allocate(tensor.span_bytes()).unwrap();
        self.tensors += 1;
        let values: Vec<f32> =
            (0..tensor.elements()).map(|at| ((at * 37 + self.tensors) % 101) as f32 / 101.0 - 0.5).collect();
        let mut bytes = vec![0; tensor.span_bytes()];
        match dtype {
            DataType::F32 => bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            // Keys and values; all the same.
            DataType::F16 | DataType::BF16 => {
                bytes.chunks_exact_mut(2).for_each(|half| half.copy_from_slice(&[0, 0x38]))
            }
            _ => assert!(blocks::encode(dtype, &values, &mut bytes)),
        }
        buffer.write(0, &bytes).unwrap();
        // SAFETY: the buffer has these bytes, and lives as long as the NPU.
        let span = unsafe { HostSpan::new(base, tensor.span_bytes()) };
        TensorView::plain(self.tensors, tensor, span)
    }

    fn node(&mut self, op: &'static str, ne: [usize; 4], sources: &[TensorView]) -> TensorView {
        let output = self.tensor(DataType::F32, ne);
        let mut params = OpParams::default();
        if op == "FLASH_ATTN_EXT" {
            params.0[0] = 0.125_f32.to_bits().cast_signed();
        }
        self.nodes.push(GraphNode::new(op, params, output, sources.iter().copied().map(Some).collect()));
        output
    }

    /// A row through a norm, a product with weights of a type, and a sum.
    fn layer(&mut self, row: TensorView, dtype: DataType) -> TensorView {
        let ne = row.tensor.ne;
        let normed = self.node("RMS_NORM", ne, &[row]);
        let weights = self.tensor(dtype, [ne[0], ne[0], 1, 1]);
        let product = self.node("MUL_MAT", ne, &[weights, normed]);
        self.node("ADD", ne, &[product, row])
    }

    /// A layer for each of some types.
    fn layers(mut self, types: &[DataType]) -> Graph {
        let row = self.tensor(DataType::F32, [1024, 1, 1, 1]);
        types.iter().fold(row, |row, dtype| self.layer(row, *dtype));
        Graph { nodes: self.nodes }
    }
}

/// The PDIs of a plan's dispatches, in order.
fn pdis(plan: &Plan) -> Vec<Digest> {
    let commands = plan.commands().unwrap().commands().iter();
    let dispatched = commands.filter_map(|command| match command {
        Command::Dispatch { executable, .. } => Some(*executable.artifact().digest()),
        _ => None,
    });
    dispatched.collect()
}

/// Types that kernels alone have different PDIs for. A graph that came before them is planned again.
#[test]
fn products_of_all_types_of_a_model_have_one_pdi() {
    let context = emulated();
    let build = |types: &[DataType]| Plan::build(&context, &Builder::new(&context).layers(types)).unwrap();
    let before = build(&[DataType::Q4_0]);
    assert_eq!(before.kernel_moves, context.kernels.moves());
    let found = pdis(&build(&[DataType::Q4_K, DataType::Q4_0]));
    assert_eq!(found, [found[0]; 6]);
    assert_ne!(pdis(&before)[0], found[0]);
    assert_ne!(before.kernel_moves, context.kernels.moves());
    assert_eq!(pdis(&build(&[DataType::Q4_0])), found[..3]);
}

/// Rings do not take weights of bf16: their other kernels would alternate with those of products.
#[test]
fn a_graph_with_other_products_does_without_configurations() {
    let context = emulated();
    for types in [[DataType::BF16; 2], [DataType::Q4_0; 2]] {
        let found = pdis(&Plan::build(&context, &Builder::new(&context).layers(&types)).unwrap());
        assert_eq!(found, [found[0]; 6], "{types:?}");
    }
}

struct Nodes(Graph);

impl GraphSource for Nodes {
    fn read(&self) -> Result<Graph, GraphError> {
        Ok(self.0.clone())
    }

    fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool {
        self.0.nodes.iter().all(|node| word(node.output.id as u64))
    }
}

/// Products of two programs, norms, sums and attention; the results, each with its operation.
fn token(context: &Arc<DeviceContext>) -> Vec<(&'static str, Vec<f32>)> {
    let mut graph = Builder::new(context);
    let row = graph.tensor(DataType::F32, [1024, 1, 1, 1]);
    let normed = graph.node("RMS_NORM", row.tensor.ne, &[row]);
    let weights = graph.tensor(DataType::Q4_K, [1024, 256, 1, 1]);
    let query = graph.node("MUL_MAT", [256, 1, 1, 1], &[weights, normed]);
    let heads = TensorView { tensor: Tensor::contiguous(DataType::F32, [64, 1, 4, 1]), ..query };
    let [keys, values] = [(); 2].map(|()| graph.tensor(DataType::F16, [64, 64, 2, 1]));
    let attention = graph.node("FLASH_ATTN_EXT", [64, 4, 1, 1], &[heads, keys, values]);
    let flat = TensorView { tensor: query.tensor, ..attention };
    let sum = graph.node("ADD", query.tensor.ne, &[flat, query]);
    graph.layer(sum, DataType::Q4_0);
    let nodes = graph.nodes;
    let stream = Stream::new(Arc::clone(context), context.hal.create_queue().unwrap(), false).unwrap();
    stream.compute(&Nodes(Graph { nodes: nodes.clone() })).unwrap();
    let result = |GraphNode { op, output, .. }: &GraphNode| {
        let found = context.buffers.find(&output.span.range()).unwrap();
        let mut bytes = vec![0; output.span.length()];
        found.buffer.read(found.offset, &mut bytes).unwrap();
        (*op, bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
    };
    nodes.iter().map(result).collect()
}

#[test]
fn a_token_with_two_types_of_products_is_one_dispatch() {
    let context_of_code = emulated();
    let found = token(&context_of_code);
    let counters = context_of_code.hal.counters();
    assert_eq!((counters.dispatches, counters.joined, counters.host_calls), (7, 6, 0));
    assert_eq!((counters.chains, counters.contexts_created), (1, 1));
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
    for ((op, found), (_, expected)) in found.iter().zip(token(&context("mock:aie2", KernelStore::builder()))) {
        let error = square(&mut found.iter().zip(&expected).map(|(found, expected)| found - expected));
        let most = 1e-4 * square(&mut expected.iter().copied());
        assert!(error <= most, "{op}: {error}, at most {most}: {:?}, {:?}", &found[..4], &expected[..4]);
    }
}
