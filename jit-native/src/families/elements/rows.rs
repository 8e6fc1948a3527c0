//! Norms and softmax: operations on whole rows.
//!
//! A row of up to 4,096 elements is read once; of longer ones see `long_rows`. What is behind its end in the last vector is set so that it does not count before elements are summed or
//! compared.

use super::dispatch::{Preparation, Work, artifact};
use super::elementwise::repeating;
use super::format::Format;
use super::functions::Repertoire;
use super::long_rows;
use super::scores::{LOWEST, scores, slope};
use super::step::{Function, Slot, Step};
use super::tensors::{f32_result, f32_source, source, strides, unsupported};
use super::walk::{BUFFER_WORDS, Loop, RING_WORDS, Walk};
use crate::kit::NativeError;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::{Node, Tensor};

pub(super) const NAME: &str = "rows";

/// The operations, by ggml's descriptions.
pub(super) const OPERATIONS: &[&str] =
    &["RMS_NORM", "RMS_NORM_MUL", "NORM", "NORM_MUL", "L2_NORM", "GROUP_NORM", "SOFT_MAX"];

pub(super) fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let columns = arch.array.columns;
    let works = if node.op == "SOFT_MAX" { soft_max(node, columns)? } else { norm(node, columns)? };
    artifact(&works, node, arch)
}

/// A walk with a row as run. `loops` are those around the rows.
fn walk(result: &Tensor, loops: &[Loop], b_run: u64) -> Walk {
    Walk { run: result.ne[0] as u64, b_run, group: Loop::ONCE, loops: Walk::merged(loops), start: [0; 3] }
}

/// Source 0, whose rows have to be without gaps, and the result.
fn row_tensors(node: &Node) -> Result<(&Tensor, &Tensor), NativeError> {
    let (a, result) = (f32_source(NAME, node, 0)?, f32_result(NAME, node)?);
    if !a.same_shape(result) || !a.has_contiguous_rows() {
        let reason = format!("extents {:?}, strides {:?} for a result of {:?}", a.ne, a.nb, result.ne);
        return Err(unsupported(NAME, node, reason));
    }
    Ok((a, result))
}

/// A norm of rows.
pub(in crate::families) struct Norm<'a> {
    /// The source, in whose rows there are no gaps.
    pub a: Tensor,
    pub result: Tensor,
    /// What the rows are multiplied with.
    pub weights: Option<&'a Tensor>,
    /// Whether the mean is taken off.
    centred: bool,
    /// Whether the length of a row becomes one, instead of the mean of its squares.
    length: bool,
    epsilon: f32,
}

impl<'a> Norm<'a> {
    /// The norm of a node, if it is one that cores can compute.
    pub fn of(node: &'a Node) -> Result<Self, NativeError> {
        let grouped = node.op == "GROUP_NORM";
        let (a, result) = row_tensors(node)?;
        let (a, result) = if grouped { groups(node, a, result)? } else { (*a, *result) };
        let epsilon = node.params.float(usize::from(grouped));
        if !(0.0..1e30).contains(&epsilon) {
            return Err(unsupported(NAME, node, format!("epsilon is {epsilon}; possible: 0 to 1e30")));
        }
        let weights = if node.op.ends_with("_MUL") { Some(weights(node, &result)?) } else { None };
        let centred = grouped || node.op.starts_with("NORM");
        // A row of zeros without epsilon would divide by zero: the least that a reciprocal root takes.
        Ok(Self { a, result, weights, centred, length: node.op == "L2_NORM", epsilon: epsilon.max(1e-37) })
    }

    /// Elements of a row.
    pub fn count(&self) -> u32 {
        self.result.ne[0] as u32
    }

    fn share(&self) -> f32 {
        1.0 / self.count() as f32
    }

    /// Of the sum of squares what the root is taken of.
    fn scale(&self, sum: Slot, scaled: Slot) -> Step {
        if self.length {
            // Epsilon is the least length.
            let square = (self.epsilon * self.epsilon).max(1e-37);
            Step::clamp(sum, square, f32::INFINITY, scaled).once()
        } else {
            Step::scale(sum, self.share(), self.epsilon, scaled).once()
        }
    }

    /// What is done with a row: the mean is taken off it to `centred`, and `part` of it, or all, becomes the result.
    pub fn steps(&self, row: Slot, centred: Slot, part: Slot) -> Vec<Step> {
        use Function as F;
        use Slot::{B, Result as R, V0};
        let mut steps = Vec::new();
        let x = if self.centred { centred } else { row };
        if self.centred {
            steps.extend(Step::pad(row, self.count(), 0.0));
            steps.push(Step::unary(F::Sum, row, V0));
            steps.push(Step::scale(V0, self.share(), 0.0, V0).once());
            steps.push(Step::binary(F::Sub, row, V0, x));
        }
        steps.extend(Step::sum_of_squares(x, self.count(), V0));
        steps.push(self.scale(V0, V0));
        steps.push(Step::unary(F::ReciprocalRoot, V0, V0).once());
        steps.push(Step::binary(F::Mul, part, V0, R));
        steps.extend(self.weights.map(|_| Step::binary(F::Mul, R, B, R)));
        steps
    }

