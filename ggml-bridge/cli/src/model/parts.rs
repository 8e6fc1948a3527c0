//! A model's layers, found by the names of its tensors.
//!
//! The names are llama.cpp's (gguf-py's `constants.py`): `blk.7.attn_q.weight`. Every part is looked for in every layer, whatever the
//! family is. Tensors that no part took are [`Model::unknown`].

use super::conventions::{CHECKED, Conventions};
use super::file::{ModelError, ModelFile};
use super::hyper::{Heads, Hyper};
use super::kind::other;
use aie_ops::{OpParams, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A tensor with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// As the file has it.
    pub name: String,
    /// Type and shape.
    pub tensor: Tensor,
}

/// A matrix with what is multiplied with its product and added to it.
#[derive(Debug, Clone)]
pub struct Linear {
    /// The matrix.
    pub weight: Weight,
    /// One factor for all elements.
    pub scale: Option<Weight>,
    /// An addend for each element.
    pub bias: Option<Weight>,
}

/// A norm.
#[derive(Debug, Clone)]
pub struct Norm {
    /// As the file calls it, or would.
    pub name: String,
    /// Factors.
    pub weight: Option<Weight>,
    /// Addends.
    pub bias: Option<Weight>,
}

/// The projections of attention.
#[derive(Debug, Clone)]
pub enum Projections {
    /// A matrix each.
    Apart(Box<[Linear; 3]>),
    /// Queries, keys and values below each other in one.
    Joined(Box<Linear>),
}

/// Attention of a layer.
#[derive(Debug, Clone)]
pub struct Attention {
    /// Its heads.
    pub heads: Heads,
    /// What makes queries, keys and values.
    pub projections: Projections,
    /// Norms of queries and keys.
    pub norms: [Option<Norm>; 2],
    /// What is added to the scores of each head.
    pub sinks: Option<Weight>,
    /// What takes the result.
    pub output: Linear,
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The gate; without one the activation is applied to what goes up, or, when that is twice as wide, to its first half.
    pub gate: Option<Linear>,
    /// What goes up.
    pub up: Linear,
    /// What goes down.
    pub down: Linear,
}

/// A layer, as far as it is known.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Before attention.
    pub norm: Option<Norm>,
    /// Before attention, where `norm` is before the feed-forward part beside it.
    pub second_norm: Option<Norm>,
    /// Attention.
    pub attention: Option<Attention>,
    /// Behind attention, before it is added.
    pub attention_post: Option<Norm>,
    /// Before the feed-forward part.
    pub feed_norm: Option<Norm>,
    /// The feed-forward part.
    pub feed: Option<Feed>,
    /// Behind it, before it is added.
    pub feed_post: Option<Norm>,
    /// How many tokens attention sees, where it does not see all.
    pub window: Option<usize>,
    /// How queries and keys are rotated.
    pub rope: Option<OpParams>,
}

/// A model, as far as it is known.
#[derive(Debug)]
pub struct Model {
    /// `general.architecture`.
    pub architecture: String,
    /// What its makers call it.
    pub name: Option<String>,
    /// What is particular about the architecture.
    pub conventions: Conventions,
    /// Its numbers.
    pub hyper: Hyper,
    /// Vectors of the words.
    pub embedding: Weight,
    /// Vectors of the positions.
    pub positions: Option<Weight>,
    /// Before the first layer.
    pub embedding_norm: Option<Norm>,
    /// Its layers.
    pub layers: Vec<Layer>,
    /// Before the last product.
    pub output_norm: Option<Norm>,
    /// The last product; the embedding, where they are the same.
    pub output: Linear,
    /// Factors of the rotation's frequencies.
    pub frequencies: Option<Weight>,
    /// Names of tensors that no operation of the graph reads, with a `*` for the layer, and in how many layers.
    pub unknown: BTreeMap<String, usize>,
    /// What the model has that makes its graph one of another kind: experts, recurrent layers, an encoder.
    pub other: Option<String>,
    /// Bytes of all tensors, and of those that are unknown.
    pub bytes: usize,
    /// Bytes of those that are unknown.
    pub unknown_bytes: usize,
}

/// A file of which parts are taken.
struct Finder<'a> {
    file: &'a ModelFile,
    conventions: Conventions,
    taken: BTreeSet<String>,
}

