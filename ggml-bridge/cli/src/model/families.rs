//! Graphs of families that differ from Llama's, from the shapes of real models (with fewer layers where llama.cpp allows it).

use super::file::ModelError;
use super::graph::{Batch, Cache, build};
use super::parts::Model;
use super::tests::Blank;
use ggml_hsa::plan::graph::Graph;
use rstest::rstest;

fn graph(model: &Model, flash: bool) -> Graph {
    build(model, Batch::new(2, 0, Cache::new(8192, 512, flash))).0
}

fn operations(graph: &Graph) -> Vec<&'static str> {
    graph.nodes.iter().map(|node| node.op).collect()
}

fn count(graph: &Graph, op: &str) -> usize {
    graph.nodes.iter().filter(|node| node.op == op).count()
}

/// The real number `index` among the parameters of the first `op`.
fn real(graph: &Graph, op: &str, index: usize) -> f32 {
    let node = graph.nodes.iter().find(|node| node.op == op).unwrap_or_else(|| panic!("no {op}"));
    f32::from_bits(node.params.0[index].cast_unsigned())
}

fn whole(blank: Blank) -> Model {
    let model = blank.model();
    assert!(model.is_whole() && model.reservations().is_empty(), "{:?}", model.reservations());
    model
}

/// Baichuan2-7B and -13B.
#[rstest]
#[case(32, 4096, 32, 64, 0.0)]
#[case(40, 5120, 40, 0, 8.0)]
fn baichuan(
    #[case] layers: usize,
    #[case] width: usize,
    #[case] heads: usize,
    #[case] rotations: usize,
    #[case] bias: f32,
) {
    let mut blank = Blank::new("baichuan", layers, width, [heads, heads], 125_696);
    blank.separate().gated(11008).norms(&["attn_norm", "ffn_norm"], false).output();
    let model = whole(blank);
    let fused = graph(&model, true);
    assert_eq!((count(&fused, "ROPE"), real(&fused, "FLASH_ATTN_EXT", 1)), (rotations, bias));
    assert_eq!(real(&graph(&model, false), "SOFT_MAX", 1), bias);
}

#[test]
fn a_baichuan_of_another_size_is_refused_as_by_llama_cpp() {
    let mut blank = Blank::new("baichuan", 24, 4096, [32, 32], 125_696);
    blank.separate().gated(11008).norms(&["attn_norm", "ffn_norm"], false).output();
    let error = Model::find(&blank.file()).unwrap_err();
    assert!(matches!(error, ModelError::Unknown { .. }) && error.to_string().contains("24 layers"), "{error}");
}

/// Bloom-560M: a norm behind the embedding, joined projections with biases, nothing rotated.
#[test]
fn bloom() {
    let mut blank = Blank::new("bloom", 2, 1024, [16, 16], 250_880);
    blank.vector("token_embd_norm", 1024).joined(3 * 1024, true).plain(4096, true);
    blank.norms(&["attn_norm", "ffn_norm"], true);
    let model = whole(blank);
    let fused = graph(&model, true);
    assert_eq!(operations(&fused)[..6], ["GET_ROWS", "NORM", "MUL", "ADD", "NORM", "MUL"]);
    assert_eq!((count(&fused, "ROPE"), count(&fused, "GELU"), count(&fused, "NORM")), (0, 2, 6));
    assert_eq!(real(&fused, "FLASH_ATTN_EXT", 1), 8.0);
    // Without flash attention values are transposed: those beside keys are copied out before.
    let apart = graph(&model, false);
    assert_eq!((count(&apart, "CONT"), count(&fused, "CONT")), (4, 0));
}

/// Falcon-7B: the feed-forward part beside attention, which is added first.
#[test]
fn falcon() {
    let mut blank = Blank::new("falcon", 1, 4544, [71, 1], 65_024);
    blank.joined(4544 + 128, false).plain(18_176, false).norms(&["attn_norm"], true).output();
    let fused = graph(&whole(blank), true);
    let expected = [
        "FLASH_ATTN_EXT",
        "GET_ROWS",
        "MUL_MAT",
        "GELU",
        "MUL_MAT",
        "MUL_MAT",
        "GET_ROWS",
        "ADD",
        "GET_ROWS",
        "ADD",
        "NORM",
        "MUL",
        "ADD",
        "MUL_MAT",
    ];
    assert!(operations(&fused).ends_with(&expected), "{:?}", operations(&fused));
    assert_eq!(count(&fused, "ROPE"), 2);
    let query = fused.nodes.iter().find(|node| node.op == "ROPE").unwrap();
    assert_eq!(query.output.tensor.ne, [64, 71, 2, 1]);
}

