//! ROPE: pairs of neighbours, and pairs half a row apart, with one position for each token or four.
//!
//! A tile is some heads of one token, as many as fit and leave work for all columns. The second operand is the token's
//! positions; frequency factors come through it first, once, and become the reciprocals that positions are multiplied with.

use super::dispatch::{Preparation, Work};
use super::functions::Repertoire;
use super::rotation::{self, TABLE_ELEMENTS};
use super::step::{Function, Slot, Step};
use super::tensors::{f32_result, f32_source, unsupported};
use super::walk::{BUFFER_WORDS, Loop, Walk};
use crate::kit::NativeError;
use crate::numerics::terms;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::{DataType, Node};

pub(super) const NAME: &str = "rope";

const NORMAL: i32 = 0;
const NEOX: i32 = 2;
/// With several positions: sections of the pairs follow one of them. All of these turn pairs half a row apart.
const MROPE: i32 = 8;
/// Whole rows, and each section begins again with the highest frequency.
const VISION: i32 = 24;
/// Sections take turns.
const IMROPE: i32 = 40;

/// Words of a buffer that vectors behind the last element of a head may be written to.
const SLACK: u64 = 16;

/// The parameters of a node.
struct Parameters {
    /// Elements of a row that are turned.
    dimensions: u64,
    /// What frequencies refer to: as many, but half a row in the vision mode.
    period: u64,
    neox: bool,
    mode: i32,
    sections: [u64; 4],
    scale: f64,
    base: f32,
    extrapolation: f64,
    magnitude: f64,
    low: f64,
    high: f64,
}

impl Parameters {
    fn new(node: &Node) -> Result<Self, NativeError> {
        let reject = |reason: String| Err(unsupported(NAME, node, reason));
        let (dimensions, mode) = (node.params.int(1), node.params.int(2));
        if !matches!(mode, NORMAL | NEOX | MROPE | VISION | IMROPE) {
            return reject(format!("mode {mode}; possible: 0, 2, 8, 24, 40"));
        }
        let sections = [11, 12, 13, 14].map(|index| u64::try_from(node.params.int(index)).unwrap_or(0));
        if mode & MROPE != 0 && sections.iter().sum::<u64>() == 0 {
            return reject(format!("sections {sections:?}; possible: any that is not empty"));
        }
        if node.params.int(15) != 0 {
            return reject(format!("the rotated elements begin at {}; possible: 0", node.params.int(15)));
        }
        let float = |index| f64::from(node.params.float(index));
        let (base, scale, extrapolation, magnitude) = (float(5), float(6), float(7), float(8));
        let sound = [base, scale, extrapolation, magnitude].iter().all(|x| x.is_finite() && x.abs() < 1e12);
        if dimensions < 2 || dimensions % 2 != 0 || !sound || base <= 0.0 || scale <= 0.0 {
            return reject(format!(
                "{dimensions} dimensions, base {base}, scale {scale}, extrapolation {extrapolation}, magnitude {magnitude}"
            ));
        }
        // YaRN: the pairs whose waves turn a number of times over the original context.
        let pair = |turns: f64| {
            let waves = f64::from(node.params.int(4)) / (turns * std::f64::consts::TAU);
            f64::from(dimensions) * waves.ln() / (2.0 * base.ln())
        };
        let yarn = extrapolation != 0.0;
        Ok(Self {
            dimensions: u64::from(dimensions.unsigned_abs()) * if mode == VISION { 2 } else { 1 },
            period: dimensions.unsigned_abs().into(),
            neox: mode != NORMAL,
            mode,
            sections,
            scale,
            base: node.params.float(5),
            extrapolation,
            magnitude: magnitude * if yarn { 1.0 + 0.1 * (1.0 / scale).ln() } else { 1.0 },
            low: pair(float(9)).floor().max(0.0),
            high: pair(float(10)).ceil().min(f64::from(dimensions) - 1.0),
        })
    }

    /// Whether tokens have four positions each.
    fn several_positions(&self) -> bool {
        self.mode & MROPE != 0
    }

    /// The angle of each pair at position 1, in quarters of a turn, and which of the positions it has. As in ggml, powers are
    /// made by repeated multiplication.
    fn frequencies(&self) -> Vec<(f64, usize)> {
        let step = self.base.powf(-2.0 / self.period as f32);
        let mut powers = [1f32; 4];
        let pairs = (0..self.dimensions / 2).map(|pair| {
            if self.mode == VISION
                && let Some(section) = self.section_that_begins(pair)
            {
                powers[section] = 1.0;
            }
            let section = self.section(pair);
            let plain = f64::from(powers[section]);
            powers = powers.map(|power| power * step);
            let mix = if self.extrapolation == 0.0 {
                0.0
            } else {
                let y = (pair as f64 - self.low) / (self.high - self.low).max(0.001);
                (1.0 - y.clamp(0.0, 1.0)) * self.extrapolation
            };
            (plain * (self.scale * (1.0 - mix) + mix) * std::f64::consts::FRAC_2_PI, section)
        });
        pairs.collect()
    }

