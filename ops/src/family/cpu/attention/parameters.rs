//! What is asked for: the tensors of an attention, its parameters and their memory.

use crate::tensor::Tensor;

/// One attention: tensors, whose rows have no gaps but may lie anywhere, and parameters.
///
/// Requirements, which the caller has checked: q f32 `[dk, tokens, heads, batch]`; k `[dk, keys, k heads, k batch]` and v
/// `[dv, keys, v heads, v batch]` in f32, f16, bf16 or any quantised type; the heads and batches of k and v divide those of q,
/// head h uses head h / (heads / k heads); mask f16 `[>= keys, >= tokens, m2, m3]`, repeated over heads and batch;
/// sinks f32 `[>= heads]` without gaps. dk, heads and batch are not 0.
///
/// The weight of a key is the softmax over the keys of `cap(q.k scale) + slope(head) mask`, where `cap(x)` is
/// `softcap tanh(x / softcap)`, or x if `softcap` is 0, and slopes are ALiBi's for `max_bias`, or 1 if that is 0. A sink is one
/// more element of its head's softmax without a value. A query whose keys are all forbidden gives zeros.
#[derive(Debug, Clone)]
pub struct Attention {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Added to the scores.
    pub mask: Option<Tensor>,
    /// Factor of the scores.
    pub scale: f32,
    /// ALiBi's largest bias.
    pub max_bias: f32,
    /// Bound of the scores, or 0.
    pub softcap: f32,
}

/// The memory of the tensors of an [`Attention`], each at least its span.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// Queries.
    pub q: &'a [u8],
    /// Keys.
    pub k: &'a [u8],
    /// Values.
    pub v: &'a [u8],
    /// Mask, if the attention has one.
    pub mask: Option<&'a [u8]>,
    /// Sinks, if heads have them.
    pub sinks: Option<&'a [u8]>,
}

impl Attention {
    /// The factor of the mask for a head.
    pub(super) fn slope(&self, head: usize) -> f32 {
        alibi_slope(self.max_bias, self.q.ne[2], head)
    }

    /// Query heads that follow each other and share the heads of both keys and values.
    pub(super) fn group(&self) -> usize {
        let heads = self.q.ne[2];
        let (mut a, mut b) = (heads / self.k.ne[2], heads / self.v.ne[2]);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    }
}

impl Sources<'_> {
    pub(super) fn sink(&self, head: usize) -> Option<f32> {
        let bytes = self.sinks?.as_chunks::<4>().0;
        Some(f32::from_le_bytes(bytes[head]))
    }
}

/// ALiBi's slope of one of `heads` heads; 1 when `max_bias` is 0.
pub fn alibi_slope(max_bias: f32, heads: usize, head: usize) -> f32 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    // Heads beyond a power of two take the odd places of a series twice as dense. The powers are rounded as in ggml.
    let power = 1_usize << heads.ilog2();
    let base = |exponent: f32| (-max_bias * exponent / power as f32).exp2();
    if head < power { base(1.0).powf((head + 1) as f32) } else { base(0.5).powf((2 * (head - power) + 1) as f32) }
}