    /// One walk with a row as run.
    pub fn walk(&self) -> Walk {
        let (a, result) = (strides(&self.a), strides(&self.result));
        let (loops, b_run) = match self.weights {
            Some(weights) => (repeating(&self.result, &self.a, weights)[2..].to_vec(), self.count().into()),
            None => {
                let each = |d: usize| Loop { size: self.result.ne[d] as u64, a: a[d], b: 0, result: result[d] };
                ((1..4).map(each).collect(), 0)
            }
        };
        walk(&self.result, &loops, b_run)
    }
}

/// What is done with the rows of a norm: those that are longer than a core holds in passes that are dealt over so many columns.
pub(in crate::families) fn norm(node: &Node, columns: usize) -> Result<Vec<Work>, NativeError> {
    let norm = Norm::of(node)?;
    let count = u64::from(norm.count());
    let b = norm.weights.map(|_| 1);
    if count > RING_WORDS {
        let (result, a) = (&norm.result, &norm.a);
        let starts = long_rows::row_starts(result, a, norm.weights, 0..result.ne[2]);
        let scale = norm.scale(Slot::V2, Slot::V1);
        let passes = long_rows::norm_passes(norm.centred, norm.share(), scale, norm.weights.is_some());
        let with = Work { b: Some(1), ..Work::new(NAME, Repertoire::Rows) };
        return Ok(long_rows::works(&with, count, &starts, &passes, columns));
    }
    // Rows that the mean is taken off are so in the result's place.
    let row = if norm.centred { Slot::Result } else { Slot::A };
    let steps = norm.steps(Slot::A, Slot::Result, row);
    Ok(vec![Work { steps, walks: vec![norm.walk()], b, ..Work::new(NAME, Repertoire::Rows) }])
}

/// The groups of channels of a group norm as rows.
fn groups(node: &Node, a: &Tensor, result: &Tensor) -> Result<(Tensor, Tensor), NativeError> {
    let (channels, groups) = (result.ne[2], node.params.int(0));
    let of_group = channels.div_ceil(usize::try_from(groups).unwrap_or(0).max(1)).max(1);
    if !a.is_contiguous() || !channels.is_multiple_of(of_group) {
        let reason = format!("{channels} channels with strides {:?} in {groups} groups; all must be alike", a.nb);
        return Err(unsupported(NAME, node, reason));
    }
    let row = result.ne[0] * result.ne[1] * of_group;
    let rows = Tensor::contiguous(result.dtype, [row, result.elements() / row.max(1), 1, 1]);
    Ok((rows, rows))
}

/// What a norm is multiplied with.
fn weights<'a>(node: &'a Node, result: &Tensor) -> Result<&'a Tensor, NativeError> {
    let weights = f32_source(NAME, node, 1)?;
    if !weights.repeats_to(result) || weights.ne[0] != result.ne[0] || !weights.has_contiguous_rows() {
        let reason = format!("weights with extents {:?} for rows of {:?}", weights.ne, result.ne);
        return Err(unsupported(NAME, node, reason));
    }
    Ok(weights)
}

