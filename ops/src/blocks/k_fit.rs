//! Scales for sub-blocks of the super-block formats: what ggml's reference quantisation searches for.
//!
//! Every search minimises a weighted error of `scale * quant (- depth)` against the values over quants and scale. None finds
//! the optimum; the trials, their order and the order of additions decide which quants win, so all follow ggml-quants.c
//! (`make_qkx2_quants`, `make_q3_quants`, `make_qx_quants`).

use super::conversion::{extreme, nearest};

/// Values that are all below this are taken for zero.
pub const NOTHING: f32 = 1e-15;

/// Quants above a minimum: `scale * quant - depth`.
pub struct Above<const N: usize> {
    pub scale: f32,
    /// The minimum's distance below zero; not negative.
    pub depth: f32,
    pub quants: [u8; N],
}

/// How the scale above a minimum is searched.
pub struct Trials {
    /// The largest quant.
    pub top: i32,
    /// What the first trial adds to `top` as the number of steps in the values' range; the others continue by a tenth.
    pub first: f32,
    /// Trials after the first.
    pub more: u8,
    /// Whether errors count by magnitude; otherwise by square.
    pub by_magnitude: bool,
}

impl Trials {
    #[inline(always)]
    fn quants<const N: usize>(&self, values: &[f32; N], inverse: f32, minimum: f32) -> [u8; N] {
        values.map(|value| nearest(inverse * (value - minimum)).clamp(0, self.top) as u8)
    }

    #[inline(always)]
    fn error<const N: usize>(
        &self,
        values: &[f32; N],
        weights: &[f32; N],
        quants: &[u8; N],
        scale: f32,
        minimum: f32,
    ) -> f32 {
        let mut errors = [0.0; N];
        for (i, error) in errors.iter_mut().enumerate() {
            let difference = scale * f32::from(quants[i]) + minimum - values[i];
            let size = if self.by_magnitude { difference.abs() } else { difference * difference };
            *error = weights[i] * size;
        }
        errors.iter().fold(0.0, |sum, error| sum + error)
    }

    /// Searches scale and depth: each trial's quants get the least-squares line, and the line with the least error wins.
    #[inline(always)]
    pub fn search<const N: usize>(&self, values: &[f32; N], weights: &[f32; N]) -> Above<N> {
        let lowest = values.iter().fold(values[0], |least, value| if *value < least { *value } else { least });
        let highest = values.iter().fold(values[0], |most, value| if *value > most { *value } else { most });
        let mut minimum = if lowest > 0.0 { 0.0 } else { lowest };
        if highest == minimum {
            return Above { scale: 0.0, depth: -minimum, quants: [0; N] };
        }
        let weight = weights[1..].iter().fold(weights[0], |sum, weight| sum + weight);
        let weighted = |sum, (weight, value): (&f32, &f32)| sum + weight * value;
        let weighted_values = weights[1..].iter().zip(&values[1..]).fold(weights[0] * values[0], weighted);

        let inverse = self.top as f32 / (highest - minimum);
        let mut scale = 1.0 / inverse;
        let mut quants = self.quants(values, inverse, minimum);
        let mut least = self.error(values, weights, &quants, scale, minimum);
        for trial in 0..=self.more {
            // The minimum is that of the best trial so far: later trials start from there.
            let inverse = (self.first + 0.1 * f32::from(trial) + self.top as f32) / (highest - minimum);
            let candidate = self.quants(values, inverse, minimum);
            let (mut linear, mut square, mut product) = (0.0, 0.0, 0.0);
            for ((quant, weight), value) in candidate.iter().zip(weights).zip(values) {
                let quant = f32::from(*quant);
                linear += weight * quant;
                square += weight * quant * quant;
                product += weight * quant * value;
            }
            let determinant = weight * square - linear * linear;
            if determinant > 0.0 {
                let mut slope = (weight * product - weighted_values * linear) / determinant;
                let mut offset = (square * weighted_values - linear * product) / determinant;
                if offset > 0.0 {
                    offset = 0.0;
                    slope = product / square;
                }
                let error = self.error(values, weights, &candidate, slope, offset);
                if error < least {
                    (least, scale, minimum, quants) = (error, slope, offset, candidate);
                }
            }
        }
        Above { scale, depth: -minimum, quants }
    }
}

/// Quants about zero, counted from `-bottom`: `scale * (quant - bottom)`.
pub struct Around<const N: usize> {
    pub scale: f32,
    pub quants: [u8; N],
}

/// The quant of `value / scale` for `inverse = 1 / scale`, from `-bottom` to `bottom - 1`.
#[inline(always)]
fn about_zero(inverse: f32, value: f32, bottom: i32) -> i32 {
    nearest(inverse * value).clamp(-bottom, bottom - 1)
}

