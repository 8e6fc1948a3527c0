//! Many rows: vectors run across the rows of panels, so that scores, weights and sums are kept transposed.
//!
//! The first product is keys x queries, the second values x weights; both read keys and values one element at a time, for all
//! lanes, and so take them as they lie. Only queries are transposed, and the results, once per tile.

use super::mask::{Effect, Mask};
use super::matmul::{Left, PADDING, multiply};
use super::tile::{BLOCK, Emit, Finished, Tile};
use crate::family::cpu::exp::{exp, tanh};
use pulp::Simd;

const PANEL: usize = 64;

/// What a thread keeps.
#[derive(Debug, Default)]
pub struct Buffers {
    panels: Vec<Panel>,
    keys: Vec<f32>,
    values: Vec<f32>,
    weights: Vec<f32>,
    row: Vec<f32>,
    mask: Mask,
}

/// Some rows, one in each lane.
#[derive(Debug, Default)]
struct Panel {
    /// The first of the tile's rows, and how many.
    first: usize,
    rows: usize,
    /// Lanes: the rows, padded.
    width: usize,
    /// Element d of the queries of all lanes from `d * width` on.
    queries: Vec<f32>,
    /// The same for the sums of the values.
    sums: Vec<f32>,
    slopes: Vec<f32>,
    max: Vec<f32>,
    total: Vec<f32>,
}

impl Panel {
    #[inline(always)]
    fn start(&mut self, tile: &Tile, first: usize) {
        let attention = tile.attention;
        (self.first, self.rows) = (first, (tile.rows() - first).min(PANEL));
        self.width = self.rows.next_multiple_of(PADDING);
        let width = self.width;
        self.queries.clear();
        self.queries.resize(attention.k.ne[0] * width, 0.0);
        self.slopes.clear();
        self.slopes.resize(width, 0.0);
        for lane in 0..self.rows {
            let line = self.queries[lane..].iter_mut().step_by(width);
            for (target, element) in line.zip(tile.query(first + lane)) {
                *target = element;
            }
            self.slopes[lane] = attention.slope(tile.place(first + lane).0);
        }
        self.sums.clear();
        self.sums.resize(attention.v.ne[0] * width, 0.0);
        self.max.clear();
        self.max.resize(width, f32::NEG_INFINITY);
        self.total.clear();
        self.total.resize(width, 0.0);
    }

    /// Adds the mask to the scores, key by key.
    #[inline(always)]
    fn add_mask(&self, mask: &Mask, scores: &mut [f32]) {
        for lane in 0..self.rows {
            let column = scores[lane..].iter_mut().step_by(self.width);
            match mask.effect(self.first + lane) {
                Effect::None => {}
                Effect::Forbids => column.for_each(|score| *score = f32::NEG_INFINITY),
                Effect::Adds => {
                    let slope = self.slopes[lane];
                    for (score, mask) in column.zip(mask.line(self.first + lane)) {
                        let sum = *score + slope * mask;
                        *score = if *mask == f32::NEG_INFINITY { *mask } else { sum };
                    }
                }
            }
        }
    }

    /// Turns scores into weights relative to the largest score so far, and scales what was summed relative to another.
    #[inline(always)]
    fn weigh(&mut self, scores: &mut [f32]) {
        for start in (0..self.width).step_by(PADDING) {
            let chunk = start..start + PADDING;
            let mut old = [0.0; PADDING];
            old.copy_from_slice(&self.max[chunk.clone()]);
            let mut max = old;
            for line in scores.chunks_exact(self.width) {
                for (max, score) in max.iter_mut().zip(&line[chunk.clone()]) {
                    *max = if *score > *max { *score } else { *max };
                }
            }
            // Where everything is forbidden so far, weights are exp(-inf - 0).
            let base = max.map(
                #[inline(always)]
                |max| if max == f32::NEG_INFINITY { 0.0 } else { max },
            );
            let mut sum = [0.0; PADDING];
            for line in scores.chunks_exact_mut(self.width) {
                for ((score, base), sum) in line[chunk.clone()].iter_mut().zip(&base).zip(&mut sum) {
                    *score = exp(*score - base);
                    *sum += *score;
                }
            }
            let mut scale = [0.0; PADDING];
            for ((scale, old), base) in scale.iter_mut().zip(&old).zip(&base) {
                *scale = exp(old - base);
            }
            for ((total, scale), sum) in self.total[chunk.clone()].iter_mut().zip(&scale).zip(&sum) {
                *total = *total * scale + sum;
            }
            if old != max {
                self.max[chunk.clone()].copy_from_slice(&max);
                for line in self.sums.chunks_exact_mut(self.width) {
                    for (sum, scale) in line[chunk.clone()].iter_mut().zip(&scale) {
                        *sum *= scale;
                    }
                }
            }
        }
    }
}

/// Computes a tile; false when keys or values could not be decoded.
#[inline(always)]
pub fn run<S: Simd>(simd: S, tile: &Tile, buffers: &mut Buffers, emit: &mut Emit<'_>) -> bool {
    let attention = tile.attention;
    let (dk, dv, rows) = (attention.k.ne[0], attention.v.ne[0], tile.rows());
    let Buffers { panels, keys, values, weights, row, mask } = buffers;
    let count = rows.div_ceil(PANEL);
    if panels.len() < count {
        panels.resize_with(count, Panel::default);
    }
    let panels = &mut panels[..count];
    for (index, panel) in panels.iter_mut().enumerate() {
        panel.start(tile, index * PANEL);
    }
    keys.resize(BLOCK * dk, 0.0);
    values.resize(BLOCK * dv, 0.0);
    weights.resize(BLOCK * PANEL, 0.0);

    for first in tile.keys.clone().step_by(BLOCK) {
        let count = (tile.keys.end - first).min(BLOCK);
        mask.load(tile, first..first + count);
        if mask.forbids_all(0..rows) {
            continue;
        }
        if !(tile.load_keys(first, count, dk, keys) && tile.load_values(first, count, dv, values)) {
            return false;
        }
        let left = Left { data: values, row: 1, step: dv };
        for panel in panels.iter_mut().filter(|panel| !mask.forbids_all(panel.first..panel.first + panel.rows)) {
            let width = panel.width;
            let weights = &mut weights[..count * width];
            let keys = Left { data: keys, row: dk, step: 1 };
            multiply::<S, false>(simd, keys, count, dk, &panel.queries, width, weights);
            if attention.softcap != 0.0 {
                for score in weights.iter_mut() {
                    *score = attention.softcap * tanh(*score);
                }
            }
            panel.add_mask(mask, weights);
            panel.weigh(weights);
            multiply::<S, true>(simd, left, dv, count, weights, width, &mut panel.sums);
        }
    }
    for panel in panels {
        for lane in 0..panel.rows {
            row.clear();
            row.extend(panel.sums[lane..].iter().step_by(panel.width));
            emit(panel.first + lane, Finished { max: panel.max[lane], sum: panel.total[lane], values: row });
        }
    }
    true
}