impl Finder<'_> {
    fn weight(&mut self, name: String) -> Option<Weight> {
        let tensor = self.file.tensor(&name)?;
        self.taken.insert(name.clone());
        Some(Weight { name, tensor })
    }

    fn linear(&mut self, name: &str) -> Option<Linear> {
        let weight = self.weight(format!("{name}.weight"))?;
        let [scale, bias] = ["scale", "bias"].map(|part| self.weight(format!("{name}.{part}")));
        Some(Linear { weight, scale, bias })
    }

    fn norm(&mut self, name: &str) -> Option<Norm> {
        let weight = self.weight(format!("{name}.weight")).or_else(|| self.weight(name.to_owned()))?;
        Some(Norm { name: name.to_owned(), weight: Some(weight), bias: self.weight(format!("{name}.bias")) })
    }

    /// The norm of a family whose norms may have no weights.
    fn main_norm(&mut self, name: &str) -> Option<Norm> {
        let bare = || Norm { name: name.to_owned(), weight: None, bias: None };
        if self.conventions.bare_norms { Some(bare()) } else { self.norm(name) }
    }

    fn attention(&mut self, block: &str, heads: Heads) -> Option<Attention> {
        // Without all of it nothing is taken.
        let apart = ["q", "k", "v"].map(|part| format!("{block}.attn_{part}"));
        let output = format!("{block}.attn_output");
        let has = |name: &String| self.file.tensor(&format!("{name}.weight")).is_some();
        let joined = format!("{block}.attn_qkv");
        if !has(&output) || !(apart.iter().all(has) || has(&joined)) {
            return None;
        }
        let projections = match self.linear(&joined) {
            Some(joined) => Projections::Joined(Box::new(joined)),
            None => {
                let [q, k, v] = apart.map(|name| self.linear(&name));
                Projections::Apart(Box::new([q?, k?, v?]))
            }
        };
        Some(Attention {
            heads,
            projections,
            norms: ["q", "k"].map(|part| self.norm(&format!("{block}.attn_{part}_norm"))),
            sinks: self.weight(format!("{block}.attn_sinks.weight")),
            output: self.linear(&output)?,
        })
    }

    fn feed(&mut self, block: &str) -> Option<Feed> {
        // llama.cpp uses no scales here.
        let mut unscaled = |part: &str| {
            let weight = self.weight(format!("{block}.ffn_{part}.weight"))?;
            Some(Linear { weight, scale: None, bias: self.weight(format!("{block}.ffn_{part}.bias")) })
        };
        let (up, down) = (unscaled("up")?, unscaled("down")?);
        Some(Feed { gate: unscaled("gate"), up, down })
    }

    fn layer(&mut self, index: usize, hyper: &Hyper) -> Layer {
        let block = format!("blk.{index}");
        let heads = hyper.heads(self.file, index).ok();
        let (window, rope) = hyper.reach(self.file, &self.conventions, index);
        let mut named = |part: &str| match part {
            "attn_norm" | "ffn_norm" => self.main_norm(&format!("{block}.{part}")),
            _ => self.norm(&format!("{block}.{part}")),
        };
        let (norm, second_norm) = (named("attn_norm"), named("attn_norm_2"));
        let (mut attention_post, mut feed_norm) = (named("post_attention_norm"), named("ffn_norm"));
        let feed_post = named("post_ffw_norm");
        // The same name is before the feed-forward part in models that have no other norm there.
        if norm.is_some() && feed_norm.is_none() {
            feed_norm = attention_post.take();
        }
        Layer {
            norm,
            second_norm,
            attention: heads.and_then(|heads| self.attention(&block, heads)),
            attention_post,
            feed_norm,
            feed: self.feed(&block),
            feed_post,
            window,
            rope,
        }
    }
}

/// The name with `*` for the number of the layer.
fn general(name: &str) -> String {
    let mut parts = name.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("blk"), Some(_), Some(rest)) => format!("blk.*.{rest}"),
        _ => name.to_owned(),
    }
}

