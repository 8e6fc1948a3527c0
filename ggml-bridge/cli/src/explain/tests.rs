//! Explanations of a made-up model.

use super::report::{Explanation, Question, explain};
use crate::model::Model;
use crate::model::tests::{Blank, Made};
use aie_hal::{ArchRegistry, Environment};
use aie_ops::DataType::F16;
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::kernels::kernel_store::KernelStores;

pub(crate) fn explained(made: Made, device: &str, flash: bool) -> (Explanation, bool) {
    explained_model(&made.model(), device, flash)
}

fn explained_model(model: &Model, device: &str, flash: bool) -> (Explanation, bool) {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let environment = Environment::from_pairs([("GGML_HSA_KERNEL_CACHE_DIR", cache.to_str().unwrap())]);
    let (config, _) = Config::read(&environment);
    let stores = KernelStores::foreseeing(&config, &environment);
    let device = drivers::mock(ArchRegistry::builtin()).open(&device.parse().unwrap()).unwrap().remove(0);
    let store = stores.of(&*device).unwrap();
    let question = Question { context: Some(300), past: 0, batch: 64, prompt: None, flash };
    (explain(model, &question, &device, &store, &config).unwrap(), cache.exists())
}

#[test]
fn both_passes_are_planned_and_nothing_is_written() {
    let (found, cached) = explained(Made::new("llama"), "mock:aie2p", true);
    let [decode, prefill] = &found.passes[..] else { panic!("{} passes", found.passes.len()) };
    assert_eq!((decode.tokens, decode.keys, prefill.tokens, prefill.keys), (1, 256, 64, 256));
    assert_eq!((found.context, found.model.whole, cached), (512, true, false));
    for pass in &found.passes {
        assert_eq!(pass.nodes as u64, pass.dispatches + pass.host_calls + pass.fused_nodes - pass.fused);
        // The rows of words, of the cache and of the last token.
        assert_eq!((pass.host_calls, pass.conversions), (5, 0));
        assert_eq!(pass.sources.keys().collect::<Vec<_>>(), ["reference (compiled)"]);
        let of = |op: &str| pass.operations.iter().filter(|found| found.op == op).map(|found| found.array).sum::<u64>();
        assert_eq!((of("RMS_NORM_MUL"), of("FLASH_ATTN_EXT")), (3, 1));
        assert!(pass.fused > 3 && pass.predicted.total_ns > 0.0);
    }
    assert!(prefill.macs > decode.macs);
}

#[test]
fn conversions_are_counted_and_weights_converted_once() {
    let mut made = Made::new("llama");
    made.tensor("blk.0.ffn_down.weight", F16, 128, 64);
    let (found, _) = explained(made, "mock:aie2p", false);
    // Keys and values become bf16 for the products of attention, in every graph.
    assert_eq!(found.passes[0].conversions, 2);
    assert_eq!(found.memory.converted_weights, 128 * 64 * 2);
}

#[test]
fn native_kernels_are_told_from_references() {
    let (found, cached) = explained(Made::new("llama"), "mock:aie2?execute=emulated", true);
    let code: Vec<_> = found.passes[0].operations.iter().filter(|operation| operation.code).collect();
    assert!(!code.is_empty() && !cached);
    assert!(code.iter().all(|operation| operation.kernel.as_deref() == Some("native")));
}

/// Layers with a window and without one, whose kernels are different when the context is longer than the window and a batch.
fn windowed() -> Model {
    let mut blank = Blank::new("gemma3", 6, 256, [4, 1], 96);
    blank.number("attention.key_length", 64).number("attention.value_length", 64);
    blank.number("attention.sliding_window", 64).separate_sized(64).gated(512);
    blank.norms(&["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"], false);
    blank.heads_norms(64);
    blank.model()
}

#[test]
fn a_token_behind_a_prompt_costs_what_contexts_are_left_by_it() {
    for flash in [true, false] {
        let (found, _) = explained_model(&windowed(), "mock:aie2p", flash);
        let [prompt, first, token] = &found.run.steps[..] else { panic!("{} steps", found.run.steps.len()) };
        let [decode, prefill] = &found.passes[..] else { panic!("{} passes", found.passes.len()) };
        assert_eq!((prompt.tokens, prompt.past, token.tokens, token.past), (64, 0, 1, 64));
        assert_eq!((prompt.contexts_made, prompt.context_switches), (1, 0));
        // Alone each fits into one context.
        assert!(prefill.pdis <= 32 && decode.pdis <= 32, "{} and {}", prefill.pdis, decode.pdis);
        assert_eq!((prefill.context_switches, decode.context_switches), (0, 0));
        // The token's need one that has them all, which is made once and stays.
        assert_eq!((first.contexts_made, first.context_switches, found.run.contexts_made), (1, 1, 2));
        assert_eq!((token.contexts_made, token.context_switches, token.submissions), (0, 0, 1));
        assert_eq!((token.chains, prompt.chains), (decode.chains, prefill.chains));
    }
}