/// Falcon-40B: attention and the feed-forward part have a norm each.
#[test]
fn falcon_with_two_norms() {
    let mut blank = Blank::new("falcon", 1, 8192, [128, 8], 65_024);
    blank.joined(8192 + 2 * 512, false).plain(32_768, false).norms(&["attn_norm", "attn_norm_2"], true).output();
    let fused = graph(&whole(blank), true);
    let attention = operations(&fused).iter().position(|op| *op == "FLASH_ATTN_EXT").unwrap();
    let norms: Vec<&str> = fused.nodes.iter().filter(|node| node.op == "NORM").map(|node| node.name.as_str()).collect();
    assert_eq!(norms, ["blk.0.attn_norm_2", "blk.0.attn_norm", "output_norm"]);
    assert_eq!(operations(&fused)[attention + 1], "NORM");
}

/// Jais-13B: scores are divided by the size of a head, and lowered with the distance.
#[test]
fn jais() {
    let mut blank = Blank::new("jais", 1, 5120, [40, 40], 84_992);
    blank.real("attention.max_alibi_bias", 8.0).joined(3 * 5120, true).gated(13_653).feed_biases();
    blank.norms(&["attn_norm", "ffn_norm"], true).output();
    let fused = graph(&whole(blank), true);
    assert_eq!((real(&fused, "FLASH_ATTN_EXT", 0), real(&fused, "FLASH_ATTN_EXT", 1)), (1.0 / 128.0, 8.0));
    assert_eq!((count(&fused, "ROPE"), count(&fused, "SWIGLU"), count(&fused, "NORM")), (0, 1, 3));
}

/// OLMo-7B: norms without weights; with the bound of the first version, and without.
#[rstest]
#[case(Some(8.0), 3)]
#[case(None, 0)]
fn olmo(#[case] bound: Option<f32>, #[case] clamps: usize) {
    let mut blank = Blank::new("olmo", 1, 4096, [32, 32], 50_304);
    blank.separate().gated(11_008);
    blank.remove("output_norm.weight");
    if let Some(bound) = bound {
        blank.real("attention.clamp_kqv", bound);
    }
    let fused = graph(&whole(blank), true);
    assert_eq!((count(&fused, "NORM"), count(&fused, "MUL"), count(&fused, "CLAMP")), (3, 0, clamps));
    if let Some(bound) = bound {
        assert_eq!((real(&fused, "CLAMP", 0), real(&fused, "CLAMP", 1)), (-bound, bound));
    }
}

/// Refact-1.6B: one head of keys, nothing rotated.
#[test]
fn refact() {
    let mut blank = Blank::new("refact", 1, 2048, [32, 1], 49_216);
    blank.separate().gated(5632).norms(&["attn_norm", "ffn_norm"], false).output();
    let fused = graph(&whole(blank), true);
    assert_eq!((count(&fused, "ROPE"), count(&fused, "RMS_NORM"), count(&fused, "SWIGLU")), (0, 3, 1));
    assert_eq!(real(&fused, "FLASH_ATTN_EXT", 1), 8.0);
}

/// StarCoder-1B: learned positions, and nothing rotated.
#[test]
fn starcoder() {
    let mut blank = Blank::new("starcoder", 1, 2048, [16, 1], 49_152);
    blank.matrix("position_embd", 2048, 8192).joined(2048 + 2 * 128, true).plain(8192, true);
    blank.norms(&["attn_norm", "ffn_norm"], true);
    let fused = graph(&whole(blank), true);
    assert_eq!(operations(&fused)[..4], ["GET_ROWS", "GET_ROWS", "ADD", "NORM"]);
    assert_eq!((count(&fused, "ROPE"), count(&fused, "GELU")), (0, 1));
    assert_eq!(real(&fused, "FLASH_ATTN_EXT", 1), 0.0);
}

