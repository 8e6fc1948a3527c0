//! The graph of one batch of tokens, as llama.cpp builds it.

use super::arena::Arena;
use super::block::{Maker, reals, unary};
use super::conventions::Sum;
use super::parts::{Attention, Layer, Model, Norm};
use aie_ops::DataType::{F32, I32};
use aie_ops::{DataType, OpParams, Tensor};
use ggml_hsa::plan::graph::{Graph, TensorView};

/// llama.cpp counts keys in steps of so many.
pub const KEY_STEP: usize = 256;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Tokens there is room for.
    pub size: usize,
    /// Their type.
    pub dtype: DataType,
    /// Whether attention is one operation (`-fa on`). Without, values lie transposed.
    pub flash: bool,
    /// Tokens at once that memory is reserved for.
    pub reserved: usize,
}

impl Cache {
    /// The cache for a context of `tokens`, of which at most `batch` are computed at once (`-ub`).
    pub fn new(tokens: usize, batch: usize, flash: bool) -> Self {
        let size = tokens.max(1).next_multiple_of(KEY_STEP);
        Self { size, dtype: DataType::F16, flash, reserved: batch.min(tokens).max(1) }
    }

    /// Tokens there is room for in a layer that sees `window` of them: the window and one batch.
    pub fn room(&self, window: Option<usize>) -> usize {
        window.map_or(self.size, |window| (window + self.reserved).next_multiple_of(KEY_STEP).min(self.size))
    }
}

/// Tokens that are computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub tokens: usize,
    /// Tokens in the cache before them.
    pub past: usize,
    /// Of how many tokens, the last ones, logits are wanted.
    pub outputs: usize,
    /// The cache.
    pub cache: Cache,
}

impl Batch {
    /// `tokens` behind `past` others, of which the last one's logits are wanted.
    pub fn new(tokens: usize, past: usize, cache: Cache) -> Self {
        Self { tokens, past, outputs: 1, cache }
    }

    /// The batch that llama.cpp reserves memory for.
    fn largest(cache: Cache) -> Self {
        let tokens = cache.reserved;
        Self { tokens, past: cache.size - tokens, outputs: tokens, cache }
    }

    /// How many places of the cache attention reads in a layer that sees `window` tokens.
    pub fn keys(&self, window: Option<usize>) -> usize {
        (self.past + self.tokens).next_multiple_of(KEY_STEP).min(self.cache.room(window))
    }
}

/// The nodes of `batch`, with the bytes of their tensors by place.
pub fn build(model: &Model, batch: Batch) -> (Graph, Arena) {
    let (_, largest) = build_in(Arena::default(), model, Batch::largest(batch.cache));
    build_in(Arena::reserved(&largest), model, batch)
}

fn build_in(mut arena: Arena, model: &Model, batch: Batch) -> (Graph, Arena) {
    let mut maker = Maker {
        arena: &mut arena,
        hyper: &model.hyper,
        activation: model.conventions.activation,
        scaled_queries: model.conventions.scaled_queries,
        frequencies: model.frequencies.as_ref(),
        batch,
        layer: 0,
        rope: None,
        window: None,
    };
    let mut x = embedded(&mut maker, model);
    for (index, layer) in model.layers.iter().enumerate() {
        (maker.layer, maker.rope, maker.window) = (index, layer.rope, layer.window);
        x = block(&mut maker, layer, x, index + 1 == model.layers.len(), model.conventions.sum);
    }
    let x = maker.norm_or_not(model.output_norm.as_ref(), x);
    let mut logits = maker.linear(&model.output, x);
    if let Some(factor) = model.hyper.logit_scale {
        logits = maker.scale("logits", logits, factor);
    }
    if let Some(cap) = model.hyper.logit_cap {
        logits = maker.scale("logits", logits, 1.0 / cap);
        logits = maker.like("logits", "TANH", unary("TANH"), &[logits]);
        maker.scale("logits", logits, cap);
    }
    let graph = arena.finish();
    (graph, arena)
}

fn rows(maker: &mut Maker<'_>, name: &str, of: TensorView, chosen: TensorView) -> TensorView {
    let ne = [of.tensor.ne[0], chosen.tensor.ne[0], 1, 1];
    maker.arena.node(name, "GET_ROWS", OpParams::default(), (F32, ne), &[Some(of), Some(chosen)])
}

