//! Work that has to run on the array (`GGML_HSA_REQUIRE_ARRAY`) and has no kernel.

use crate::graph::GraphNode;
use crate::kernels::Missing;
use crate::settings::GGML_HSA_REQUIRE_ARRAY;
use aie_jit_iron::settings::GGML_HSA_JIT;

/// The error of such a node: what it is, and why it cannot run there.
pub(super) fn forbidden(node: &GraphNode, missing: &Missing) -> String {
    let hint = if missing.pending { format!("; with {GGML_HSA_JIT}=eager graphs wait for it") } else { String::new() };
    format!(
        "{} belongs on the array and would run on the host, which {GGML_HSA_REQUIRE_ARRAY} forbids: {}{hint}",
        node.describe(),
        missing.reason
    )
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use crate::config::Config;
    use crate::drivers;
    use crate::graph::{Graph, GraphNode, TensorView};
    use crate::host_memory::HostSpan;
    use crate::npu::Npu;
    use aie_hal::{ArchRegistry, Counters};
    use aie_jit_iron::{JitPolicy, KernelStore, ReferenceCompiler};
    use aie_ops::{DataType, OpParams, Tensor};
    use rstest::rstest;
    use std::sync::Arc;

    /// A simulated NPU, with or without a compiler.
    fn npu(policy: JitPolicy, compiler: bool, require_array: bool, cpu_fallback: bool) -> Npu {
        let device = drivers::mock(ArchRegistry::builtin()).open(&"mock:aie2p".parse().unwrap()).unwrap().remove(0);
        let builder = KernelStore::builder().policy(policy);
        let builder = if compiler { builder.compiler(Arc::new(ReferenceCompiler)) } else { builder };
        let config = Config { require_array, cpu_fallback, ..Config::default() };
        Npu::new(0, device, Arc::new(builder.build().unwrap()), &config)
    }

    /// A sum, which belongs on the array, or a copy, which belongs on the host.
    fn graph(npu: &Npu, op: &'static str, sources: usize) -> Graph {
        let tensor = Tensor::contiguous(DataType::F32, [64, 2, 1, 1]);
        let view = |id| {
            let (base, _) = npu.allocate(tensor.span_bytes()).unwrap();
            // SAFETY: the buffer has these bytes, and lives as long as the NPU.
            let span = unsafe { HostSpan::new(base, tensor.span_bytes()) };
            TensorView { id, tensor, span, buffer: span, weights: false, input: false, view: false, read_once: false }
        };
        let sources: Vec<_> = (0..sources).map(|id| Some(view(id))).collect();
        let (name, params, output) = ("ffn_out-3".into(), OpParams::default(), view(9));
        Graph { nodes: vec![GraphNode { name, op, params, output, further_outputs: Vec::new(), sources }] }
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
        let npu = npu(policy, compiler, true, cpu_fallback);
        let graph = graph(&npu, "ADD", 2);
        // Claimed, or llama.cpp would compute it on the host unseen.
        assert!(npu.supports(&graph.nodes[0].node()));
        let message = Plan::build(&npu, &graph).unwrap_err();
        let node = "node \"ffn_out-3\", ADD of f32 [64, 2], f32 [64, 2] to f32 [64, 2] belongs on the array";
        assert!(message.contains(node) && message.ends_with(expected), "{message}");
        assert!(message.contains("GGML_HSA_REQUIRE_ARRAY"), "{message}");
        assert_eq!(npu.statistics().tally().warning(), None);
    }

    #[test]
    fn with_a_kernel_there_is_none() {
        let npu = npu(JitPolicy::Eager, true, true, false);
        let graph = graph(&npu, "ADD", 2);
        assert!(npu.supports(&graph.nodes[0].node()));
        Plan::build(&npu, &graph).unwrap();
    }

    #[test]
    fn what_belongs_on_the_host_may_run_there() {
        let npu = npu(JitPolicy::Off, false, true, true);
        let plan = Plan::build(&npu, &graph(&npu, "CONT", 1)).unwrap();
        npu.statistics().graph(plan.share(), false, 1, &Counters::default());
        assert_eq!(npu.statistics().tally().warning(), None);
        let unclaimed = self::npu(JitPolicy::Off, false, true, false);
        assert!(!unclaimed.supports(&graph(&unclaimed, "CONT", 1).nodes[0].node()));
    }

    #[test]
    fn without_the_setting_it_is_counted_and_told_at_the_end() {
        let npu = npu(JitPolicy::Off, false, false, true);
        let plan = Plan::build(&npu, &graph(&npu, "ADD", 2)).unwrap();
        assert_eq!(npu.statistics().tally().warning(), None);
        for _ in 0..3 {
            npu.statistics().graph(plan.share(), false, 1, &Counters::default());
        }
        let warning = npu.statistics().tally().warning().unwrap();
        let expected = "dispatches 0, nodes on the host 3, 3 of them operations of the array; most frequent reason (3 nodes): no \
                        kernel directory (GGML_HSA_KERNEL_DIR is not set); no cache; compiling is off (GGML_HSA_JIT)";
        assert!(warning.contains(expected), "{warning}");
        assert!(!npu_off().supports(&graph(&npu, "ADD", 2).nodes[0].node()));
    }

    /// Without the setting, and without work on the host, llama.cpp gets what has no kernel.
    fn npu_off() -> Npu {
        npu(JitPolicy::Off, false, false, false)
    }
}
