//! The parts of a layer as nodes.

use super::arena::{Arena, Place};
use super::conventions::Activation;
use super::graph::Batch;
use super::hyper::{Heads, Hyper};
use super::parts::{Attention, Feed, Linear, Norm, Projections, Weight};
use aie_ops::DataType::{F16, F32, I32, I64};
use aie_ops::{OpParams, Tensor};
use ggml_hsa::plan::graph::TensorView;

/// What the nodes of a model are made with.
pub(super) struct Maker<'a> {
    pub arena: &'a mut Arena,
    pub hyper: &'a Hyper,
    pub activation: Activation,
    pub scaled_queries: bool,
    pub frequencies: Option<&'a Weight>,
    pub batch: Batch,
    pub layer: usize,
    /// How this layer rotates, and how many tokens it sees where it does not see all.
    pub rope: Option<OpParams>,
    pub window: Option<usize>,
}

pub(super) fn reals(words: &[(usize, f32)]) -> OpParams {
    let mut params = OpParams::default();
    words.iter().for_each(|(index, value)| params.0[*index] = value.to_bits().cast_signed());
    params
}

/// ggml's wish for full precision.
const PRECISE: i32 = 10;

impl Maker<'_> {
    pub fn weight(&mut self, weight: &Weight) -> TensorView {
        self.arena.named(Place::Weights, &weight.name, weight.tensor)
    }

    /// A node with a result like its first source's.
    pub fn like(&mut self, name: &str, op: &'static str, params: OpParams, sources: &[TensorView]) -> TensorView {
        let ne = sources.first().map_or([1; 4], |source| source.tensor.ne);
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        self.arena.node(name, op, params, (F32, ne), &sources)
    }

    pub fn product(&mut self, name: &str, a: TensorView, b: TensorView, params: OpParams) -> TensorView {
        let ne = [a.tensor.ne[1], b.tensor.ne[1], b.tensor.ne[2], b.tensor.ne[3]];
        self.arena.node(name, "MUL_MAT", params, (F32, ne), &[Some(a), Some(b)])
    }

    pub fn linear(&mut self, linear: &Linear, x: TensorView) -> TensorView {
        let name = linear.weight.name.trim_end_matches(".weight").to_owned();
        let weight = self.weight(&linear.weight);
        let mut result = self.product(&name, weight, x, OpParams::default());
        for (op, part) in [("MUL", &linear.scale), ("ADD", &linear.bias)] {
            if let Some(part) = part {
                let part = self.weight(part);
                result = self.like(&name, op, OpParams::default(), &[result, part]);
            }
        }
        result
    }

    pub fn norm(&mut self, norm: &Norm, x: TensorView) -> TensorView {
        let name = norm.name.clone();
        let op = if self.hyper.mean { "NORM" } else { "RMS_NORM" };
        let mut result = self.like(&name, op, reals(&[(0, self.hyper.epsilon)]), &[x]);
        for (op, part) in [("MUL", norm.weight.as_ref()), ("ADD", norm.bias.as_ref())] {
            if let Some(part) = part {
                let part = self.weight(part);
                result = self.like(&name, op, OpParams::default(), &[result, part]);
            }
        }
        result
    }

    pub fn norm_or_not(&mut self, norm: Option<&Norm>, x: TensorView) -> TensorView {
        norm.map_or(x, |norm| self.norm(norm, x))
    }

    pub fn scale(&mut self, name: &str, x: TensorView, factor: f32) -> TensorView {
        self.like(name, "SCALE", reals(&[(0, factor)]), &[x])
    }

    fn rotated(&mut self, name: &str, x: TensorView) -> TensorView {
        let Some(params) = self.rope else { return x };
        let positions = self.input("positions", Tensor::contiguous(I32, [self.batch.tokens, 1, 1, 1]));
        let mut sources = vec![x, positions];
        if let Some(frequencies) = self.frequencies {
            sources.push(self.weight(frequencies));
        }
        self.like(name, "ROPE", params, &sources)
    }

    pub fn input(&mut self, name: &str, tensor: Tensor) -> TensorView {
        self.arena.named(Place::Inputs, name, tensor)
    }

    /// Queries or keys: normed and rotated.
    fn prepared(&mut self, name: &str, x: TensorView, shape: [usize; 4], norm: Option<&Norm>) -> TensorView {
        // A norm over a whole token, or over each head.
        let whole = norm
            .and_then(|norm| norm.weight.as_ref())
            .is_some_and(|weight| weight.tensor.elements() == x.tensor.ne[0] && shape[1] > 1);
        let x = match norm.filter(|_| whole) {
            Some(norm) => self.norm(norm, x),
            None => x,
        };
        // Also where nothing changes: graphs of all sizes have the same nodes and views.
        let x = self.arena.reshape(x, shape);
        let x = self.norm_or_not(norm.filter(|_| !whole), x);
        self.rotated(name, x)
    }

    /// The product, kept between bounds in families that have them.
    fn bounded(&mut self, linear: &Linear, x: TensorView) -> TensorView {
        let result = self.linear(linear, x);
        let Some(bound) = self.hyper.clamp else { return result };
        let name = linear.weight.name.trim_end_matches(".weight").to_owned();
        self.arena.node_over(&name, "CLAMP", reals(&[(0, -bound), (1, bound)]), result)
    }

    fn head_scale(&self, heads: &Heads) -> f32 {
        self.hyper.attention_scale.unwrap_or_else(|| 1.0 / (heads.key_size as f32).sqrt())
    }

    /// Attention up to its last product, which llama.cpp requests later.
    pub fn attention(&mut self, attention: &Attention, x: TensorView) -> TensorView {
        let Attention { heads, projections, norms, .. } = attention;
        let (layer, tokens) = (self.layer, self.batch.tokens);
        let shapes = [(heads.key_size, heads.queries), (heads.key_size, heads.keys), (heads.value_size, heads.keys)]
            .map(|(size, count)| [size, count, tokens, 1]);
        let names = ["q", "k", "v"].map(|part| format!("blk.{layer}.attn_{part}"));
        let [q, k, v] = match projections {
            Projections::Joined(joined) => {
                let all = self.bounded(joined, x);
                let mut offset = 0;
                let parts = [0, 1, 2].map(|part| {
                    let [size, count, ..] = shapes[part];
                    let nb = [4, 4 * size, all.tensor.nb[1], all.tensor.nb[2]];
                    let view = self.arena.view(all, Tensor { dtype: F32, ne: shapes[part], nb }, offset);
                    offset += 4 * size * count;
                    view
                });
                let [q, k, v] = parts;
                let q = self.norm_or_not(norms[0].as_ref(), q);
                let q = self.rotated(&names[0], q);
                let k = self.norm_or_not(norms[1].as_ref(), k);
                [q, self.rotated(&names[1], k), v]
            }
            Projections::Apart(apart) => {
                let [q, k, v] = &**apart;
                let q = self.bounded(q, x);
                let q = self.prepared(&names[0], q, shapes[0], norms[0].as_ref());
                let q = if self.scaled_queries { self.scale(&names[0], q, self.head_scale(heads)) } else { q };
                // llama.cpp requests values before keys, unless keys were named before.
                let value = |maker: &mut Self| {
                    let v = maker.bounded(v, x);
                    maker.arena.reshape(v, shapes[2])
                };
                let key = |maker: &mut Self| {
                    let k = maker.bounded(k, x);
                    maker.prepared(&names[1], k, shapes[1], norms[1].as_ref())
                };
                if norms[1].is_some() {
                    let k = key(self);
                    [q, k, value(self)]
                } else {
                    let v = value(self);
                    [q, key(self), v]
                }
            }
        };
        let scale = if self.scaled_queries { 1.0 } else { self.head_scale(heads) };
        self.attend(heads, [q, k, v], scale, attention.sinks.as_ref())
    }

    /// Places of this layer's cache.
    fn room(&self) -> usize {
        self.batch.cache.room(self.window)
    }

    /// What belongs to layers of one kind.
    fn of_kind(&self, name: &str) -> String {
        if self.window.is_some() { format!("{name}_window") } else { name.to_owned() }
    }

    /// Writes keys or values to the cache; with their elements behind each other for each token, or `transposed`.
    fn remember(&mut self, part: &str, x: TensorView, width: usize, transposed: bool) -> TensorView {
        let (layer, tokens, size) = (self.layer, self.batch.tokens, self.room());
        let cache = Tensor::contiguous(self.batch.cache.dtype, [width, size, 1, 1]);
        let cache = self.arena.named(Place::Cache, &format!("cache_{part}_l{layer}"), cache);
        let count = if transposed { tokens * width } else { tokens };
        let places =
            self.input(&self.of_kind(&format!("places_{part}_{count}")), Tensor::contiguous(I64, [count, 1, 1, 1]));
        let (rows, target) = match transposed {
            false => {
                let row = Tensor { dtype: F32, ne: [width, tokens, 1, 1], nb: [4, x.tensor.nb[2], 0, 0] };
                let row = Tensor { nb: [4, row.nb[1], row.nb[1] * tokens, row.nb[1] * tokens], ..row };
                (self.arena.view(x, row, 0), cache)
            }
            true => {
                let gaps = x.tensor.nb[2] != x.tensor.nb[1] * x.tensor.ne[1];
                let result = (F32, [width, tokens, 1, 1]);
                // Values that lie beside queries and keys are copied out first.
                let x = match gaps {
                    true => self.arena.node(
                        &format!("blk.{layer}.attn_{part}"),
                        "CONT",
                        OpParams::default(),
                        result,
                        &[Some(x)],
                    ),
                    false => x,
                };
                (self.arena.reshape(x, [1, tokens * width, 1, 1]), self.arena.reshape(cache, [1, width * size, 1, 1]))
            }
        };
        let output = self.arena.view(target, target.tensor, 0);
        let sources = [Some(rows), Some(places), Some(target)];
        self.arena.node_into(&format!("cache_{part}_l{layer}"), "SET_ROWS", OpParams::default(), output, &sources);
        cache
    }

    fn attend(&mut self, heads: &Heads, [q, k, v]: [TensorView; 3], scale: f32, sinks: Option<&Weight>) -> TensorView {
        let Heads { queries, keys, key_size, value_size } = *heads;
        let Batch { tokens, cache, .. } = self.batch;
        let (known, room) = (self.batch.keys(self.window), self.room());
        let name = format!("blk.{}.attn", self.layer);
        let [k, v] =
            [self.remember("k", k, keys * key_size, false), self.remember("v", v, keys * value_size, !cache.flash)];
        let element = cache.dtype.block_bytes() / cache.dtype.block_elements().max(1);
        let heads_of = |view: &TensorView, size: usize| {
            let row = view.tensor.nb[1];
            Tensor { dtype: cache.dtype, ne: [size, keys, known, 1], nb: [element, element * size, row, row * room] }
        };
        let q = self.arena.permute(q, [0, 2, 1, 3]);
        let k_heads = heads_of(&k, key_size);
        let k = self.arena.view(k, k_heads, 0);
        let k = self.arena.permute(k, [0, 2, 1, 3]);
        let cap = self.hyper.attention_cap.unwrap_or(0.0);
        let sinks = sinks.map(|sinks| self.weight(sinks));
        if cache.flash {
            let v_heads = heads_of(&v, value_size);
            let v = self.arena.view(v, v_heads, 0);
            let v = self.arena.permute(v, [0, 2, 1, 3]);
            let mask = self.input(&self.of_kind("mask"), Tensor::contiguous(F16, [known, tokens, 1, 1]));
            let mut params = reals(&[(0, scale), (1, self.hyper.alibi), (2, cap)]);
            params.0[3] = PRECISE;
            let result = (F32, [value_size, queries, tokens, 1]);
            let sources = [Some(q), Some(k), Some(v), Some(mask), sinks];
            let sources = &sources[..if sinks.is_some() { 5 } else { 4 }];
            let result = self.arena.node(&name, "FLASH_ATTN_EXT", params, result, sources);
            return self.arena.reshape(result, [value_size * queries, tokens, 1, 1]);
        }
        let mut precise = OpParams::default();
        precise.0[0] = PRECISE;
        let mut scores = self.product(&name, k, q, precise);
        if cap > 0.0 {
            scores = self.scale(&name, scores, 1.0 / cap);
            scores = self.like(&name, "TANH", unary("TANH"), &[scores]);
            scores = self.scale(&name, scores, cap);
        }
        let mask = self.input(&self.of_kind("mask"), Tensor::contiguous(F32, [known, tokens, 1, 1]));
        let sources = [Some(scores), Some(mask), sinks];
        let sources = &sources[..if sinks.is_some() { 3 } else { 2 }];
        let shares = (F32, scores.tensor.ne);
        let shares = self.arena.node(&name, "SOFT_MAX", reals(&[(0, scale), (1, self.hyper.alibi)]), shares, sources);
        // A row of the cache holds one element of all tokens.
        let row = element * room;
        let turned = Tensor {
            dtype: cache.dtype,
            ne: [known, value_size, keys, 1],
            nb: [element, row, row * value_size, row * value_size * keys],
        };
        let v = self.arena.view(v, turned, 0);
        let result = self.product(&name, v, shares, OpParams::default());
        let result = self.arena.permute(result, [0, 2, 1, 3]);
        let row = (F32, [value_size * queries, tokens, 1, 1]);
        self.arena.node(&name, "CONT", OpParams::default(), row, &[Some(result)])
    }

    pub fn feed(&mut self, feed: &Feed, x: TensorView) -> TensorView {
        let name = format!("blk.{}.ffn", self.layer);
        let gate = feed.gate.as_ref().map(|gate| self.linear(gate, x));
        let up = self.linear(&feed.up, x);
        let inner = feed.down.weight.tensor.ne[0];
        let gated = match self.activation {
            Activation::Silu => "SWIGLU",
            Activation::Gelu => "GEGLU",
            Activation::ReluSquared => "REGLU",
        };
        let active = match gate {
            Some(gate) => self.like(&name, gated, glu(gated), &[gate, up]),
            None if up.tensor.ne[0] == 2 * inner => {
                let ne = [inner, up.tensor.ne[1], up.tensor.ne[2], up.tensor.ne[3]];
                self.arena.node(&name, gated, glu(gated), (F32, ne), &[Some(up)])
            }
            None => match self.activation {
                Activation::Silu => self.like(&name, "SILU", unary("SILU"), &[up]),
                Activation::Gelu => self.like(&name, "GELU", unary("GELU"), &[up]),
                Activation::ReluSquared => {
                    let positive = self.like(&name, "RELU", unary("RELU"), &[up]);
                    self.like(&name, "SQR", OpParams::default(), &[positive])
                }
            },
        };
        self.linear(&feed.down, active)
    }
}

/// The number of a gated activation in ggml (`ggml_glu_op`).
fn glu(op: &str) -> OpParams {
    let mut params = OpParams::default();
    params.0[0] = ["REGLU", "GEGLU", "SWIGLU"].iter().position(|name| *name == op).unwrap_or_default() as i32;
    params
}

/// The number of an activation in ggml (`ggml_unary_op`).
pub(super) fn unary(op: &str) -> OpParams {
    const UNARY: [&str; 11] =
        ["ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU", "SIGMOID", "GELU", "GELU_QUICK", "SILU"];
    let mut params = OpParams::default();
    params.0[0] = UNARY.iter().position(|name| *name == op).unwrap_or_default() as i32;
    params
}