    /// Where the sections begin.
    fn bounds(&self) -> [u64; 4] {
        let [t, h, w, _] = self.sections;
        [0, t, t + h, t + h + w]
    }

    /// The section that begins with a pair; of empty ones the first.
    fn section_that_begins(&self, pair: u64) -> Option<usize> {
        let sector = pair % self.sections.iter().sum::<u64>().max(1);
        self.bounds().iter().position(|bound| *bound == sector)
    }

    /// The section of a pair.
    fn section(&self, pair: u64) -> usize {
        if !self.several_positions() {
            return 0;
        }
        let sector = pair % self.sections.iter().sum::<u64>().max(1);
        if self.mode == IMROPE {
            let turn = (sector % 3) as usize;
            return if sector < 3 * self.sections[turn] { turn } else { 3 };
        }
        let [_, height, width, extra] = self.bounds();
        usize::from(sector >= height) + usize::from(sector >= width) + usize::from(sector >= extra)
    }
}

pub(super) fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    work(node, arch.array.columns as u64)?.artifact(node, arch)
}

/// What is done with the heads of a node, as many to a tile as leave work for so many columns.
pub(in crate::families) fn work(node: &Node, columns: u64) -> Result<Work, NativeError> {
    let reject = |reason: String| Err(unsupported(NAME, node, reason));
    let (a, result) = (f32_source(NAME, node, 0)?, f32_result(NAME, node)?);
    let parameters = Parameters::new(node)?;
    let row = result.ne[0] as u64;
    let (pairs, table_elements) = if parameters.neox {
        (parameters.dimensions / 2, parameters.dimensions / 2)
    } else {
        (parameters.dimensions / 2, row)
    };
    if !a.same_shape(result) || !a.is_contiguous() || parameters.dimensions > row {
        return reject(format!("extents {:?}, strides {:?} for {} dimensions", a.ne, a.nb, parameters.dimensions));
    }
    if row > BUFFER_WORDS - SLACK || table_elements > TABLE_ELEMENTS.into() {
        let most = BUFFER_WORDS - SLACK;
        return reject(format!("rows of {row} and a table of {table_elements}; at most {most} and {TABLE_ELEMENTS}"));
    }
    // Vectors of 256 bits begin at their multiples.
    if parameters.neox && !(pairs.is_multiple_of(8) && row.is_multiple_of(8)) {
        return reject(format!("halves of {pairs} elements in rows of {row}; both must be multiples of 8"));
    }
    let positions = node.source(1).filter(|positions| positions.dtype == DataType::I32);
    let each = if parameters.several_positions() { 4 } else { 1 };
    if !positions.is_some_and(|p| p.ne[0] >= each * result.ne[2] && (p.ne[0] == 1 || p.nb[0] == 4)) {
        return reject(format!("positions are not i32 without gaps, {each} for each token"));
    }
    let [heads, tokens, batches] = [result.ne[1] as u64, result.ne[2] as u64, result.ne[3] as u64];
    if !parameters.neox && parameters.dimensions < row && parameters.is_scaled() {
        return reject(format!("{} of {row} elements with magnitude {}", parameters.dimensions, parameters.magnitude));
    }
    // Whole heads of a token in a tile.
    let share = (heads * tokens * batches).div_ceil(columns);
    let most = if row.is_multiple_of(8) && parameters.whole_rows(row) { (BUFFER_WORDS - SLACK) / row } else { 1 };
    let group = (1..=heads).rev().find(|group| heads.is_multiple_of(*group) && *group <= most.min(share)).unwrap_or(1);
    let run = group * row;
    let loops = [
        Loop { size: heads / group, a: run, b: 0, result: run },
        Loop { size: tokens, a: heads * row, b: 1, result: heads * row },
        Loop { size: batches, a: heads * row * tokens, b: 0, result: heads * row * tokens },
    ];
    let walk = Walk { run, b_run: 1, group: Loop::ONCE, loops: Walk::merged(&loops), start: [0; 3] };
    Ok(Work {
        steps: steps(&parameters, row, group, table_elements),
        each_b: table_steps(&parameters, table_elements, node.source(2).is_some()),
        walks: vec![walk],
        b: Some(1),
        b_parts: parameters.several_positions().then_some((4, tokens)),
        preparation: Some(preparation(node, &parameters, table_elements)?),
        ..Work::new(NAME, Repertoire::Rows)
    })
}

