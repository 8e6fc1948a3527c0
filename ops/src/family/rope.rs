//! ROPE: rotary position embedding.
//!
//! Pairs of elements of a row are turned by an angle that depends on the position and the pair. Which elements make a pair
//! and which position counts depends on the mode. The angles of a position are the same for all heads and batches, so they are
//! computed once. They are accumulated in f32 by repeated multiplication as in ggml, because the rounding errors of large
//! positions would show otherwise.

use super::cpu::element::{read_row, write};
use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::{PARALLEL_WORK, Row, for_each_row};
use super::rules::{FLOATS, addressable, dense_rows, require, same_shape, source, wrong_type};
use crate::design::{Design, rowwise};
use crate::node::{Node, OpParams};
use crate::operation::{Environment, Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, Kernel};
use rayon::prelude::*;
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Rope];

const NAME: &str = "ROPE";

/// ggml's modes (`GGML_ROPE_TYPE_*`). The bit of M-RoPE is set in all modes with several positions.
const NORMAL: i32 = 0;
const NEOX: i32 = 2;
const MROPE: i32 = 8;
const VISION: i32 = 24;
const IMROPE: i32 = 40;

#[derive(Debug)]
struct Rope;

impl Operation for Rope {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 3)?;
        let (a, positions, out) = (source(NAME, node, 0)?, source(NAME, node, 1)?, &node.output);
        if !FLOATS.contains(&a.dtype) {
            return wrong_type(NAME, "source 0", a.dtype, "f32, f16, bf16");
        }
        if out.dtype != a.dtype {
            return wrong_type(NAME, "the result", out.dtype, "the type of source 0");
        }
        if positions.dtype != DataType::I32 {
            return wrong_type(NAME, "the positions", positions.dtype, "i32");
        }
        same_shape(NAME, "source 0", a, out)?;
        dense_rows(NAME, out)?;
        let rotation = Rotation::new(&node.params);
        rotation.check(a.ne[0])?;
        let needed = a.ne[2] * if rotation.several_positions() { 4 } else { 1 };
        let dense = positions.ne[0] <= 1 || positions.nb[0] == 4;
        require(NAME, dense && positions.ne[0] >= needed, || {
            format!("{} positions given, {needed} needed, without gaps", positions.ne[0])
        })?;
        if let Some(factors) = node.source(2) {
            if !FLOATS.contains(&factors.dtype) {
                return wrong_type(NAME, "the frequency factors", factors.dtype, "f32, f16, bf16");
            }
            let pairs = rotation.pairs(a.ne[0]);
            require(NAME, factors.ne[0] >= pairs, || format!("{} frequency factors given, {pairs} needed", factors.ne[0]))?;
        }
        Ok(())
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        rowwise(NAME, node, arch, 1)
    }

    fn reference(&self, node: &Node, _: &Environment) -> Result<Arc<dyn Kernel>, Unsupported> {
        self.check(node)?;
        let (Some(a), Some(positions)) = (Argument::of(node, 0), Argument::of(node, 1)) else {
            unreachable!("check finds both sources");
        };
        let (factors, out) = (Argument::of(node, 2), node.output);
        let rotation = Rotation::new(&node.params);
        let pairs = rotation.pairs(out.ne[0]);
        Ok(kernel(node, None, move |inputs, output| {
            let mut scratch = Vec::new();
            let factors = factors.map(|factors| read_row(&factors, inputs, 0, &mut scratch));
            let turns = rotation.turns(&positions.tensor, inputs[positions.position], out.ne[2], pairs, factors);
            for_each_row(
                &out,
                output,
                out.elements() * 2,
                #[inline(always)]
                |scratch, row, target| {
                    let Row([_, position, _]) = row;
                    let x = read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a);
                    let turns = &turns[position * pairs..][..pairs];
                    write(
                        out.dtype,
                        target,
                        &mut scratch.out,
                        #[inline(always)]
                        |y| rotation.apply(turns, x, y),
                    );
                    Ok(())
                },
            )
        }))
    }
}

/// Cosine and sine of an angle, times the magnitude.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    cos: f32,
    sin: f32,
}

/// The parameters of a node.
#[derive(Debug, Clone)]
struct Rotation {
    dimensions: i32,
    mode: i32,
    context: i32,
    base: f32,
    scale: f32,
    extrapolation: f32,
    magnitude: f32,
    beta_fast: f32,
    beta_slow: f32,
    sections: [i32; 4],
    /// First rotated element of a row.
    offset: i32,
}

