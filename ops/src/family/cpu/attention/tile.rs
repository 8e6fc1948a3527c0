//! A tile: the rows (heads of a group times tokens) that go through some keys together, and what they read.

use super::super::element::{load, write};
use super::super::exp::exp;
use super::half::Halves;
use super::parameters::{Attention, Sources};
use crate::tensor::{DataType, Tensor};
use std::ops::Range;

/// Keys that pass together.
pub const BLOCK: usize = 64;

/// Part of an attention. Row r is head `r % heads.len()` of token `r / heads.len()`.
pub struct Tile<'a> {
    pub attention: &'a Attention,
    pub sources: Sources<'a>,
    pub batch: usize,
    pub heads: Range<usize>,
    pub tokens: Range<usize>,
    pub keys: Range<usize>,
}

/// What a row has after its last key.
pub struct Finished<'a> {
    /// The largest score; minus infinity if all were forbidden.
    pub max: f32,
    /// The sum of the weights relative to it.
    pub sum: f32,
    /// The weighted sum of the values.
    pub values: &'a [f32],
}

impl Finished<'_> {
    /// Writes the mean of the values as f32, given the head's sink.
    pub fn write(&self, sink: Option<f32>, target: &mut [u8]) {
        let mut factor = 1.0;
        let mut sum = self.sum;
        if let Some(sink) = sink {
            let max = self.max.max(sink);
            factor = if self.max == f32::NEG_INFINITY { 0.0 } else { exp(self.max - max) };
            sum = sum * factor + if sink == f32::NEG_INFINITY { 0.0 } else { exp(sink - max) };
        }
        let scale = if sum == 0.0 { 0.0 } else { factor / sum };
        write(DataType::F32, target, &mut Vec::new(), |target| {
            for (target, value) in target.iter_mut().zip(self.values) {
                *target = value * scale;
            }
        });
    }
}

/// Receives the rows of a tile when they are finished, each once.
pub type Emit<'e> = dyn FnMut(usize, Finished) + 'e;

impl Tile<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.heads.len() * self.tokens.len()
    }

    /// Head and token of a row, counted in the whole attention.
    pub fn place(&self, row: usize) -> (usize, usize) {
        (self.heads.start + row % self.heads.len(), self.tokens.start + row / self.heads.len())
    }

    /// The factor that queries carry: the scale, and the inverse of the cap.
    fn factor(&self) -> f32 {
        let Attention { scale, softcap, .. } = *self.attention;
        if softcap == 0.0 { scale } else { scale / softcap }
    }

    /// The elements of a row's query, scaled.
    #[inline(always)]
    pub fn query(&self, row: usize) -> impl Iterator<Item = f32> {
        let Tensor { ne, nb, .. } = self.attention.q;
        let (head, token) = self.place(row);
        let start = token * nb[1] + head * nb[2] + self.batch * nb[3];
        let factor = self.factor();
        let elements = self.sources.q[start..start + ne[0] * 4].as_chunks::<4>().0;
        elements.iter().map(move |element| f32::from_le_bytes(*element) * factor)
    }

    /// Reads `count` keys from `first` on, one each `stride` elements.
    #[inline(always)]
    pub fn load_keys(&self, first: usize, count: usize, stride: usize, target: &mut [f32]) -> bool {
        let k = &self.attention.k;
        let start = self.offset(k) + first * k.nb[1];
        self.load_rows(k, &self.sources.k[start..], count, k.ne[0], stride, target)
    }

    /// Reads `count` values from `first` on, one each `stride` elements.
    #[inline(always)]
    pub fn load_values(&self, first: usize, count: usize, stride: usize, target: &mut [f32]) -> bool {
        let v = &self.attention.v;
        let start = self.offset(v) + first * v.nb[1];
        self.load_rows(v, &self.sources.v[start..], count, v.ne[0], stride, target)
    }

    /// Where the head and the batch of keys or values start that the tile's queries use.
    fn offset(&self, tensor: &Tensor) -> usize {
        let q = &self.attention.q;
        let head = self.heads.start / (q.ne[2] / tensor.ne[2]);
        let batch = self.batch / (q.ne[3] / tensor.ne[3]);
        head * tensor.nb[2] + batch * tensor.nb[3]
    }

    /// Reads `count` rows of `length` elements; what is between them in `target` becomes zero.
    #[inline(always)]
    fn load_rows(
        &self,
        tensor: &Tensor,
        source: &[u8],
        count: usize,
        length: usize,
        stride: usize,
        target: &mut [f32],
    ) -> bool {
        let bytes = tensor.dtype.row_bytes(length);
        let distance = tensor.nb[1];
        if tensor.dtype == DataType::F16 {
            Halves { bytes: source, rows: count, length, distance }.load(stride, target);
            return true;
        }
        for (row, target) in target.chunks_mut(stride).take(count).enumerate() {
            let (values, padding) = target.split_at_mut(length);
            if !load(tensor.dtype, &source[row * distance..row * distance + bytes], values) {
                return false;
            }
            padding.fill(0.0);
        }
        true
    }
}
