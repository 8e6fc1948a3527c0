//! What softmax and attention make of scores before their exponentials.

use super::step::{Function, Slot, Step};

/// What stands for minus infinity: far below every exponent that counts, and finite.
pub(in crate::families) const LOWEST: f32 = -1e30;

/// The slope of a head's mask: powers of a base for as many heads as the largest power of two among their number, odd powers of
/// its root for the others.
pub(in crate::families) fn slope(max_bias: f32, heads: usize, head: usize) -> f32 {
    let powers = 1usize << heads.max(1).ilog2();
    let share = f64::from(max_bias) / powers as f64;
    let exponent =
        if head < powers { share * (head + 1) as f64 } else { share / 2.0 * (2 * (head - powers) + 1) as f64 };
    (-exponent).exp2() as f32
}

/// The elements times the scale, plus what the mask says, if there is one.
pub(super) fn scores(scale: f32, mask: Option<Slot>) -> Vec<Step> {
    use Slot::{A, Result as R};
    // Elements may be minus infinity, which no product takes.
    let mut steps = vec![Step::clamp(A, LOWEST / 1e10, -LOWEST / 1e10, R), Step::scale(R, scale, 0.0, R)];
    steps.extend(mask.map(|mask| Step::binary(Function::Add, R, mask, R)));
    steps
}