impl Rotation {
    fn new(params: &OpParams) -> Self {
        Self {
            dimensions: params.int(1),
            mode: params.int(2),
            context: params.int(4),
            base: params.float(5),
            scale: params.float(6),
            extrapolation: params.float(7),
            magnitude: params.float(8),
            beta_fast: params.float(9),
            beta_slow: params.float(10),
            sections: [params.int(11), params.int(12), params.int(13), params.int(14)],
            offset: params.int(15),
        }
    }

    fn several_positions(&self) -> bool {
        self.mode & MROPE != 0
    }

    fn check(&self, row: usize) -> Result<(), Unsupported> {
        let Self { dimensions, mode, sections, offset, .. } = self;
        require(NAME, matches!(*mode, NORMAL | NEOX | MROPE | VISION | IMROPE), || {
            format!("mode {mode} is not known; possible: 0 (normal), 2 (NeoX), 8 (M-RoPE), 24 (vision), 40 (interleaved M-RoPE)")
        })?;
        let fits = match (usize::try_from(*dimensions), usize::try_from(*offset)) {
            (Ok(d), Ok(o)) => d % 2 == 0 && o % 2 == 0 && o.checked_add(d).is_some_and(|end| end <= row),
            _ => false,
        };
        require(NAME, fits && row.is_multiple_of(2), || {
            format!("{dimensions} dimensions from {offset} do not fit rows of {row} elements; all must be even")
        })?;
        if self.several_positions() {
            let sum = sections.iter().try_fold(0_i32, |sum, section| sum.checked_add(*section));
            let sound = sections.iter().all(|section| *section >= 0) && sections[..3].iter().any(|section| *section > 0);
            let short = sum.and_then(|sum| usize::try_from(sum).ok()).is_some_and(|sum| sum <= row);
            require(NAME, sound && short, || {
                format!("sections {sections:?} must not be negative, one of the first three positive, their sum at most {row}")
            })?;
        }
        if *mode == VISION {
            let half = usize::try_from(*dimensions).is_ok_and(|d| d * 2 == row);
            require(NAME, half && *offset == 0, || {
                format!("the vision mode rotates rows of twice the dimensions, not {row} with {dimensions} from {offset}")
            })?;
        }
        Ok(())
    }

    /// Rotated pairs of a row of `row` elements.
    fn pairs(&self, row: usize) -> usize {
        if self.mode == VISION { row / 2 } else { usize::try_from(self.dimensions).unwrap_or(0) / 2 }
    }

    /// The turns of every position, pairs innermost.
    fn turns(&self, layout: &Tensor, positions: &[u8], count: usize, pairs: usize, factors: Option<&[f32]>) -> Vec<Turn> {
        let position = |section: usize, i: usize| {
            let at = (section * count + i) * layout.dtype.block_bytes();
            i32::from_le_bytes([positions[at], positions[at + 1], positions[at + 2], positions[at + 3]]) as f32
        };
        let ramp = Ramp::new(self);
        let fill = |(i, turns): (usize, &mut [Turn])| {
            if self.several_positions() {
                let start = [position(0, i), position(1, i), position(2, i), position(3, i)];
                self.fill_sections(start, &ramp, factors, turns);
            } else {
                self.fill(position(0, i), &ramp, factors, turns);
            }
        };
        let mut turns = vec![Turn::default(); count * pairs];
        if pairs == 0 {
            return turns;
        }
        // A sine and a cosine cost as much as dozens of simple operations.
        if turns.len().saturating_mul(32) < PARALLEL_WORK {
            turns.chunks_exact_mut(pairs).enumerate().for_each(fill);
        } else {
            turns.par_chunks_exact_mut(pairs).enumerate().for_each(fill);
        }
        turns
    }

    /// By how much the angle shrinks from pair to pair.
    fn step(&self) -> f32 {
        self.base.powf(-2.0 / self.dimensions as f32)
    }

    fn fill(&self, position: f32, ramp: &Ramp, factors: Option<&[f32]>, turns: &mut [Turn]) {
        let step = self.step();
        let mut theta = position;
        for (pair, turn) in turns.iter_mut().enumerate() {
            *turn = ramp.turn(theta / factors.map_or(1.0, |factors| factors[pair]), pair);
            theta *= step;
        }
    }

