//! Explanations of graphs that llama.cpp built, and of made-up ones.

#[path = "../../tests/model_file/mod.rs"]
mod model_file;

use super::report::{Explanation, Question, explain};
use crate::llama_cpp::{Batch, Graph, GraphSource};
use crate::model::ModelFile;
use aie_hal::{ArchRegistry, Environment};
use aie_ops::{DataType, OpParams, Tensor};
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa::memory::host_memory::HostSpan;
use ggml_hsa::plan::graph::{GraphNode, TensorView};
use ggml_hsa::report::graph_file::{Line, Recorded};
use std::borrow::Cow;
use std::fs;
use std::sync::Arc;

/// Tokens of the prompt.
const PROMPT: usize = 64;

/// The graphs of a prompt and of a token.
struct Known {
    prompt: Vec<Graph>,
    token: Vec<Graph>,
}

impl GraphSource for Known {
    fn graphs(&mut self, batch: Batch) -> Result<Vec<Graph>, String> {
        match batch.tokens {
            1 => Ok(self.token.clone()),
            PROMPT => Ok(self.prompt.clone()),
            tokens => Err(format!("no graph of {tokens} tokens")),
        }
    }
}

/// What llama.cpp built for a model with one layer of the Llama family, whose `ffn_down` is f16.
fn llama(flash: bool) -> Known {
    let text = match flash {
        true => include_str!("../../tests/graphs/flash.jsonl"),
        false => include_str!("../../tests/graphs/plain.jsonl"),
    };
    let mut graphs = text.lines().map(|line| {
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        vec![Arc::new(line.recorded.unwrap())]
    });
    Known { prompt: graphs.next().unwrap(), token: graphs.next().unwrap() }
}

/// What is said of a model with one layer, and whether a cache was made.
pub(crate) fn explained(device: &str, flash: bool) -> (Explanation, bool) {
    explained_graphs(llama(flash), device, flash, false)
}

fn explained_graphs(mut source: Known, device: &str, flash: bool, embeds: bool) -> (Explanation, bool) {
    let folder = tempfile::tempdir().unwrap();
    let (cache, file) = (folder.path().join("cache"), folder.path().join("model.gguf"));
    fs::write(&file, model_file::model("llama")).unwrap();
    let model = ModelFile::open(&file).unwrap();
    let environment = Environment::from_pairs([("GGML_HSA_KERNEL_CACHE_DIR", cache.to_str().unwrap())]);
    let (config, _) = Config::read(&environment);
    let stores = KernelStores::foreseeing(&config, &environment);
    let device = drivers::mock(ArchRegistry::builtin()).open(&device.parse().unwrap()).unwrap().remove(0);
    let store = stores.of(&*device).unwrap();
    let question = Question { context: 512, past: 0, prompt: PROMPT, flash, embeds };
    (explain(&model, &question, &mut source, &device, &store, &config).unwrap(), cache.exists())
}

#[test]
fn both_passes_are_planned_and_nothing_is_written() {
    let (found, cached) = explained("mock:aie2p", true);
    let [decode, prefill] = &found.passes[..] else { panic!("{} passes", found.passes.len()) };
    assert_eq!((decode.tokens, decode.keys, prefill.tokens, prefill.keys), (1, 256, PROMPT, 256));
    assert_eq!((found.context, found.model.layers, found.model.whole, cached), (512, 1, true, false));
    for pass in &found.passes {
        assert_eq!(pass.nodes as u64, pass.dispatches + pass.host_calls + pass.fused_nodes - pass.fused);
        assert_eq!(pass.conversions, 0);
        assert_eq!(pass.sources.keys().collect::<Vec<_>>(), ["reference (compiled)"]);
        let of = |op: &str| pass.operations.iter().filter(|found| found.op == op).map(|found| found.array).sum::<u64>();
        assert_eq!((of("RMS_NORM_MUL"), of("FLASH_ATTN_EXT")), (3, 1));
        assert!(pass.fused > 3 && pass.predicted.total_ns > 0.0);
    }
    assert!(prefill.macs > decode.macs);
    // Keys and values of one layer: two heads of 16 elements, f16.
    assert_eq!(found.memory.cache, 2 * 512 * 32 * 2);
    assert!(found.memory.weights > 64 * 512);
}

