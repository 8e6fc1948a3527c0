use super::Plan;
use crate::config::Config;
use crate::device::drivers;
use crate::memory::host_memory::HostSpan;
use crate::plan::context::DeviceContext;
use crate::plan::graph::{Graph, GraphNode, TensorView};
use crate::plan::tally::Tally;
use aie_hal::{ArchRegistry, Command, Counters};
use aie_jit_iron::{JitPolicy, KernelStore};
use aie_jit_native::NativeCompiler;
use aie_ops::compiler::ReferenceCompiler;
use aie_ops::{DataType, OpParams, Tensor};
use rstest::rstest;
use std::sync::Arc;

/// A simulated NPU, with or without a compiler.
fn context(policy: JitPolicy, compiler: bool, require_array: bool, cpu_fallback: bool) -> DeviceContext {
    let device = drivers::mock(ArchRegistry::builtin()).open(&"mock:aie2p".parse().unwrap()).unwrap().remove(0);
    let builder = KernelStore::builder().policy(policy);
    let builder = if compiler { builder.compiler(Arc::new(ReferenceCompiler)) } else { builder };
    let config = Config { require_array, cpu_fallback, ..Config::default() };
    DeviceContext::new(0, device, Arc::new(builder.build().unwrap()), &config)
}

/// A tensor in a buffer of its own.
fn view(context: &DeviceContext, id: usize, dtype: DataType, ne: [usize; 4]) -> TensorView {
    let tensor = Tensor::contiguous(dtype, ne);
    let (base, _) = context.allocate(tensor.span_bytes()).unwrap();
    // SAFETY: the buffer has these bytes, and lives as long as the NPU.
    let span = unsafe { HostSpan::new(base, tensor.span_bytes()) };
    TensorView::plain(id, tensor, span)
}

/// A sum, which belongs on the array, or a copy, which belongs on the host.
fn graph(context: &DeviceContext, op: &'static str, sources: usize) -> Graph {
    let view = |id| view(context, id, DataType::F32, [64, 2, 1, 1]);
    let sources: Vec<_> = (0..sources).map(|id| Some(view(id))).collect();
    let node = GraphNode::new(op, OpParams::default(), view(9), sources);
    Graph { nodes: vec![GraphNode { name: "ffn_out-3".into(), ..node }] }
}

fn warning(context: &DeviceContext) -> Option<String> {
    let mut tally = Tally::default();
    tally.add(&context.statistics.operations());
    tally.warning()
}

#[test]
fn of_a_cache_only_what_others_may_have_written_is_flushed() {
    let context = context(JitPolicy::Off, false, false, true);
    let rows = view(&context, 0, DataType::F32, [64, 2, 1, 1]);
    let places = view(&context, 1, DataType::I64, [2, 1, 1, 1]);
    let cache = view(&context, 2, DataType::F16, [64, 1024, 1, 1]);
    let output = TensorView { id: 3, view: true, ..cache };
    let flushed = |cache: TensorView| {
        let sources = vec![Some(rows), Some(places), Some(cache)];
        let node = GraphNode::new("SET_ROWS", OpParams::default(), output, sources);
        let plan = Plan::build(&context, &Graph { nodes: vec![node] }).unwrap();
        plan.flush.iter().map(|part| part.length).sum::<usize>()
    };
    let inputs = rows.span.length() + places.span.length();
    assert_eq!(flushed(cache), inputs);
    context.share_results(usize::MAX - 1);
    assert_eq!(flushed(cache), inputs, "an address that is not in our buffers");
    context.share_results(cache.span.address() + 8);
    assert_eq!(flushed(cache), inputs + cache.span.length());
}

/// Copies between tensors by their numbers, and rows that are set in the last one, whose other rows nothing reads.
#[rstest]
#[case::one_way(&[[0, 1], [1, 2]], true)]
#[case::over_what_was_read(&[[0, 1], [1, 0]], false)]
#[case::over_a_result(&[[0, 1], [2, 1]], true)]
#[case::over_a_result_that_was_read(&[[0, 1], [1, 2], [0, 1]], true)]
#[case::in_place(&[[0, 0]], false)]
fn graphs_that_keep_what_they_read_can_run_again(
    #[case] copies: &[[usize; 2]],
    #[case] repeats: bool,
    #[values(false, true)] on_array: bool,
) {
    let context = if on_array { emulated() } else { context(JitPolicy::Off, false, false, true) };
    let tensors = [0, 1, 2].map(|id| view(&context, id, DataType::F32, [64, 2, 1, 1]));
    let copy =
        |[from, to]: &[usize; 2]| GraphNode::new("CONT", OpParams::default(), tensors[*to], vec![Some(tensors[*from])]);
    let places = view(&context, 3, DataType::I64, [2, 1, 1, 1]);
    let cache = view(&context, 4, DataType::F16, [64, 1024, 1, 1]);
    let output = TensorView { id: 5, view: true, ..cache };
    let sources = vec![Some(tensors[0]), Some(places), Some(cache)];
    let set = GraphNode::new("SET_ROWS", OpParams::default(), output, sources);
    let nodes: Vec<GraphNode> = std::iter::once(set).chain(copies.iter().map(copy)).collect();
    assert_eq!(Plan::build(&context, &Graph { nodes }).unwrap().repeats, repeats);
}