    /// With a position each for time, height, width and one more: sections of the pairs follow one of them.
    fn fill_sections(&self, start: [f32; 4], ramp: &Ramp, factors: Option<&[f32]>, turns: &mut [Turn]) {
        let step = self.step();
        let [t, h, w, e] = self.sections.map(|section| usize::try_from(section).unwrap_or(0));
        let bounds = [0, t, t + h, t + h + w];
        let total = t + h + w + e;
        let mut theta = start;
        for (pair, turn) in turns.iter_mut().enumerate() {
            let sector = pair % total;
            if self.mode == VISION {
                // Each section begins anew. Where sections are empty the first of equal bounds counts.
                if let Some(section) = bounds.iter().position(|bound| *bound == sector) {
                    theta[section] = start[section];
                }
            }
            let section = if self.mode == IMROPE {
                match sector % 3 {
                    1 if sector < 3 * h => 1,
                    2 if sector < 3 * w => 2,
                    0 if sector < 3 * t => 0,
                    _ => 3,
                }
            } else if sector < t {
                0
            } else if sector < t + h {
                1
            } else if sector < t + h + w {
                2
            } else {
                3
            };
            *turn = ramp.turn(theta[section] / factors.map_or(1.0, |factors| factors[pair]), pair);
            for theta in &mut theta {
                *theta *= step;
            }
        }
    }

    /// Rotates a row; what is outside the rotated range is copied.
    #[inline(always)]
    fn apply(&self, turns: &[Turn], x: &[f32], y: &mut [f32]) {
        let start = usize::try_from(self.offset).unwrap_or(0);
        let end = start + 2 * turns.len();
        y[..start].copy_from_slice(&x[..start]);
        y[end..].copy_from_slice(&x[end..]);
        let (x, y) = (&x[start..end], &mut y[start..end]);
        if self.mode == NORMAL {
            for ((x, y), turn) in x.as_chunks::<2>().0.iter().zip(y.as_chunks_mut::<2>().0).zip(turns) {
                *y = [x[0] * turn.cos - x[1] * turn.sin, x[0] * turn.sin + x[1] * turn.cos];
            }
        } else {
            let (x0, x1) = x.split_at(turns.len());
            let (y0, y1) = y.split_at_mut(turns.len());
            for ((((x0, x1), y0), y1), turn) in x0.iter().zip(x1).zip(y0).zip(y1).zip(turns) {
                *y0 = x0 * turn.cos - x1 * turn.sin;
                *y1 = x0 * turn.sin + x1 * turn.cos;
            }
        }
    }
}

/// YaRN: low frequencies are interpolated, high ones kept, with a ramp between, and the magnitude makes up for it. Without
/// (extrapolation 0) all are interpolated by the same scale.
struct Ramp {
    scale: f32,
    extrapolation: f32,
    magnitude: f32,
    low: f32,
    high: f32,
}

impl Ramp {
    fn new(rotation: &Rotation) -> Self {
        let dimensions = rotation.dimensions as f32;
        // The pair whose wave turns `turns` times over the original context.
        let pair = |turns: f32| {
            dimensions * (rotation.context as f32 / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * rotation.base.ln())
        };
        let yarn = rotation.extrapolation != 0.0;
        Self {
            scale: rotation.scale,
            extrapolation: rotation.extrapolation,
            magnitude: rotation.magnitude * if yarn { 1.0 + 0.1 * (1.0 / rotation.scale).ln() } else { 1.0 },
            low: pair(rotation.beta_fast).floor().max(0.0),
            high: pair(rotation.beta_slow).ceil().min(dimensions - 1.0),
        }
    }

    fn turn(&self, extrapolated: f32, pair: usize) -> Turn {
        let interpolated = self.scale * extrapolated;
        let theta = if self.extrapolation == 0.0 {
            interpolated
        } else {
            let y = (pair as f32 - self.low) / (self.high - self.low).max(0.001);
            let mix = (1.0 - y.clamp(0.0, 1.0)) * self.extrapolation;
            interpolated * (1.0 - mix) + extrapolated * mix
        };
        let (sin, cos) = theta.sin_cos();
        Turn { cos: cos * self.magnitude, sin: sin * self.magnitude }
    }
}
