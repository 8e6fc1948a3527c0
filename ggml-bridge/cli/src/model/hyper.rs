//! The numbers of a model that decide its operations.

use super::conventions::{Alibi, Conventions, Rotation};
use super::file::{ModelError, ModelFile};
use aie_ops::OpParams;

/// Numbers of the whole model.
#[derive(Debug, Clone)]
pub struct Hyper {
    /// Layers.
    pub layers: usize,
    /// Elements of a token's state.
    pub width: usize,
    /// Tokens the model was trained for.
    pub context: usize,
    /// What norms add to the variance, and whether they subtract the mean.
    pub epsilon: f32,
    /// Whether norms subtract the mean (LayerNorm) or not (RMSNorm).
    pub mean: bool,
    /// Parameters of ROPE; `None` when positions are not rotated.
    pub rope: Option<OpParams>,
    /// Factor of the scores, when it is not one over the root of a head's size.
    pub attention_scale: Option<f32>,
    /// Where scores are bounded.
    pub attention_cap: Option<f32>,
    /// Where logits are bounded.
    pub logit_cap: Option<f32>,
    /// Factors of the embedding, of what is added to the residual stream, and of the logits.
    pub embedding_scale: Option<f32>,
    /// Factor of what is added to the residual stream.
    pub residual_scale: Option<f32>,
    /// Factor of the logits.
    pub logit_scale: Option<f32>,
    /// Tokens of a sliding window.
    pub window: Option<usize>,
    /// How far scores of distant tokens are lowered at most (ALiBi); 0: not at all.
    pub alibi: f32,
    /// What queries, keys and values are kept between: this and its negative.
    pub clamp: Option<f32>,
}

/// Numbers of attention in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub queries: usize,
    /// Heads of keys and values.
    pub keys: usize,
    /// Elements of a head of queries and keys.
    pub key_size: usize,
    /// Elements of a head of values.
    pub value_size: usize,
}

impl Hyper {
    /// Reads them.
    ///
    /// # Errors
    /// [`ModelError::Missing`].
    pub fn read(file: &ModelFile, conventions: &Conventions) -> Result<Self, ModelError> {
        let width = file.required("embedding_length")?;
        let rms = file.real("attention.layer_norm_rms_epsilon");
        let plain = file.real("attention.layer_norm_epsilon");
        let mean = conventions.mean.unwrap_or(rms.is_none());
        let context = file.required("context_length")?;
        let not_one = |value: &f32| *value != 1.0 && *value != 0.0;
        Ok(Self {
            layers: file.layers()?,
            width,
            context,
            epsilon: if mean { plain.or(rms) } else { rms.or(plain) }.unwrap_or(1e-5),
            mean,
            rope: rope(file, conventions, context),
            attention_scale: attention_scale(file, conventions, width),
            attention_cap: file.real("attn_logit_softcapping").filter(|cap| *cap != 0.0 && conventions.bounded_scores),
            logit_cap: file.real("final_logit_softcapping").filter(|cap| *cap != 0.0 && conventions.bounded_logits),
            embedding_scale: match conventions.embedding_by_width {
                true => Some((width as f32).sqrt()),
                false => file.real("embedding_scale").filter(not_one),
            },
            residual_scale: file.real("residual_scale").filter(not_one),
            logit_scale: file.real("logit_scale").filter(not_one).map(|scale| match conventions.logits_divided {
                true => 1.0 / scale,
                false => scale,
            }),
            window: file.integer("attention.sliding_window").filter(|window| *window > 0),
            alibi: match conventions.alibi {
                Alibi::None => 0.0,
                Alibi::Fixed(bias) => bias,
                Alibi::InFile => file.real("attention.max_alibi_bias").unwrap_or(0.0),
            },
            clamp: file.real("attention.clamp_kqv").filter(|bound| *bound > 0.0 && conventions.clamped),
        })
    }