fn soft_max(node: &Node, columns: usize) -> Result<Vec<Work>, NativeError> {
    let (a, result) = row_tensors(node)?;
    let (scale, max_bias) = (node.params.float(0), node.params.float(1));
    if !(scale.is_finite() && scale.abs() < 1e10 && max_bias.is_finite() && max_bias < 1e3) {
        let reason = format!("scale {scale} and max_bias {max_bias}; they must be below 1e10 and 1e3");
        return Err(unsupported(NAME, node, reason));
    }
    let count = result.ne[0] as u32;
    let heads = result.ne[2];
    let has_sinks = node.source(2).is_some();
    if has_sinks {
        let sinks = f32_source(NAME, node, 2)?;
        if sinks.ne[0] < heads || !sinks.has_contiguous_rows() {
            let reason = format!("sinks with extents {:?}, strides {:?} for {heads} heads", sinks.ne, sinks.nb);
            return Err(unsupported(NAME, node, reason));
        }
    }
    // The tile of a mask times its slope is as long as other tiles.
    let long = u64::from(count) > RING_WORDS || max_bias > 0.0 && u64::from(count) > BUFFER_WORDS;
    if long && has_sinks {
        return Err(unsupported(NAME, node, format!("sinks with rows of {count} elements")));
    }
    let long_works = |with: &Work, used: Option<&Tensor>, mask: Option<Slot>, heads| {
        let starts = long_rows::row_starts(result, a, used, heads);
        long_rows::works(with, count.into(), &starts, &long_rows::soft_max_passes(scale, mask), columns)
    };
    let Some(mask) = node.source(1) else {
        if max_bias > 0.0 {
            return Err(unsupported(NAME, node, format!("ALiBi (max_bias {max_bias}) without a mask")));
        }
        if long {
            return Ok(long_works(&Work::new(NAME, Repertoire::Rows), None, None, 0..heads));
        }
        // The sinks are a second operand with one element for all rows of a head.
        let (a, result_steps) = (strides(a), strides(result));
        let each = |d: usize| Loop {
            size: result.ne[d] as u64,
            a: a[d],
            b: u64::from(has_sinks && d == 2),
            result: result_steps[d],
        };
        let loops: Vec<Loop> = (1..4).map(each).collect();
        let walks = vec![walk(result, &loops, has_sinks.into())];
        let steps = soft_max_steps(count, scale, None, has_sinks);
        let (b, each_b) = if has_sinks { (Some(1), vec![sink_step()]) } else { (None, Vec::new()) };
        return Ok(vec![Work { steps, each_b, walks, b, ..Work::new(NAME, Repertoire::Rows) }]);
    };
    let (_, mask_format) = source(NAME, node, 1)?;
    let fits = mask.ne[0] == result.ne[0] && mask.ne[1] >= result.ne[1] && mask.has_contiguous_rows();
    if !fits || (2..4).any(|d| !result.ne[d].is_multiple_of(mask.ne[d].max(1))) {
        let reason = format!("a mask with extents {:?} for rows of {:?}", mask.ne, result.ne);
        return Err(unsupported(NAME, node, reason));
    }
    // A mask may have more rows than are masked.
    let used = Tensor { ne: [mask.ne[0], result.ne[1], mask.ne[2], mask.ne[3]], ..*mask };
    // A mask is prepared once for all rows that it is added to.
    let masked = |slope: Option<f32>| {
        let widened = (mask_format == Format::Bf16).then(|| Step::widen(Slot::B));
        let mut each_b: Vec<Step> = widened.into_iter().collect();
        each_b.push(Step::clamp(Slot::B, LOWEST, -LOWEST, Slot::B));
        each_b.extend(slope.map(|slope| Step::scale(Slot::B, slope, 0.0, Slot::Scratch)));
        let addend = if slope.is_some() { Slot::Scratch } else { Slot::B };
        let formats = [Format::F32, mask_format, Format::F32];
        (Work { each_b, b: Some(1), formats, ..Work::new(NAME, Repertoire::Rows) }, addend)
    };
    let slope_of = |head: usize| (max_bias > 0.0).then(|| slope(max_bias, heads, head));
    if long && max_bias <= 0.0 {
        let (with, addend) = masked(None);
        return Ok(long_works(&with, Some(&used), Some(addend), 0..heads));
    }
    if long {
        let of_head = |head| {
            let (with, addend) = masked(slope_of(head));
            long_works(&with, Some(&used), Some(addend), head..head + 1)
        };
        return Ok((0..heads).flat_map(of_head).collect());
    }
    let work = |slope: Option<f32>, loops: &[Loop], start| {
        let walks = vec![Walk { start, ..walk(result, loops, count.into()) }];
        let (with, addend) = masked(slope);
        Work { steps: soft_max_steps(count, scale, Some(addend), has_sinks), walks, ..with }
    };
    let loops = repeating(result, a, &used);
    if max_bias <= 0.0 && !has_sinks {
        return Ok(vec![work(None, &loops[2..], [0; 3])]);
    }
    // Each head has a slope and a sink of its own.
    let (a_step, mask_step, result_step) = (strides(a)[2], strides(mask)[2], strides(result)[2]);
    let rows = [&loops[2..4], &loops[6..8]].concat();
    let heads = (0..heads).map(|head| {
        let start = [head as u64 * a_step, (head % mask.ne[2]) as u64 * mask_step, head as u64 * result_step];
        let sink = Preparation {
            steps: vec![sink_step()],
            argument: 2,
            start: head as u64,
            words: 1,
            ..Preparation::default()
        };
        Work { preparation: has_sinks.then_some(sink), ..work(slope_of(head), &rows, start) }
    });
    Ok(heads.collect())
}

/// Takes a sink, which all rows of its head use.
fn sink_step() -> Step {
    Step::unary(Function::First, Slot::B, Slot::V1).once()
}

/// `mask`: what is added to the scaled elements, if anything. A sink is one more element of a row, without a result.
fn soft_max_steps(count: u32, scale: f32, mask: Option<Slot>, has_sink: bool) -> Vec<Step> {
    use Function as F;
    use Slot::{Result as R, V0, V1, V2};
    let mut steps = scores(scale, mask);
    steps.extend(Step::pad(R, count, LOWEST));
    steps.push(Step::unary(F::Largest, R, V0));
    if has_sink {
        steps.push(Step::binary(F::Larger, V0, V1, V0).once());
        steps.push(Step::binary(F::Sub, V1, V0, V2).once());
        steps.push(Step::unary(F::Exp, V2, V2).once());
    }
    steps.push(Step::binary(F::Sub, R, V0, R));
    steps.push(Step::unary(F::Exp, R, R));
    steps.extend(Step::pad(R, count, 0.0));
    steps.push(Step::unary(F::Sum, R, V0));
    if has_sink {
        steps.push(Step::binary(F::Add, V0, V2, V0).once());
    }
    steps.push(Step::unary(F::Reciprocal, V0, V0).once());
    steps.push(Step::binary(F::Mul, R, V0, R));
    steps
}
