//! The convolution over the last tokens of each channel, on the CPU.
//!
//! Tokens are innermost in the input and channels in the output. With many tokens, tiles of 16 channels by 16 tokens are computed
//! along the tokens, where loads are contiguous, and turned over when they are written; with few, channel by channel, where a
//! window of a common size is a small vector of its own.

use super::super::prelude::*;
use super::CONV;
use rayon::prelude::*;

/// Channels and tokens of a tile.
const TILE: usize = 16;

/// The layouts of a convolution that passed the rules.
pub struct Convolution {
    /// Tokens with those before the first (window - 1 + tokens), channels, sequences.
    pub x: Tensor,
    /// Window, channels.
    pub weights: Tensor,
    /// Channels, tokens, sequences.
    pub out: Tensor,
}

impl Convolution {
    /// Computes all of it.
    ///
    /// # Errors
    /// [`HostFunctionError::Arguments`] when rows of the result overlap.
    pub fn run(&self, x: &[u8], weights: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let [window, channels, ..] = self.weights.ne;
        let mut dense = Vec::with_capacity(window * channels);
        let mut scratch = Vec::new();
        for channel in 0..channels {
            let offset = channel * self.weights.nb[1];
            dense.extend_from_slice(read(&self.weights, weights, offset, 0, window, &mut scratch));
        }
        let Some(mut rows) = disjoint_rows(&self.out, output) else {
            let reason = "rows of the result overlap".to_owned();
            return Err(HostFunctionError::Arguments { kernel: CONV.to_owned(), reason });
        };
        let work = self.out.elements().saturating_mul(window);
        let share = rows.len().div_ceil(rayon::current_num_threads() * 2).next_multiple_of(TILE);
        let run = |rows: &mut [(Row, &mut [u8])]| {
            vectorised(
                #[inline(always)]
                || self.tokens(x, &dense, rows),
            );
        };
        if work < PARALLEL_WORK || rows.len() <= share {
            run(&mut rows);
        } else {
            rows.par_chunks_mut(share).for_each(run);
        }
        Ok(())
    }

    /// Some rows of the result; a row is a token.
    #[inline(always)]
    fn tokens(&self, x: &[u8], weights: &[f32], rows: &mut [(Row, &mut [u8])]) {
        let mut scratch = Vec::new();
        let mut first = 0;
        while first < rows.len() {
            let Row([token, sequence, _]) = rows[first].0;
            let expected = |i: usize| Row([token + i, sequence, 0]);
            let run = rows[first..].iter().take(TILE).enumerate().take_while(|(i, (row, _))| *row == expected(*i));
            let count = run.count();
            let run = &mut rows[first..first + count];
            if count == TILE && self.x.nb[0] == 4 {
                self.tile(x, weights, token, sequence, run);
            } else {
                for (i, (_, target)) in run.iter_mut().enumerate() {
                    write(
                        DataType::F32,
                        target,
                        &mut scratch,
                        #[inline(always)]
                        |y| self.token(x, weights, token + i, sequence, y),
                    );
                }
            }
            first += count;
        }
    }

    /// A full tile of tokens, all channels.
    #[inline(always)]
    fn tile(&self, x: &[u8], weights: &[f32], token: usize, sequence: usize, rows: &mut [(Row, &mut [u8])]) {
        let [window, channels, ..] = self.weights.ne;
        let mut tile = [[0.0_f32; TILE]; TILE];
        for first in (0..channels).step_by(TILE) {
            let count = TILE.min(channels - first);
            for (i, sums) in tile.iter_mut().enumerate().take(count) {
                let channel = first + i;
                let start = token * 4 + channel * self.x.nb[1] + sequence * self.x.nb[2];
                let source = x[start..start + (window - 1 + TILE) * 4].as_chunks::<4>().0;
                *sums = [0.0; TILE];
                for (k, weight) in weights[channel * window..(channel + 1) * window].iter().enumerate() {
                    for (sum, value) in sums.iter_mut().zip(&source[k..k + TILE]) {
                        *sum += weight * f32::from_le_bytes(*value);
                    }
                }
            }
            for (j, (_, target)) in rows.iter_mut().enumerate() {
                let target = target[first * 4..(first + count) * 4].as_chunks_mut::<4>().0;
                for (target, sums) in target.iter_mut().zip(&tile) {
                    *target = sums[j].to_le_bytes();
                }
            }
        }
    }

    /// One token, all channels.
    #[inline(always)]
    fn token(&self, x: &[u8], weights: &[f32], token: usize, sequence: usize, y: &mut [f32]) {
        let window = self.weights.ne[0];
        let first = token * self.x.nb[0] + sequence * self.x.nb[2];
        if self.x.nb[0] == 4 {
            match window {
                3 => return dots::<3>(x, first, self.x.nb[1], weights, y),
                4 => return dots::<4>(x, first, self.x.nb[1], weights, y),
                _ => {}
            }
        }
        for (channel, (y, weights)) in y.iter_mut().zip(weights.chunks_exact(window)).enumerate() {
            let start = first + channel * self.x.nb[1];
            let value = |k: usize| load_one(DataType::F32, &x[start + k * self.x.nb[0]..]);
            *y = weights.iter().enumerate().map(|(k, weight)| weight * value(k)).sum();
        }
    }
}

/// A dot product of `N` elements for each channel.
#[inline(always)]
fn dots<const N: usize>(x: &[u8], first: usize, stride: usize, weights: &[f32], y: &mut [f32]) {
    for (channel, (y, weights)) in y.iter_mut().zip(weights.as_chunks::<N>().0).enumerate() {
        let start = first + channel * stride;
        let source = x[start..start + N * 4].as_chunks::<4>().0;
        let mut sum = 0.0;
        for (weight, value) in weights.iter().zip(source) {
            sum += weight * f32::from_le_bytes(*value);
        }
        *y = sum;
    }
}
