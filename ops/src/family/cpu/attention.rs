//! Attention: for each query the mean of the values, weighted by the softmax of its products with the keys.
//!
//! Nothing of the size queries x keys is ever stored. Keys and values pass in blocks of [`BLOCK`]; each query keeps the largest
//! score so far, the sum of the weights relative to it, and the weighted sum of the values, and scales the two sums down when
//! a larger score turns up (the online softmax of arXiv 2112.05682).
//!
//! Keys and values are read as they lie in memory, in any type, and become f32 once per block. All queries that meet the same
//! keys go through a block together: the query heads of a group that shares its keys and values, times some tokens. With up
//! to [`few::ROWS`] such rows (a decoded token) vectors run along the head ([`few`]); with more they run across
//! the rows ([`panel`]), so that neither keys nor values are ever transposed. Long caches are cut so that every thread
//! has work even for a single token; the parts are then merged.
//!
//! A block that the mask forbids for all rows of a tile is not read.

mod few;
mod half;
mod mask;
mod matmul;
mod panel;
mod tile;

use super::exp::exp;
use crate::tensor::Tensor;
use aie_hal::HostFunctionError;
use rayon::prelude::*;
use tile::{Finished, Tile};

/// Keys that pass together.
const BLOCK: usize = 64;
/// Rows (query heads of a group times tokens) of a tile, unless one token has more.
const TILE_ROWS: usize = 64;
/// As [`TILE_ROWS`] for quantised keys or values, whose decoding costs more.
const TILE_ROWS_QUANTISED: usize = 192;
/// A part of a cache that is cut for the sake of threads has at least so many keys.
const SMALLEST_PART: usize = 2 * BLOCK;
/// Below this many multiply-adds the calling thread works alone.
const PARALLEL_WORK: usize = 512 * 1024;

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
    fn slope(&self, head: usize) -> f32 {
        alibi_slope(self.max_bias, self.q.ne[2], head)
    }

    /// Query heads that follow each other and share the heads of both keys and values.
    fn group(&self) -> usize {
        let heads = self.q.ne[2];
        let (mut a, mut b) = (heads / self.k.ne[2], heads / self.v.ne[2]);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    }

    /// Writes the result, f32 `[dv, heads, tokens, batch]` without gaps, to `output`, which has exactly its size. Uses all
    /// threads of the current rayon pool when the work is worth it.
    ///
    /// # Errors
    /// [`HostFunctionError::Data`], naming `kernel`, when rows of keys or values are not whole blocks.
    pub fn run(&self, kernel: &str, sources: Sources, output: &mut [u8]) -> Result<(), HostFunctionError> {
        let [dk, tokens, heads, batch] = self.q.ne;
        let (keys, dv, group) = (self.k.ne[1], self.v.ne[0], self.group());
        let groups = heads / group;
        let quantised = self.k.dtype.is_quantised() || self.v.dtype.is_quantised();
        let tile_rows = if quantised { TILE_ROWS_QUANTISED } else { TILE_ROWS };
        let tile_tokens = if group * tokens <= few::ROWS { tokens } else { (tile_rows / group).clamp(1, tokens) };
        let tiles = tokens.div_ceil(tile_tokens);
        let items = batch * groups * tiles;

        let work = [heads, batch, tokens, keys].iter().fold(dk + dv, |product, n| product.saturating_mul(*n));
        let threads = if work < PARALLEL_WORK { 1 } else { rayon::current_num_threads() };
        let wanted = if threads > 1 { (2 * threads).div_ceil(items) } else { 1 };
        let part = keys.div_ceil(wanted.min(keys / SMALLEST_PART).max(1)).max(1).next_multiple_of(BLOCK);
        let parts = keys.div_ceil(part).max(1);

        let tile = |item: usize, part_index: usize| {
            let (first, index) = (item % tiles * tile_tokens, item / tiles);
            Tile {
                attention: self,
                sources,
                batch: index / groups,
                heads: index % groups * group..(index % groups + 1) * group,
                tokens: first..(first + tile_tokens).min(tokens),
                keys: part_index * part..((part_index + 1) * part).min(keys),
            }
        };
        let undecoded = || HostFunctionError::Data {
            kernel: kernel.to_owned(),
            reason: format!("keys of {} or values of {} cannot be decoded", self.k.dtype, self.v.dtype),
        };

        // The result of a group of heads for one token is one piece of memory; a tile writes some of them.
        let mut rows: Vec<Vec<&mut [u8]>> = (0..items).map(|_| Vec::with_capacity(tile_tokens)).collect();
        for (index, piece) in output.chunks_exact_mut(group * dv * 4).enumerate() {
            let (group, token, batch) = (index % groups, index / groups % tokens, index / groups / tokens);
            rows[(batch * groups + group) * tiles + token / tile_tokens].push(piece);
        }

        if parts == 1 {
            let one = |(item, mut rows): (usize, Vec<&mut [u8]>)| {
                let tile = tile(item, 0);
                let decoded = tile.compute(&mut |row, finished| {
                    let (token, head) = (row / group, row % group);
                    let target = &mut rows[token][head * dv * 4..(head + 1) * dv * 4];
                    finished.write(self.sink(sources, tile.heads.start + head), target);
                });
                if decoded { Ok(()) } else { Err(undecoded()) }
            };
            if threads == 1 || items == 1 {
                return rows.into_iter().enumerate().try_for_each(one);
            }
            // Causal masks make later tiles the longer ones: they start first, so that no thread is left with one at the end.
            let mut rows: Vec<_> = rows.into_iter().enumerate().collect();
            rows.sort_by_key(|(item, _)| std::cmp::Reverse(item % tiles));
            return rows.into_par_iter().with_max_len(1).try_for_each(one);
        }

        let partial: Vec<Option<Vec<f32>>> = (0..items * parts)
            .into_par_iter()
            .with_max_len(1)
            .map(|index| {
                let tile = tile(index / parts, index % parts);
                // A row: its maximum, its sum, its values.
                let mut states = vec![0.0; tile.rows() * (dv + 2)];
                let decoded = tile.compute(&mut |row, finished| {
                    let state = &mut states[row * (dv + 2)..(row + 1) * (dv + 2)];
                    (state[0], state[1]) = (finished.max, finished.sum);
                    state[2..].copy_from_slice(finished.values);
                });
                decoded.then_some(states)
            })
            .collect();
        let partial: Vec<Vec<f32>> = partial.into_iter().collect::<Option<_>>().ok_or_else(undecoded)?;
        let mut values = vec![0.0; dv];
        for (item, (mut rows, partial)) in rows.into_iter().zip(partial.chunks(parts)).enumerate() {
            let head = item / tiles % groups * group;
            for row in 0..partial[0].len() / (dv + 2) {
                let states = partial.iter().map(|part| &part[row * (dv + 2)..(row + 1) * (dv + 2)]);
                let (max, sum) = merge(states, &mut values);
                let target = &mut rows[row / group][row % group * dv * 4..(row % group + 1) * dv * 4];
                Finished { max, sum, values: &values }.write(self.sink(sources, head + row % group), target);
            }
        }
        Ok(())
    }

    fn sink(&self, sources: Sources, head: usize) -> Option<f32> {
        let bytes = sources.sinks?.as_chunks::<4>().0;
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

/// Merges what the parts of a cache gave for a row: the values' sums go to `values`, maximum and sum are returned.
fn merge<'a>(states: impl Iterator<Item = &'a [f32]> + Clone, values: &mut [f32]) -> (f32, f32) {
    let max = states.clone().fold(f32::NEG_INFINITY, |max, state| max.max(state[0]));
    values.fill(0.0);
    let mut sum = 0.0;
    for state in states.filter(|state| state[0] > f32::NEG_INFINITY) {
        let factor = exp(state[0] - max);
        sum += state[1] * factor;
        for (value, part) in values.iter_mut().zip(&state[2..]) {
            *value += part * factor;
        }
    }
    (max, sum)
}