fn embedded(maker: &mut Maker<'_>, model: &Model) -> TensorView {
    let tokens = Tensor::contiguous(I32, [maker.batch.tokens, 1, 1, 1]);
    let words = maker.input("tokens", tokens);
    let table = maker.weight(&model.embedding);
    let mut x = rows(maker, "token_embd", table, words);
    // Words and embeddings mixed in one batch: not computed when there are only words.
    maker.arena.passed_over(x.tensor);
    if let Some(factor) = model.hyper.embedding_scale {
        x = match model.conventions.scale_by_token {
            true => {
                let factors = maker.input("embedding_scale", Tensor::contiguous(F32, [1, maker.batch.tokens, 1, 1]));
                maker.like("token_embd", "MUL", OpParams::default(), &[x, factors])
            }
            false => maker.scale("token_embd", x, factor),
        };
    }
    if let Some(positions) = &model.positions {
        let (table, places) = (maker.weight(positions), maker.input("positions", tokens));
        let of_places = rows(maker, "position_embd", table, places);
        x = maker.like("position_embd", "ADD", OpParams::default(), &[x, of_places]);
    }
    maker.norm_or_not(model.embedding_norm.as_ref(), x)
}

/// The last layer goes on with the one token whose logits are wanted.
fn block(maker: &mut Maker<'_>, layer: &Layer, x: TensorView, last: bool, sum: Sum) -> TensorView {
    let name = format!("blk.{}", maker.layer);
    let beside = layer.feed_norm.is_none() && layer.norm.is_some();
    let normed = maker.norm_or_not(layer.second_norm.as_ref().or(layer.norm.as_ref()), x);
    let seen = layer.attention.as_ref().map(|attention| (attention, maker.attention(attention, normed)));
    // What is left of a part in the last layer.
    let wanted = |maker: &mut Maker<'_>, part: TensorView| {
        if !last {
            return part;
        }
        let chosen = maker.input("wanted", Tensor::contiguous(I32, [maker.batch.outputs, 1, 1, 1]));
        rows(maker, &name, part, chosen)
    };
    let attended = |maker: &mut Maker<'_>, (attention, seen): (&Attention, TensorView)| {
        let attended = maker.linear(&attention.output, seen);
        wanted(maker, attended)
    };
    if let (true, Some(seen), Some(feed)) = (beside, seen, &layer.feed) {
        let fed = |maker: &mut Maker<'_>| {
            let input = match &layer.second_norm {
                Some(_) => maker.norm_or_not(layer.norm.as_ref(), x),
                None => normed,
            };
            let input = wanted(maker, input);
            maker.feed(feed, input)
        };
        let plus = |maker: &mut Maker<'_>, a, b| added(maker, &name, None, a, b);
        // Nodes come in the order in which the sums ask for them.
        return match sum {
            Sum::FeedStreamAttention => {
                let (fed, x) = (fed(maker), wanted(maker, x));
                let sum = plus(maker, fed, x);
                let attended = attended(maker, seen);
                maker.like(&name, "ADD", OpParams::default(), &[sum, attended])
            }
            Sum::FeedAttentionStream => {
                let (fed, attended) = (fed(maker), attended(maker, seen));
                let sum = plus(maker, fed, attended);
                let x = wanted(maker, x);
                maker.like(&name, "ADD", OpParams::default(), &[sum, x])
            }
            Sum::AttentionFeedStream => {
                let (attended, fed) = (attended(maker, seen), fed(maker));
                let sum = plus(maker, attended, fed);
                let x = wanted(maker, x);
                maker.like(&name, "ADD", OpParams::default(), &[sum, x])
            }
        };
    }
    let attended = seen.map(|seen| attended(maker, seen));
    let attended = attended.map(|attended| maker.norm_or_not(layer.attention_post.as_ref(), attended));
    let x = wanted(maker, x);
    let middle = attended.map_or(x, |attended| added(maker, &name, None, attended, x));
    let Some(feed) = &layer.feed else { return middle };
    let input = maker.norm_or_not(layer.feed_norm.as_ref(), middle);
    let fed = maker.feed(feed, input);
    added(maker, &name, layer.feed_post.as_ref(), fed, middle)
}

/// A branch back on the residual stream.
fn added(maker: &mut Maker<'_>, name: &str, post: Option<&Norm>, part: TensorView, stream: TensorView) -> TensorView {
    let mut part = maker.norm_or_not(post, part);
    if let Some(factor) = maker.hyper.residual_scale {
        part = maker.like(name, "SCALE", reals(&[(0, factor)]), &[part]);
    }
    maker.like(name, "ADD", OpParams::default(), &[part, stream])
}