/// Sums of a least-squares fit weighted by the values' squares: of products and of squared quants.
#[inline(always)]
fn moments<const N: usize>(values: &[f32; N], quants: &[i32; N]) -> (f32, f32) {
    let (mut products, mut squares) = (0.0, 0.0);
    for (value, quant) in values.iter().zip(quants) {
        let (weight, quant) = (value * value, *quant as f32);
        products += weight * value * quant;
        squares += weight * quant * quant;
    }
    (products, squares)
}

/// Tries nineteen scales near the one that maps the extreme value to the lowest quant (`make_qx_quants`).
#[inline(always)]
pub fn try_scales<const N: usize>(values: &[f32; N], bottom: i32) -> Around<N> {
    let extreme = extreme(values);
    if extreme.abs() < NOTHING {
        return Around { scale: 0.0, quants: [0; N] };
    }
    let at = |inverse: f32| values.map(|value| about_zero(inverse, value, bottom));
    let mut quants = at(-bottom as f32 / extreme);
    let (products, squares) = moments(values, &quants);
    let mut scale = if squares == 0.0 { 0.0 } else { products / squares };
    let mut best = scale * products;
    for trial in (-9_i8..=9).filter(|trial| *trial != 0) {
        let candidate = at(-(bottom as f32 + 0.1 * f32::from(trial)) / extreme);
        let (products, squares) = moments(values, &candidate);
        if squares > 0.0 && products * products > best * squares {
            quants = candidate;
            scale = products / squares;
            best = scale * products;
        }
    }
    Around { scale, quants: quants.map(|quant| (quant + bottom) as u8) }
}

/// Starts where the extreme value is the lowest quant and changes single quants for as long as the fit gets better, in at
/// most five rounds (`make_q3_quants`).
#[inline(always)]
pub fn improve_quants<const N: usize>(values: &[f32; N], bottom: i32) -> Around<N> {
    let extreme = extreme(values);
    if extreme.abs() < NOTHING {
        return Around { scale: 0.0, quants: [0; N] };
    }
    let inverse = -bottom as f32 / extreme;
    let mut quants = values.map(|value| about_zero(inverse, value, bottom));
    let (mut products, mut squares) = moments(values, &quants);
    for _ in 0..5 {
        let mut changed = false;
        for (value, quant) in values.iter().zip(&mut quants) {
            let (weight, old) = (value * value, *quant as f32);
            // The sums without this value.
            let (mut product, mut square) = (products - weight * value * old, squares - weight * old * old);
            if product > 0.0 {
                let new = nearest(value * square / product).clamp(-bottom, bottom - 1);
                if new != *quant {
                    product += weight * value * new as f32;
                    square += weight * new as f32 * new as f32;
                    if square > 0.0 && product * product * squares > products * products * square {
                        (*quant, products, squares) = (new, product, square);
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    let scale = if squares > 0.0 { products / squares } else { 0.0 };
    Around { scale, quants: quants.map(|quant| (quant + bottom) as u8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARES: Trials = Trials { top: 15, first: -1.0, more: 20, by_magnitude: false };

    #[test]
    fn a_line_is_found() {
        let values: [f32; 32] = std::array::from_fn(|i| (i % 16) as f32 * 0.25 - 1.0);
        let found = SQUARES.search(&values, &[1.0; 32]);
        assert_eq!(found.quants, std::array::from_fn(|i| (i % 16) as u8));
        assert!((found.scale - 0.25).abs() < 1e-6 && (found.depth - 1.0).abs() < 1e-6);
    }

    #[test]
    fn constant_values_need_no_scale() {
        let found = SQUARES.search(&[-2.0; 32], &[1.0; 32]);
        assert_eq!((found.scale, found.depth, found.quants), (0.0, 2.0, [0; 32]));
        // Positive ones lie above the minimum zero, at the top quant.
        let found = SQUARES.search(&[2.0; 32], &[1.0; 32]);
        assert_eq!((found.depth, found.quants), (0.0, [15; 32]));
    }

    #[test]
    fn quants_about_zero() {
        let values: [f32; 16] = std::array::from_fn(|i| i as f32 - 8.0);
        let found = try_scales(&values, 32);
        let worst =
            values.iter().zip(found.quants).map(|(value, q)| (value - found.scale * (f32::from(q) - 32.0)).abs());
        assert!(worst.fold(0.0, f32::max) < 0.13);

        let values: [f32; 16] = std::array::from_fn(|i| (i % 8) as f32 * 0.5 - 2.0);
        let found = improve_quants(&values, 4);
        assert_eq!(found.quants, std::array::from_fn(|i| (i % 8) as u8));
        assert!((found.scale - 0.5).abs() < 1e-6);
        assert_eq!((try_scales(&[1e-16; 16], 32).quants, improve_quants(&[0.0; 16], 4).scale), ([0; 16], 0.0));
    }
}