impl Parameters {
    /// Whether turned elements are multiplied with something.
    fn is_scaled(&self) -> bool {
        (self.magnitude - 1.0).abs() > 1e-9
    }

    /// Whether a step leaves nothing wrong behind the part of a row that it is for, so that it can go through all heads of a tile
    /// before the next step: pairs of neighbours are turned in one step, halves in two, and what is not turned is copied by a third.
    fn whole_rows(&self, row: u64) -> bool {
        !self.neox || self.dimensions == row && self.dimensions.is_multiple_of(32)
    }
}

/// The table of a position, which all heads of that position use.
fn table_steps(parameters: &Parameters, table_elements: u64, has_factors: bool) -> Vec<Step> {
    use Slot::{B, Factors, Positions, Scratch as T, V0};
    let vectors = table_elements.div_ceil(16) as u32;
    let (positions, each) = if parameters.several_positions() {
        (Step::gather(B, table_elements.next_multiple_of(16), Positions), Positions)
    } else {
        (Step::unary(Function::First, B, V0).once(), V0)
    };
    let mut steps = Vec::new();
    // A step is shorter in a stream than as many words.
    steps.extend((!has_factors).then(|| Step::bits(Factors, 0, 1f32.to_bits(), Factors).part(0, vectors)));
    steps.extend([positions, Step::unary(Function::Turns, each, T).part(0, vectors)]);
    if parameters.is_scaled() {
        // Cosines and sines alike.
        steps.push(Step::scale(T, parameters.magnitude as f32, 0.0, T).part(0, 2 * vectors));
    }
    steps
}

fn steps(parameters: &Parameters, row: u64, group: u64, table_elements: u64) -> Vec<Step> {
    use Slot::{A, Result as R, Scratch as T};
    let vectors = |elements: u64| elements.div_ceil(16) as u32;
    let mut steps = Vec::new();
    let distance = 4 * row as u32;
    if parameters.neox {
        let half = 2 * parameters.dimensions as u32;
        let part = |offset: u32, apart: u32, sign: u32| {
            let step = Step::binary(Function::RotateHalves, A, T, R).part(offset, vectors(table_elements));
            step.constants([group as u32, distance, apart, sign])
        };
        steps.push(part(0, half, 0x8000_0000));
        steps.push(part(half, half.wrapping_neg(), 0));
        if parameters.dimensions < row {
            let rest = vectors(row - parameters.dimensions);
            steps.push(Step::bits(A, !0, 0, R).part(4 * parameters.dimensions as u32, rest));
        }
    } else {
        let step = Step::binary(Function::RotatePairs, A, T, R).part(0, vectors(row));
        steps.push(step.constants([group as u32, distance, 0, 0]));
    }
    steps
}

/// Frequencies for the cores' memories, and the steps with frequency factors.
fn preparation(node: &Node, parameters: &Parameters, table_elements: u64) -> Result<Preparation, NativeError> {
    let frequencies = parameters.frequencies();
    let element = |index: u64| {
        let pair = if parameters.neox { index } else { index / 2 };
        frequencies.get(pair as usize).copied().unwrap_or((0.0, 0))
    };
    let table: Vec<[u16; 4]> = (0..table_elements.next_multiple_of(16)).map(|index| terms(element(index).0)).collect();
    let [factors_at, terms_at] = rotation::OFFSETS;
    let mut writes = vec![(terms_at, rotation::term_words(&table))];
    if parameters.several_positions() {
        let offsets = (0..table.len() as u64).map(|index| 4 * element(index).1 as u32).collect();
        writes.push((rotation::GATHERED_OFFSET, offsets));
    }
    let Some(factors) = node.source(2) else {
        return Ok(Preparation { writes, ..Preparation::default() });
    };
    let pairs = parameters.dimensions / 2;
    let dense = factors.ne[0] as u64 >= pairs && (factors.ne[0] == 1 || factors.nb[0] == 4);
    if factors.dtype != DataType::F32 || !dense {
        return Err(unsupported(NAME, node, format!("{} frequency factors of type {}", factors.ne[0], factors.dtype)));
    }
    // What is not turned has factor 1.
    writes.push((factors_at, vec![1f32.to_bits(); table.len()]));
    let times = if parameters.neox { 1 } else { 2 };
    let steps = vec![
        Step::repeat(Slot::B, pairs, times, Slot::Factors),
        Step::unary(Function::Reciprocal, Slot::Factors, Slot::Factors).part(0, table.len() as u32 / 16),
    ];
    Ok(Preparation { writes, steps, argument: 2, start: 0, words: pairs })
}
