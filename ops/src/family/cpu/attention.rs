//! Attention: for each query the mean of the values, weighted by the softmax of its products with the keys.
//!
//! Nothing of the size queries x keys is ever stored. Keys and values pass in blocks of [`tile::BLOCK`]; each query keeps the largest
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
mod parameters;
mod tile;

use super::exp::exp;
use aie_hal::HostFunctionError;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::cell::RefCell;
use tile::{BLOCK, Emit, Finished, Tile};

pub use parameters::{Attention, Sources, alibi_slope};

/// Rows (query heads of a group times tokens) of a tile, unless one token has more.
const TILE_ROWS: usize = 64;
/// As [`TILE_ROWS`] for quantised keys or values, whose decoding costs more.
const TILE_ROWS_QUANTISED: usize = 192;
/// A part of a cache that is cut for the sake of threads has at least so many keys.
const SMALLEST_PART: usize = 2 * BLOCK;
/// Below this many multiply-adds the calling thread works alone.
const PARALLEL_WORK: usize = 512 * 1024;

thread_local! {
    /// Kept from call to call: a decoded token asks for the same buffers in every layer.
    static BUFFERS: RefCell<(few::Buffers, panel::Buffers)> = RefCell::default();
}

struct Run<'t, 'a, 'e, 'f> {
    tile: &'t Tile<'a>,
    buffers: &'t mut (few::Buffers, panel::Buffers),
    emit: &'e mut Emit<'f>,
}

impl WithSimd for Run<'_, '_, '_, '_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let (few, panel) = self.buffers;
        if self.tile.rows() <= few::ROWS {
            few::run(simd, self.tile, few, self.emit)
        } else {
            panel::run(simd, self.tile, panel, self.emit)
        }
    }
}

/// Computes all rows of a tile. Returns false when keys or values could not be decoded.
fn compute(tile: &Tile, emit: &mut Emit<'_>) -> bool {
    // The dispatch is inside: closures that a library function calls are not compiled for the vector unit. Nothing it runs
    // calls back into the thread pool, so this thread does not use its buffers yet.
    BUFFERS.with_borrow_mut(|buffers| pulp::Arch::new().dispatch(Run { tile, buffers, emit }))
}

impl Attention {
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
                let decoded = compute(&tile, &mut |row, finished| {
                    let (token, head) = (row / group, row % group);
                    let target = &mut rows[token][head * dv * 4..(head + 1) * dv * 4];
                    finished.write(sources.sink(tile.heads.start + head), target);
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
                let decoded = compute(&tile, &mut |row, finished| {
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
                Finished { max, sum, values: &values }.write(sources.sink(head + row % group), target);
            }
        }
        Ok(())
    }
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