#[test]
fn conversions_are_counted_and_weights_converted_once() {
    let (found, _) = explained("mock:aie2p", false);
    // Keys and values become bf16 for the products of attention, in every graph.
    assert_eq!((found.passes[0].conversions, found.passes[0].keys), (2, 256));
    assert_eq!(found.memory.converted_weights, 128 * 64 * 2);
}

#[test]
fn native_kernels_are_told_from_references() {
    let (found, cached) = explained("mock:aie2?execute=emulated", true);
    let code: Vec<_> = found.passes[0].operations.iter().filter(|operation| operation.code).collect();
    assert!(!code.is_empty() && !cached);
    assert!(code.iter().all(|operation| operation.kernel.as_deref() == Some("native")));
}

/// A graph of `kernels` different ones in sequence, the first of which takes `first` elements.
fn chain(first: usize, kernels: usize) -> Graph {
    const SIZE: usize = 1 << 20;
    let view = |index: usize, tensor: Tensor| {
        let address = (1 << 30) + index * SIZE;
        TensorView::plain(address, tensor, HostSpan::imagined(address, tensor.span_bytes()))
    };
    let node = |index: usize| {
        let tensor = Tensor::contiguous(DataType::F32, [first + index, 1, 1, 1]);
        GraphNode::new("SQR", OpParams::default(), view(2 * index + 1, tensor), vec![Some(view(2 * index, tensor))])
    };
    let nodes = Cow::Owned((0..kernels).map(node).collect());
    Arc::new(Recorded { nodes, buffers: vec![(1 << 30, 2 * kernels * SIZE)], foreseen: Vec::new() })
}

#[test]
fn a_token_behind_a_prompt_costs_what_contexts_are_left_by_it() {
    let graphs = || Known { prompt: vec![chain(64, 20)], token: vec![chain(1024, 20)] };
    let (found, _) = explained_graphs(graphs(), "mock:aie2p", true, false);
    let [prompt, first, token] = &found.run.steps[..] else { panic!("{} steps", found.run.steps.len()) };
    let [decode, prefill] = &found.passes[..] else { panic!("{} passes", found.passes.len()) };
    assert_eq!((prompt.tokens, prompt.past, token.tokens, token.past), (PROMPT, 0, 1, PROMPT));
    assert_eq!((prompt.contexts_made, prompt.context_switches), (1, 0));
    // Alone each fits into one context, which has 32 PDIs.
    assert_eq!((prefill.pdis, decode.pdis), (20, 20));
    assert_eq!((prefill.context_switches, decode.context_switches), (0, 0));
    // The token's need one that has them all, which is made once and stays.
    assert_eq!((first.contexts_made, first.context_switches, found.run.contexts_made), (1, 1, 2));
    assert_eq!((token.contexts_made, token.context_switches, token.submissions), (0, 0, 1));
    assert_eq!((token.chains, prompt.chains), (decode.chains, prefill.chains));
}

#[test]
fn a_model_that_continues_no_text_has_one_pass() {
    let (found, _) = explained_graphs(llama(true), "mock:aie2p", true, true);
    let passes: Vec<_> = found.passes.iter().map(|pass| pass.name).collect();
    let steps: Vec<_> = found.run.steps.iter().map(|step| step.name).collect();
    assert_eq!((passes, steps), (vec!["prefill"], vec!["prompt"]));
}

#[test]
fn a_batch_in_parts_is_added_up_and_said() {
    let (whole, _) =
        explained_graphs(Known { prompt: vec![chain(64, 2)], token: vec![chain(64, 2)] }, "mock:aie2p", true, false);
    let parts = || vec![chain(64, 2), chain(64, 2)];
    let (found, _) = explained_graphs(Known { prompt: parts(), token: parts() }, "mock:aie2p", true, false);
    let (one, both) = (&whole.passes[0], &found.passes[0]);
    assert_eq!((both.dispatches, both.chains, both.kernels), (2 * one.dispatches, 2 * one.chains, one.kernels));
    assert_eq!(both.sequence.iter().filter_map(|stretch| stretch.chain).max(), Some(both.chains - 1));
    assert_eq!((found.run.steps[0].submissions, found.model.whole, whole.model.whole), (2, false, true));
    assert!(found.reservations[0].contains("2 graphs"), "{:?}", found.reservations);
}
