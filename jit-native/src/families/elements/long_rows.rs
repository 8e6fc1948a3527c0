//! Rows that are longer than a core holds: several passes over their pieces.
//!
//! A row belongs to one column. In each pass its pieces come as tiles, and what is known of the row (its largest element, sums)
//! is gathered in vectors of the core's memory, which stay from pass to pass. A pass before the last one writes the elements back
//! as they are, so that a result may have the memory of its source.

use super::dispatch::{Preparation, Work};
use super::functions::{Function, Repertoire};
use super::program;
use super::scores::{LOWEST, scores};
use super::step::{Slot, Step};
use super::tensors::strides;
use super::walk::{BUFFER_WORDS, Loop, Walk};
use aie_ops::Tensor;

/// What is done with each piece of a row.
pub(super) struct Pass {
    /// A vector that begins with a number in all lanes.
    pub start: Option<(Slot, f32)>,
    /// The steps with a piece of so many elements.
    pub steps: Box<dyn Fn(u32) -> Vec<Step>>,
    /// Whether the second operand comes.
    pub with_b: bool,
}

/// Leaves the elements in the result.
fn unchanged() -> Step {
    Step::bits(Slot::A, !0, 0, Slot::Result)
}

/// A norm's passes: the mean if it is subtracted, the sum of squares, the result.
///
/// `share` is the reciprocal of the number of elements; `scale` makes of the sum of squares in V2 what V1 is the root of.
pub(super) fn norm_passes(centred: bool, share: f32, scale: Step, has_weights: bool) -> Vec<Pass> {
    use Function as F;
    use Slot::{A, B, Result as R, V0, V1, V2};
    let mut passes = Vec::new();
    if centred {
        let steps = |count| {
            let mut steps: Vec<Step> = Step::pad(A, count, 0.0).into_iter().collect();
            steps.extend([Step::unary(F::Sum, A, V1), Step::binary(F::Add, V0, V1, V0).once(), unchanged()]);
            steps
        };
        passes.push(Pass { start: Some((V0, 0.0)), steps: Box::new(steps), with_b: false });
    }
    // V0 is the sum of all.
    let centre = move || {
        let steps = [Step::scale(V0, share, 0.0, V1).once(), Step::binary(F::Sub, A, V1, R)];
        if centred { steps.to_vec() } else { Vec::new() }
    };
    let x = if centred { R } else { A };
    let steps = move |count| {
        let mut steps = centre();
        steps.extend(Step::sum_of_squares(x, count, V1));
        steps.extend([Step::binary(F::Add, V2, V1, V2).once(), unchanged()]);
        steps
    };
    passes.push(Pass { start: Some((V2, 0.0)), steps: Box::new(steps), with_b: false });
    let steps = move |_| {
        let mut steps = centre();
        steps.extend([scale, Step::unary(F::ReciprocalRoot, V1, V1).once(), Step::binary(F::Mul, x, V1, R)]);
        steps.extend(has_weights.then(|| Step::binary(F::Mul, R, B, R)));
        steps
    };
    passes.push(Pass { start: None, steps: Box::new(steps), with_b: has_weights });
    passes
}

/// Softmax: the largest element, the sum of exponentials, the result. `mask` is what is added to the scaled elements.
pub(super) fn soft_max_passes(scale: f32, mask: Option<Slot>) -> Vec<Pass> {
    use Function as F;
    use Slot::{Result as R, V0, V1, V2};
    let exponentials = move || {
        let mut steps = scores(scale, mask);
        steps.extend([Step::binary(F::Sub, R, V0, R), Step::unary(F::Exp, R, R)]);
        steps
    };
    let largest = move |count| {
        let mut steps = scores(scale, mask);
        steps.extend(Step::pad(R, count, LOWEST));
        steps.extend([Step::unary(F::Largest, R, V1), Step::binary(F::Larger, V0, V1, V0).once(), unchanged()]);
        steps
    };
    let sum = move |count| {
        let mut steps = exponentials();
        steps.extend(Step::pad(R, count, 0.0));
        steps.extend([Step::unary(F::Sum, R, V1), Step::binary(F::Add, V2, V1, V2).once(), unchanged()]);
        steps
    };
    let result = move |_| {
        let mut steps = exponentials();
        steps.extend([Step::unary(F::Reciprocal, V2, V1).once(), Step::binary(F::Mul, R, V1, R)]);
        steps
    };
    let with_b = mask.is_some();
    vec![
        Pass { start: Some((V0, LOWEST)), steps: Box::new(largest), with_b },
        Pass { start: Some((V2, 0.0)), steps: Box::new(sum), with_b },
        Pass { start: None, steps: Box::new(result), with_b },
    ]
}

/// Where rows of the operands and the result begin, in elements: those of `heads` in dimension 2. `b` repeats to the result.
pub(super) fn row_starts(
    result: &Tensor,
    a: &Tensor,
    b: Option<&Tensor>,
    heads: std::ops::Range<usize>,
) -> Vec<[u64; 3]> {
    let (a_steps, result_steps) = (strides(a), strides(result));
    let mut starts = Vec::new();
    for batch in 0..result.ne[3] {
        for head in heads.clone() {
            for row in 0..result.ne[1] {
                let at = [row, head, batch];
                let start = |steps: [u64; 4], ne: [usize; 4]| -> u64 {
                    (0..3).map(|d| (at[d] % ne[d + 1].max(1)) as u64 * steps[d + 1]).sum()
                };
                let b_start = b.map_or(0, |b| start(strides(b), b.ne));
                starts.push([start(a_steps, result.ne), b_start, start(result_steps, result.ne)]);
            }
        }
    }
    starts
}

/// The works of passes over rows of `count` elements, as many rows at a time as there are columns. `with` has what they share, and
/// the second operand.
pub(super) fn works(with: &Work, count: u64, starts: &[[u64; 3]], passes: &[Pass], columns: usize) -> Vec<Work> {
    let fewest = count.div_ceil(BUFFER_WORDS);
    let equal = (fewest..=4 * fewest).find(|pieces| count.is_multiple_of(16 * pieces));
    let piece = equal.map_or(BUFFER_WORDS, |pieces| count / pieces);
    let (pieces, rest) = (count / piece, count % piece);
    let mut works = Vec::new();
    for rows in starts.chunks(columns.max(1)) {
        for pass in passes {
            let parts = [(0, piece, pieces), (piece * pieces, rest, 1)];
            for (from, run, pieces) in parts.into_iter().filter(|(_, run, _)| *run > 0) {
                let step = u64::from(pass.with_b) * run;
                let loops =
                    if pieces > 1 { vec![Loop { size: pieces, a: run, b: step, result: run }] } else { Vec::new() };
                let walks = rows.iter().map(|[a, b, result]| Walk {
                    run,
                    b_run: step,
                    group: Loop::ONCE,
                    loops: loops.clone(),
                    start: [a + from, b + from, result + from],
                });
                let start = pass.start.filter(|_| from == 0);
                let preparation = start.map(|(slot, x)| Preparation {
                    writes: program::vector_offset(slot).map(|at| (at, vec![x.to_bits(); 16])).into_iter().collect(),
                    ..Preparation::default()
                });
                works.push(Work {
                    steps: (pass.steps)(run as u32),
                    each_b: if pass.with_b { with.each_b.clone() } else { Vec::new() },
                    b: with.b.filter(|_| pass.with_b),
                    walks: walks.collect(),
                    dealt: true,
                    preparation,
                    repertoire: Repertoire::Rows,
                    ..with.clone()
                });
            }
        }
    }
    works
}