#[rstest]
#[case::off(JitPolicy::Off, false, "compiling is off (GGML_HSA_JIT)")]
#[case::off_with_a_compiler(JitPolicy::Off, true, "compiling is off (GGML_HSA_JIT)")]
#[case::eager(JitPolicy::Eager, false, "no compiler")]
#[case::background(JitPolicy::Background, true, "is being compiled; with GGML_HSA_JIT=eager graphs wait for it")]
fn a_sum_without_a_kernel_is_an_error(
    #[case] policy: JitPolicy,
    #[case] compiler: bool,
    #[case] expected: &str,
    #[values(false, true)] cpu_fallback: bool,
) {
    let context = context(policy, compiler, true, cpu_fallback);
    let graph = graph(&context, "ADD", 2);
    // Claimed, or llama.cpp would compute it on the CPU unseen.
    assert!(context.supports(&graph.nodes[0].node()));
    let message = Plan::build(&context, &graph).unwrap_err().to_string();
    let node = "node \"ffn_out-3\", ADD of f32 [64, 2], f32 [64, 2] to f32 [64, 2] belongs on the array";
    assert!(message.contains(node) && message.ends_with(expected), "{message}");
    assert!(message.contains("GGML_HSA_REQUIRE_ARRAY"), "{message}");
    assert_eq!(warning(&context), None);
}

#[test]
fn with_a_kernel_there_is_none() {
    let context = context(JitPolicy::Eager, true, true, false);
    let graph = graph(&context, "ADD", 2);
    assert!(context.supports(&graph.nodes[0].node()));
    Plan::build(&context, &graph).unwrap();
}

/// What ggml's CPU backend does not compute is claimed, and dispatched as anything else.
#[rstest]
#[case::sum("ADD", &[DataType::I8; 3])]
#[case::difference("SUB", &[DataType::I32; 3])]
#[case::product("MUL", &[DataType::I16; 3])]
#[case::magnitude("ABS", &[DataType::I8; 2])]
#[case::negation("NEG", &[DataType::I32; 2])]
#[case::matrices("MUL_MAT", &[DataType::I32, DataType::I16, DataType::I16])]
#[case::matrices_of_a_graph("MUL_MAT", &[DataType::F32, DataType::I8, DataType::I8])]
fn whole_numbers_are_dispatched(#[case] op: &'static str, #[case] types: &[DataType]) {
    let context = context(JitPolicy::Eager, true, true, false);
    let view = |id: usize| view(&context, id, types[id], [64, 64, 1, 1]);
    let node = GraphNode::new(op, OpParams::default(), view(0), (1..types.len()).map(|id| Some(view(id))).collect());
    assert!(context.supports(&node.node()));
    assert_eq!(commands(&context, vec![node]), (1, 0));
}

#[test]
fn what_belongs_on_the_host_may_run_there() {
    let required = context(JitPolicy::Off, false, true, true);
    let plan = Plan::build(&required, &graph(&required, "CONT", 1)).unwrap();
    required.statistics.graph(&plan.share, false, 1, &Counters::default());
    assert_eq!(warning(&required), None);
    let unclaimed = context(JitPolicy::Off, false, true, false);
    assert!(!unclaimed.supports(&graph(&unclaimed, "CONT", 1).nodes[0].node()));
}

#[test]
fn without_the_setting_it_is_counted_and_reported_at_the_end() {
    let optional = context(JitPolicy::Off, false, false, true);
    let plan = Plan::build(&optional, &graph(&optional, "ADD", 2)).unwrap();
    assert_eq!(warning(&optional), None);
    for _ in 0..3 {
        optional.statistics.graph(&plan.share, false, 1, &Counters::default());
    }
    let warning = warning(&optional).unwrap();
    let expected = "dispatches 0, nodes on the CPU 3, 3 of them operations of the array; most frequent reason (3 nodes): no \
                    kernel directory (GGML_HSA_KERNEL_DIR is not set); no cache; compiling is off (GGML_HSA_JIT)";
    assert!(warning.contains(expected), "{warning}");
    // Without the setting, and without work on the CPU, llama.cpp gets what has no kernel.
    let unclaimed = context(JitPolicy::Off, false, false, false);
    assert!(!unclaimed.supports(&graph(&optional, "ADD", 2).nodes[0].node()));
}