/// Keys that each layer's attention reads, and whether its queries are rotated, with what base.
fn reaches(model: &Model, past: usize) -> Vec<(usize, Option<f32>)> {
    let (graph, _) = build(model, Batch::new(1, past, Cache::new(16_384, 512, true)));
    let attentions = graph.nodes.iter().filter(|node| node.op == "FLASH_ATTN_EXT");
    let keys = attentions.map(|node| node.sources[1].unwrap().tensor.ne[1]);
    keys.zip(&model.layers)
        .map(|(keys, layer)| (keys, layer.rope.map(|rope| f32::from_bits(rope.0[5].cast_unsigned()))))
        .collect()
}

/// Command R7B: three layers with a window, then one that sees all and does not rotate; logits are scaled.
#[test]
fn cohere2() {
    let mut blank = Blank::new("cohere2", 4, 4096, [32, 8], 256_000);
    blank.number("attention.sliding_window", 4096).real("logit_scale", 0.25).real("rope.freq_base", 50_000.0);
    blank.separate().gated(14_336).norms(&["attn_norm"], false);
    let model = whole(blank);
    // 4,096 tokens and a batch of 512.
    let window = (4608, Some(50_000.0));
    assert_eq!(reaches(&model, 10_000), [window, window, window, (10_240, None)]);
    let fused = graph(&model, true);
    assert_eq!((count(&fused, "ROPE"), count(&fused, "NORM"), real(&fused, "SCALE", 0)), (6, 5, 0.25));
    // The feed-forward part, the stream, then attention.
    let expected = [
        "FLASH_ATTN_EXT",
        "GET_ROWS",
        "MUL_MAT",
        "MUL_MAT",
        "SWIGLU",
        "MUL_MAT",
        "GET_ROWS",
        "ADD",
        "MUL_MAT",
        "GET_ROWS",
        "ADD",
        "NORM",
        "MUL",
        "MUL_MAT",
        "SCALE",
    ];
    assert!(operations(&fused).ends_with(&expected), "{:?}", operations(&fused));
}

/// Gemma 3 1B: five layers with a window and a base of their own, then one that sees all.
#[test]
fn gemma3() {
    let mut blank = Blank::new("gemma3", 7, 1152, [4, 1], 262_144);
    blank.number("attention.key_length", 256).number("attention.value_length", 256);
    blank.number("attention.sliding_window", 512).real("rope.freq_base", 1e6).separate_sized(256).gated(6912);
    blank.norms(&["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"], false);
    blank.heads_norms(256);
    let model = whole(blank);
    let window = (1024, Some(10_000.0));
    let mut expected = vec![window; 7];
    expected[5] = (10_240, Some(1e6));
    assert_eq!(reaches(&model, 10_000), expected);
    let fused = graph(&model, true);
    // Before and behind both parts, of queries and of keys; one at the end.
    assert_eq!((count(&fused, "RMS_NORM"), count(&fused, "GEGLU")), (7 * 6 + 1, 7));
    let embedded = fused.nodes.iter().find(|node| node.op == "MUL").unwrap();
    assert_eq!(embedded.sources[1].unwrap().tensor.ne, [1, 2, 1, 1]);
    assert_eq!(real(&fused, "SCALE", 0), 1.0 / 16.0);
    assert_eq!(real(&fused, "FLASH_ATTN_EXT", 0), 1.0);
}

/// Gemma 3 27B scales queries by width and heads, not by the size of a head.
#[test]
fn gemma3_of_62_layers() {
    let mut blank = Blank::new("gemma3", 62, 5376, [32, 16], 262_144);
    blank.number("attention.key_length", 128).number("attention.value_length", 128);
    blank.separate_sized(128).gated(21_504);
    blank.norms(&["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"], false);
    blank.heads_norms(128);
    assert_eq!(whole(blank).hyper.attention_scale, Some(1.0 / 168.0_f32.sqrt()));
}

/// Families that are listed and were never compared say so.
#[test]
fn a_family_that_was_not_checked_says_so() {
    let mut blank = Blank::new("stablelm", 1, 2048, [32, 32], 50_304);
    blank.separate().gated(5632).norms(&["attn_norm", "ffn_norm"], true).output();
    let model = blank.model();
    assert!(!model.is_whole());
    assert!(model.reservations()[0].starts_with("explained like llama, not checked for stablelm"));
}
