//! Few rows: vectors run along the elements of a head.

use super::mask::{Effect, Mask};
use super::matmul::{Left, PADDING, dots, multiply};
use super::tile::{BLOCK, Emit, Finished, Tile};
use crate::family::cpu::exp::{exp, tanh};
use pulp::Simd;

/// Up to so many rows are few.
pub const ROWS: usize = 6;

/// What a thread keeps.
#[derive(Debug, Default)]
pub struct Buffers {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    sums: Vec<f32>,
    mask: Mask,
}

/// Computes a tile; false when keys or values could not be decoded.
#[inline(always)]
pub fn run<S: Simd>(simd: S, tile: &Tile, buffers: &mut Buffers, emit: &mut Emit<'_>) -> bool {
    let attention = tile.attention;
    let (dk, dv, rows) = (attention.k.ne[0], attention.v.ne[0], tile.rows());
    // Lengths of padded rows.
    let (long, wide) = (dk.next_multiple_of(PADDING), dv.next_multiple_of(PADDING));
    let Buffers { queries, keys, values, sums, mask } = buffers;
    queries.clear();
    for row in 0..rows {
        queries.extend(tile.query(row));
        queries.resize((row + 1) * long, 0.0);
    }
    keys.resize(BLOCK * long, 0.0);
    values.resize(BLOCK * wide, 0.0);
    sums.clear();
    sums.resize(rows * wide, 0.0);
    let mut states = [(f32::NEG_INFINITY, 0.0); ROWS];
    let slopes: [f32; ROWS] = std::array::from_fn(|row| attention.slope(tile.place(row).0));
    let mut scores = [[0.0; BLOCK]; ROWS];

    for first in tile.keys.clone().step_by(BLOCK) {
        let count = (tile.keys.end - first).min(BLOCK);
        mask.load(tile, first..first + count);
        if mask.forbids_all(0..rows) {
            continue;
        }
        if !tile.load_keys(first, count, long, keys) {
            return false;
        }
        let flat = scores.as_flattened_mut();
        dots(simd, keys, count.next_multiple_of(PADDING), queries, rows, long, flat, BLOCK);
        for row in 0..rows {
            let scores = &mut scores[row];
            let line = match mask.effect(row) {
                Effect::None => None,
                Effect::Adds => Some((mask.line(row), slopes[row])),
                Effect::Forbids => {
                    scores.fill(0.0);
                    continue;
                }
            };
            scores[count..].fill(f32::NEG_INFINITY);
            let scale = weigh(scores, attention.softcap, line, &mut states[row]);
            if scale != 1.0 {
                for sum in &mut sums[row * wide..(row + 1) * wide] {
                    *sum *= scale;
                }
            }
        }
        let weights = scores.as_flattened();
        if !tile.load_values(first, count, wide, values) {
            return false;
        }
        multiply::<S, true>(simd, Left { data: weights, row: BLOCK, step: 1 }, rows, count, values, wide, sums);
    }
    for (row, (max, sum)) in states.into_iter().take(rows).enumerate() {
        emit(row, Finished { max, sum, values: &sums[row * wide..row * wide + dv] });
    }
    true
}

/// Turns scores into weights relative to the largest score of the row so far. `state` is that and the sum of the weights.
/// Returns what earlier sums have to be multiplied with.
#[inline(always)]
fn weigh(scores: &mut [f32; BLOCK], softcap: f32, mask: Option<(&[f32], f32)>, state: &mut (f32, f32)) -> f32 {
    if softcap != 0.0 {
        for score in scores.iter_mut() {
            *score = softcap * tanh(*score);
        }
    }
    if let Some((mask, slope)) = mask {
        for (score, mask) in scores.iter_mut().zip(mask) {
            let sum = *score + slope * mask;
            *score = if *mask == f32::NEG_INFINITY { *mask } else { sum };
        }
    }
    let mut lanes = [f32::NEG_INFINITY; PADDING];
    for chunk in scores.as_chunks::<PADDING>().0 {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *lane = if *score > *lane { *score } else { *lane };
        }
    }
    let max = lanes.iter().fold(state.0, |a, b| a.max(*b));
    if max == f32::NEG_INFINITY {
        scores.fill(0.0);
        return 1.0;
    }
    let mut lanes = [0.0; PADDING];
    for chunk in scores.as_chunks_mut::<PADDING>().0 {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *score = exp(*score - max);
            *lane += *score;
        }
    }
    let scale = if max > state.0 { exp(state.0 - max) } else { 1.0 };
    *state = (max, state.1 * scale + lanes.iter().sum::<f32>());
    scale
}