/// A simulated NPU that is given machine code where there is some.
fn emulated() -> DeviceContext {
    let uri = "mock:aie2?execute=emulated".parse().unwrap();
    let device = drivers::mock(ArchRegistry::builtin()).open(&uri).unwrap().remove(0);
    let builder = KernelStore::builder().policy(JitPolicy::Eager).compiler(Arc::new(NativeCompiler::default()));
    let store = builder.compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    DeviceContext::new(0, device, Arc::new(store), &Config::default())
}

/// Dispatches and host calls of a graph.
fn commands(context: &DeviceContext, nodes: Vec<GraphNode>) -> (usize, usize) {
    let plan = Plan::build(context, &Graph { nodes }).unwrap();
    let count = |wanted: fn(&Command) -> bool| {
        plan.commands().map_or(0, |list| list.commands().iter().filter(|command| wanted(command)).count())
    };
    let dispatches = count(|command| matches!(command, Command::Dispatch { .. }));
    (dispatches, count(|command| matches!(command, Command::HostCall { .. })))
}

#[test]
fn copies_with_machine_code_are_dispatches() {
    let context = emulated();
    let from = view(&context, 0, DataType::F32, [64, 5, 9, 1]);
    let [a, b, c, d] = from.tensor.nb;
    let turned = Tensor { ne: [64, 9, 5, 1], nb: [a, c, b, d], ..from.tensor };
    let node = |source: TensorView, output| GraphNode::new("CONT", OpParams::default(), output, vec![Some(source)]);
    let output = view(&context, 1, DataType::F32, [64, 9, 5, 1]);
    assert_eq!(commands(&context, vec![node(TensorView { tensor: turned, ..from }, output)]), (1, 0));
    // A DMA could overwrite what it has not read yet.
    let in_place = TensorView { tensor: Tensor::contiguous(DataType::F32, turned.ne), id: 2, ..from };
    assert_eq!(commands(&context, vec![node(TensorView { tensor: turned, ..from }, in_place)]), (0, 1));
    // Halves of a word do not move.
    let halves = view(&context, 3, DataType::F16, [6, 8, 1, 1]);
    let [a, b, c, d] = halves.tensor.nb;
    let turned = TensorView { tensor: Tensor { ne: [8, 6, 1, 1], nb: [b, a, c, d], ..halves.tensor }, ..halves };
    assert_eq!(commands(&context, vec![node(turned, view(&context, 4, DataType::F16, [8, 6, 1, 1]))]), (0, 1));
}

#[test]
fn rows_are_a_dispatch_unless_the_graph_computes_which() {
    let context = emulated();
    let rows = view(&context, 0, DataType::F32, [64, 2, 1, 1]);
    let places = view(&context, 1, DataType::I64, [2, 1, 1, 1]);
    let cache = view(&context, 2, DataType::F16, [64, 1024, 1, 1]);
    let output = TensorView { id: 3, view: true, ..cache };
    let sources = vec![Some(rows), Some(places), Some(cache)];
    let set = GraphNode::new("SET_ROWS", OpParams::default(), output, sources);
    assert_eq!(commands(&context, vec![set.clone()]), (1, 0));
    let given = view(&context, 4, DataType::I64, [2, 1, 1, 1]);
    let computed = GraphNode::new("CONT", OpParams::default(), places, vec![Some(given)]);
    assert_eq!(commands(&context, vec![computed, set]), (1, 1));
}

#[test]
fn the_first_list_expects_the_code_of_what_was_asked_about() {
    let context = emulated();
    let node = |op, id, source: DataType| {
        let [x, y] =
            [(id, source), (id + 1, DataType::F32)].map(|(id, dtype)| view(&context, id, dtype, [64, 2, 1, 1]));
        GraphNode::new(op, OpParams::default(), y, vec![Some(x)])
    };
    // Of two programs, of none (the reference compiler has TRI), and of one again.
    for asked in [node("NORM", 0, DataType::F32), node("CONT", 2, DataType::F32), node("TRI", 4, DataType::F32)] {
        assert!(context.supports(&asked.node()));
    }
    assert!(context.supports(&node("CPY", 6, DataType::F32).node()));
    let expected = |nodes| {
        let plan = Plan::build(&context, &Graph { nodes }).unwrap();
        plan.commands().unwrap().expected().iter().map(|kernel| kernel.artifact().name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(expected(vec![node("SQR", 8, DataType::F32)]), ["norm-64x2f32-64x2f32", "cont-64x2f32-64x2f32"]);
    assert_eq!(expected(vec![node("SQR", 10, DataType::F32)]), Vec::<String>::new());
    // What has no machine code has the kernel of another compiler.
    assert_eq!(commands(&context, vec![node("TRI", 12, DataType::F32)]), (1, 0));
}