    /// The window of `layer`, if it has one, and how it rotates.
    pub fn reach(
        &self,
        file: &ModelFile,
        conventions: &Conventions,
        layer: usize,
    ) -> (Option<usize>, Option<OpParams>) {
        const PATTERN: &str = "attention.sliding_window_pattern";
        let Some((windows, window)) = conventions.windows.zip(self.window) else { return (None, self.rope) };
        let every = file.integer(PATTERN).unwrap_or(windows.every);
        let has_one = file.flag_of_layer(PATTERN, layer).unwrap_or(every == 0 || layer % every + 1 < every);
        if !has_one {
            return (None, self.rope.filter(|_| windows.all_rotate));
        }
        let rope = self.rope.map(|mut rope| {
            let real = |value: f32| value.to_bits().cast_signed();
            if let Some(base) = file.real("rope.freq_base_swa").or(windows.base) {
                rope.0[5] = real(base);
            }
            // A base of their own comes with positions that are not scaled.
            if windows.base.is_some() {
                rope.0[6] = real(1.0);
            }
            rope
        });
        (Some(window), rope)
    }

    /// The heads of `layer`.
    ///
    /// # Errors
    /// [`ModelError::Missing`].
    pub fn heads(&self, file: &ModelFile, layer: usize) -> Result<Heads, ModelError> {
        const KEY: &str = "attention.head_count";
        let missing = || ModelError::Missing(format!("{}.{KEY}", file.architecture));
        let queries = file.of_layer(KEY, layer).filter(|heads| *heads > 0).ok_or_else(missing)?;
        let keys = file.of_layer("attention.head_count_kv", layer).unwrap_or(queries);
        let size = self.width / queries;
        let key_size = file.integer("attention.key_length").unwrap_or(size);
        Ok(Heads { queries, keys, key_size, value_size: file.integer("attention.value_length").unwrap_or(size) })
    }
}

/// The factor of the scores, when it is not one over the root of a head's size.
fn attention_scale(file: &ModelFile, conventions: &Conventions, width: usize) -> Option<f32> {
    let heads = file.of_layer("attention.head_count", 0).filter(|heads| *heads > 0)?;
    let size = (width / heads) as f32;
    if conventions.divided_by_size {
        return Some(1.0 / size);
    }
    if conventions.scaled_by_width.is_some() && conventions.scaled_by_width == file.integer("block_count") {
        return Some(1.0 / size.sqrt());
    }
    file.real("attention.scale").filter(|scale| *scale != 0.0)
}

/// ROPE's parameters as `ggml_rope_ext` packs them.
fn rope(file: &ModelFile, conventions: &Conventions, context: usize) -> Option<OpParams> {
    let mode = match conventions.rotation {
        Rotation::None => return None,
        Rotation::Neighbours => 0,
        Rotation::Halves => 2,
    };
    let heads = file.of_layer("attention.head_count", 0).filter(|heads| *heads > 0)?;
    let size = file.integer("attention.key_length").unwrap_or(file.integer("embedding_length")? / heads);
    let dimensions = file.integer("rope.dimension_count").unwrap_or(size);
    let scaling = file.text("rope.scaling.type");
    let factor = file.real("rope.scaling.factor").or(file.real("rope.scale_linear")).filter(|factor| *factor != 0.0);
    let frequency_scale = if scaling == Some("none") { 1.0 } else { factor.map_or(1.0, |factor| 1.0 / factor) };
    let yarn = scaling == Some("yarn");
    let original = file.integer("rope.scaling.original_context_length").unwrap_or(context);
    let attention_factor = file.real("rope.scaling.attn_factor").unwrap_or(1.0);
    let mut params = OpParams::default();
    let real = |value: f32| value.to_bits().cast_signed();
    params.0[1] = dimensions as i32;
    params.0[2] = mode;
    params.0[4] = original as i32;
    params.0[5] = real(file.real("rope.freq_base").unwrap_or(10_000.0));
    params.0[6] = real(frequency_scale);
    params.0[7] = real(if yarn { 1.0 } else { 0.0 });
    params.0[8] = real(attention_factor);
    params.0[9] = real(file.real("rope.scaling.yarn_beta_fast").unwrap_or(32.0));
    params.0[10] = real(file.real("rope.scaling.yarn_beta_slow").unwrap_or(1.0));
    Some(params)
}
