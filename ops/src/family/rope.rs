//! ROPE: rotary position embedding.
//!
//! Pairs of elements of a row are turned by an angle that depends on the position and the pair. Which elements make a pair
//! and which position counts depends on the mode. The angles of a position are the same for all heads and batches, so they are
//! computed once. They are accumulated in f32 by repeated multiplication as in ggml, because the rounding errors of large
//! positions would show otherwise.

use super::prelude::*;
use rayon::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Rope];

const NAME: &str = "ROPE";

/// ggml's modes (`GGML_ROPE_TYPE_*`). The bit of M-RoPE is set in all modes with several positions.
const NORMAL: i32 = 0;
const NEOX: i32 = 2;
const MROPE: i32 = 8;
const VISION: i32 = 24;
const IMROPE: i32 = 40;

struct Rope;

impl Operation for Rope {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 3)?;
        let (a, positions, out) = (source(NAME, node, 0)?, source(NAME, node, 1)?, &node.output);
        float(NAME, "source 0", a)?;
        if out.dtype != a.dtype {
            return wrong_type(NAME, "the result", out.dtype, "the type of source 0");
        }
        typed(NAME, "the positions", positions, DataType::I32)?;
        same_shape(NAME, "source 0", a, out)?;
        dense_rows(NAME, out)?;
        let rope = RopeParams::new(&node.params);
        rope.check(a.ne[0])?;
        let needed = a.ne[2] * if rope.several_positions() { 4 } else { 1 };
        let dense = positions.ne[0] <= 1 || positions.nb[0] == 4;
        require(NAME, dense && positions.ne[0] >= needed, || {
            format!("{} positions given, {needed} needed, without gaps", positions.ne[0])
        })?;
        if let Some(factors) = node.source(2) {
            float(NAME, "the frequency factors", factors)?;
            let pairs = rope.pairs(a.ne[0]);
            require(NAME, factors.ne[0] >= pairs, || {
                format!("{} frequency factors given, {pairs} needed", factors.ne[0])
            })?;
        }
        Ok(())
    }

    /// More positions and frequency factors than needed can be given, and not every mode uses all four positions.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        !matches!(index, Some(1 | 2))
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, positions] = arguments(node);
        let (factors, out) = (KernelInput::of(node, 2), node.output);
        let rope = RopeParams::new(&node.params);
        let pairs = rope.pairs(out.ne[0]);
        Ok(kernel(node, None, move |inputs, output| {
            let mut scratch = Vec::new();
            let factors = factors.map(|factors| read_row(&factors, inputs, 0, &mut scratch));
            let turns = rope.turns(&positions.tensor, inputs[positions.position], out.ne[2], pairs, factors);
            fill_rows(
                &out,
                output,
                out.elements() * 2,
                inputs,
                &[a],
                #[inline(always)]
                |Row([_, position, _]), [x], y| rope.apply(&turns[position * pairs..][..pairs], x, y),
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
struct RopeParams {
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

impl RopeParams {
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
            format!(
                "mode {mode} is not known; possible: 0 (normal), 2 (NeoX), 8 (M-RoPE), 24 (vision), 40 (interleaved M-RoPE)"
            )
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
            let sound =
                sections.iter().all(|section| *section >= 0) && sections[..3].iter().any(|section| *section > 0);
            let short = sum.and_then(|sum| usize::try_from(sum).ok()).is_some_and(|sum| sum <= row);
            require(NAME, sound && short, || {
                format!(
                    "sections {sections:?} must not be negative, one of the first three positive, their sum at most {row}"
                )
            })?;
        }
        if *mode == VISION {
            let half = usize::try_from(*dimensions).is_ok_and(|d| d * 2 == row);
            require(NAME, half && *offset == 0, || {
                format!(
                    "the vision mode rotates rows of twice the dimensions, not {row} with {dimensions} from {offset}"
                )
            })?;
        }
        Ok(())
    }

    /// Rotated pairs of a row of `row` elements.
    fn pairs(&self, row: usize) -> usize {
        if self.mode == VISION { row / 2 } else { usize::try_from(self.dimensions).unwrap_or(0) / 2 }
    }

    /// The turns of every position, pairs innermost.
    fn turns(
        &self,
        layout: &Tensor,
        positions: &[u8],
        count: usize,
        pairs: usize,
        factors: Option<&[f32]>,
    ) -> Vec<Turn> {
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
                // Each section begins again. Where sections are empty the first of equal bounds counts.
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
    fn new(rope: &RopeParams) -> Self {
        let dimensions = rope.dimensions as f32;
        // The pair whose wave turns `turns` times over the original context.
        let pair = |turns: f32| {
            dimensions * (rope.context as f32 / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * rope.base.ln())
        };
        let yarn = rope.extrapolation != 0.0;
        Self {
            scale: rope.scale,
            extrapolation: rope.extrapolation,
            magnitude: rope.magnitude * if yarn { 1.0 + 0.1 * (1.0 / rope.scale).ln() } else { 1.0 },
            low: pair(rope.beta_fast).floor().max(0.0),
            high: pair(rope.beta_slow).ceil().min(dimensions - 1.0),
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

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// A rotation, and YaRN if requested, of `dimensions` from `offset`.
    fn parameters(mode: i32, dimensions: i32, offset: i32, yarn: bool) -> OpParams {
        let mut words = [0; 16];
        (words[1], words[2], words[4], words[15]) = (dimensions, mode, 512, offset);
        let (scale, extrapolation, magnitude) = if yarn { (0.7, 0.75, 1.4) } else { (1.0, 0.0, 1.0) };
        let floats = [(5, 10_000.0_f32), (6, scale), (7, extrapolation), (8, magnitude), (9, 32.0), (10, 1.0)];
        for (index, value) in floats {
            words[index] = value.to_bits().cast_signed();
        }
        let quarter = dimensions / 8;
        words[11..15].copy_from_slice(&[quarter, quarter, dimensions / 2 - 3 * quarter, quarter]);
        OpParams(words)
    }

    /// The definition in double precision: one angle for each pair.
    fn exact(params: &OpParams, x: &Data, positions: &[f32], factors: Option<&[f32]>) -> Vec<f64> {
        let ne = x.tensor.ne;
        let values = x.values();
        let mut y: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        let (dimensions, mode, offset) = (params.int(1), params.int(2), params.int(15) as usize);
        let d = f64::from(dimensions);
        let float = |i: usize| f64::from(params.float(i));
        let sections: [usize; 4] = std::array::from_fn(|i| params.int(11 + i) as usize);
        let ends = [sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]];
        let pairs = if mode == VISION { ne[0] / 2 } else { dimensions as usize / 2 };
        for [_, b, c, e] in indices([1, ne[1], ne[2], ne[3]]) {
            for pair in 0..pairs {
                let sector = pair % sections.iter().sum::<usize>();
                let section = match mode {
                    NORMAL | NEOX => 0,
                    IMROPE if sector % 3 == 0 && sector < 3 * sections[0] => 0,
                    IMROPE if sector % 3 == 1 && sector < 3 * sections[1] => 1,
                    IMROPE if sector % 3 == 2 && sector < 3 * sections[2] => 2,
                    IMROPE => 3,
                    _ => ends.iter().position(|end| sector < *end).unwrap_or(3),
                };
                // The vision mode counts pairs from the start of their section.
                let begin = [0, ends[0], ends[1], ends[2]][section];
                let exponent = if mode == VISION { sector - begin } else { pair } as f64;
                let position = f64::from(positions[section * ne[2] + c]);
                let base = position * float(5).powf(-2.0 * exponent / d) / factors.map_or(1.0, |f| f64::from(f[pair]));
                let (mut theta, mut magnitude) = (base * float(6), float(8));
                if float(7) != 0.0 {
                    let edge = |beta: f64| d * (512.0 / (beta * std::f64::consts::TAU)).ln() / (2.0 * float(5).ln());
                    let (low, high) = (edge(float(9)).floor().max(0.0), edge(float(10)).ceil().min(d - 1.0));
                    let ramp = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    theta = theta * (1.0 - ramp * float(7)) + base * ramp * float(7);
                    magnitude *= 1.0 + 0.1 * (1.0 / float(6)).ln();
                }
                let (i, k) = if mode == NORMAL { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                let row = ne[0] * (b + ne[1] * (c + ne[2] * e)) + offset;
                let (x0, x1) = (f64::from(values[row + i]), f64::from(values[row + k]));
                y[row + i] = (x0 * theta.cos() - x1 * theta.sin()) * magnitude;
                y[row + k] = (x0 * theta.sin() + x1 * theta.cos()) * magnitude;
            }
        }
        y
    }

    #[rstest]
    fn every_mode_turns_its_pairs(
        #[values(NORMAL, NEOX, MROPE, VISION, IMROPE)] mode: i32,
        #[values((64, 0), (32, 0), (24, 16))] range: (i32, i32),
        #[values(false, true)] yarn: bool,
        #[values(false, true)] with_factors: bool,
        #[values(DataType::F32, DataType::F16)] dtype: DataType,
    ) {
        let range = if mode == VISION { (32, 0) } else { range };
        let mut random = Rng::with_seed(71);
        let tensor = Tensor::contiguous(dtype, [64, 3, 5, 2]);
        let params = parameters(mode, range.0, range.1, yarn);
        let x = Data::random(tensor, &mut random);
        let count = if mode & MROPE != 0 { 20 } else { 5 };
        let positions: Vec<f32> = (0..count).map(|_| random.u8(..100).into()).collect();
        let places = Data::contiguous(DataType::I32, [count, 1, 1, 1], &positions);
        let factors: Vec<f32> = random.floats(32).iter().map(|x| x + 2.0).collect();
        let factor_data = with_factors.then(|| Data::contiguous(DataType::F32, [32, 1, 1, 1], &factors));
        let result = run(NAME, params, tensor, &[Some(&x), Some(&places), factor_data.as_ref()]).unwrap();
        let expected = exact(&params, &x, &positions, with_factors.then_some(&factors));
        // Angles of up to 100 are kept in f32.
        assert_close(&result.values(), expected, if dtype == DataType::F32 { 1e-4 } else { 2e-3 });
    }

    #[test]
    fn many_positions_and_strided_sources() {
        let mut random = Rng::with_seed(72);
        let tensor = permuted(&f32s([16, 700, 9, 1]), [0, 2, 1, 3]);
        let params = parameters(NEOX, 16, 0, false);
        let x = Data::random(tensor, &mut random);
        let positions: Vec<f32> = (0..700).map(|i| (i % 90) as f32).collect();
        let places = Data::contiguous(DataType::I32, [700, 1, 1, 1], &positions);
        let result = run(NAME, params, f32s(tensor.ne), &[Some(&x), Some(&places)]).unwrap();
        assert_close(&result.values(), exact(&params, &x, &positions, None), 1e-4);
    }

    #[rstest]
    #[case::unknown_mode(parameters(4, 64, 0, false))]
    #[case::odd(parameters(NORMAL, 63, 0, false))]
    #[case::negative(parameters(NORMAL, -2, 0, false))]
    #[case::too_many(parameters(NORMAL, 66, 0, false))]
    #[case::offset_beyond(parameters(NEOX, 64, 2, false))]
    #[case::vision_needs_half(parameters(VISION, 64, 0, false))]
    #[case::no_sections(OpParams([0, 64, MROPE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]))]
    #[case::negative_sections(OpParams([0, 64, MROPE, 0, 0, 0, 0, 0, 0, 0, 0, 5, -5, 0, 4, 0]))]
    #[case::overflowing_sections(OpParams([0, 64, MROPE, 0, 0, 0, 0, 0, 0, 0, 0, i32::MAX, i32::MAX, 0, 4, 0]))]
    fn rejects(#[case] params: OpParams) {
        let x = f32s([64, 3, 5, 1]);
        assert!(!accepts(NAME, params, x, &[x, Tensor::contiguous(DataType::I32, [20, 1, 1, 1])]));
    }

    #[test]
    fn too_few_positions_or_factors_are_rejected() {
        let x = f32s([64, 3, 5, 1]);
        let ints = |n| Some(Tensor::contiguous(DataType::I32, [n, 1, 1, 1]));
        let floats = |n| Some(f32s([n, 1, 1, 1]));
        let check = |mode, positions, factors| {
            find(NAME).check(&node(NAME, parameters(mode, 64, 0, false), x, &[Some(x), positions, factors]))
        };
        assert!(check(NORMAL, ints(5), floats(32)).is_ok());
        assert!(check(NORMAL, ints(4), floats(32)).is_err());
        assert!(check(NORMAL, ints(5), floats(31)).is_err());
        assert!(check(MROPE, ints(5), None).is_err());
        assert!(check(MROPE, ints(20), None).is_ok());
    }
}