impl Model {
    /// Finds the parts of a model.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn find(file: &ModelFile) -> Result<Self, ModelError> {
        let unknown =
            |reason: &str| ModelError::Unknown { architecture: file.architecture.clone(), reason: reason.to_owned() };
        let conventions = Conventions::of_model(&file.architecture, file.layers()?);
        let conventions = conventions.map_err(|reason| unknown(&reason))?;
        let hyper = Hyper::read(file, &conventions)?;
        let mut finder = Finder { file, conventions, taken: BTreeSet::new() };
        let embedding = finder.weight("token_embd.weight".into()).ok_or_else(|| unknown("no token_embd.weight"))?;
        let positions = finder.weight("position_embd.weight".into());
        // llama.cpp calls it a tensor of layer 0, without saying so in its name.
        let embedding_norm = finder.norm("token_embd_norm");
        let layers: Vec<Layer> = (0..hyper.layers).map(|layer| finder.layer(layer, &hyper)).collect();
        if layers.iter().all(|layer| layer.attention.is_none() && layer.feed.is_none()) {
            if let Some(other) = other(file) {
                return Err(unknown(&format!("it has {other}")));
            }
            return Err(unknown(
                "no layer has attn_q, attn_k, attn_v (or attn_qkv) and attn_output, or ffn_up and ffn_down",
            ));
        }
        let output_norm = finder.main_norm("output_norm");
        let tied = || Linear { weight: embedding.clone(), scale: None, bias: None };
        let output = finder.linear("output").unwrap_or_else(tied);
        // Where there are two, the short ones hold up to the context of the training.
        let frequencies = ["rope_freqs.weight", "rope_factors_short.weight"].map(|name| finder.weight(name.into()));
        finder.weight("rope_factors_long.weight".into());
        let taken = finder.taken;
        let (mut left, mut unknown_bytes) = (BTreeMap::new(), 0);
        for (name, tensor) in file.tensors.iter().filter(|(name, _)| !taken.contains(*name)) {
            *left.entry(general(name)).or_default() += 1;
            unknown_bytes += tensor.span_bytes();
        }
        Ok(Self {
            architecture: file.architecture.clone(),
            name: file.name().map(ToOwned::to_owned),
            conventions,
            hyper,
            embedding,
            positions,
            embedding_norm,
            layers,
            output_norm,
            output,
            frequencies: frequencies.into_iter().flatten().next(),
            unknown: left,
            other: other(file),
            bytes: file.bytes(),
            unknown_bytes,
        })
    }

    /// What was assumed or left out, in words: what is below is right as far as these are.
    pub fn reservations(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(other) = &self.other {
            found.push(format!("the model has {other}, whose operations are missing below"));
        }
        if !self.conventions.known {
            found.push(format!(
                "explained like llama, not checked for {family}: the architecture {family} is not listed here; rotation by halves \
                 (NeoX), SwiGLU and norms by its numbers are assumed",
                family = self.architecture
            ));
        } else if !self.conventions.checked {
            found.push(format!(
                "explained like llama, not checked for {family}: its rotation, norms and activation are known, and nobody compared \
                 its graph with llama.cpp's; checked are {}",
                CHECKED.join(", "),
                family = self.architecture,
            ));
        }
        if !self.unknown.is_empty() {
            let share = 100.0 * self.unknown_bytes as f64 / self.bytes.max(1) as f64;
            let names: Vec<String> =
                self.unknown.iter().map(|(name, times)| format!("{name} ({times})")).take(12).collect();
            let more = self.unknown.len().saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            found.push(format!(
                "{share:.1} % of the weights are in tensors whose operations are not known here, and those operations are missing \
                 below: {}{more}",
                names.join(", ")
            ));
        }
        let incomplete = self.layers.iter().filter(|layer| layer.attention.is_none() || layer.feed.is_none()).count();
        if incomplete > 0 {
            found.push(format!(
                "{incomplete} of {} layers have no attention or no feed-forward part that is known here",
                self.layers.len()
            ));
        }
        if let Some(window) = self.hyper.window
            && self.conventions.windows.is_none()
        {
            found.push(format!("a sliding window of {window} tokens is counted as whole attention"));
        }
        found
    }

    /// Whether every tensor of the model has its place in the graph.
    pub fn is_whole(&self) -> bool {
        self.unknown.is_empty() && self.conventions.checked && self.other.is_none()
    }
}
