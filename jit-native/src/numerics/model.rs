//! What the vector unit computes, as far as [`Lanes`] uses it, for tests without an array. Written from the description of the
//! instructions (docs/emulator.md), not from the emulator.

use super::Lanes;

/// Sixteen lanes computed one by one.
#[derive(Debug, Default)]
pub struct Model {
    /// Operations so far.
    pub operations: usize,
}

type Sixteen<T> = [T; 16];

/// The nearest bf16.
pub fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 1;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// A bf16 as f32.
pub fn wide(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// A sum of f32 and products of bf16: terms are rounded to multiples of 2^-23 of the largest term's scale, which is the sum of the
/// exponents of a product, added exactly, and the sum is rounded to nearest even.
fn sum(start: Option<f32>, products: [(u16, u16); 2], negate: bool) -> f32 {
    let mut terms: Vec<(f64, i32)> = Vec::new();
    let exponent = |x: f32| (x.to_bits() >> 23 & 0xff) as i32;
    let mut special = false;
    if let Some(x) = start
        && exponent(x) != 0
    {
        special |= exponent(x) == 255;
        terms.push((f64::from(x), exponent(x) - 127));
    }
    for (a, b) in products.map(|(a, b)| (wide(a), wide(b))) {
        if exponent(a) != 0 && exponent(b) != 0 {
            special |= exponent(a) == 255 || exponent(b) == 255;
            let product = f64::from(a) * f64::from(b);
            terms.push((if negate { -product } else { product }, exponent(a) + exponent(b) - 254));
        }
    }
    if special {
        return f32::NAN;
    }
    let Some(scale) = terms.iter().map(|(_, exponent)| *exponent).max() else { return 0.0 };
    let unit = 2f64.powi(scale - 23);
    // Each is a small whole number of units, so that f64 adds them exactly.
    let total: f64 = terms.iter().map(|(x, _)| (x / unit).round_ties_even()).sum();
    let result = (total * unit) as f32;
    if result.is_normal() || result.is_infinite() { result } else { 0.0 * result.signum() }
}

impl Model {
    fn each<T: Default + Copy>(&mut self, function: impl Fn(usize) -> T) -> Sixteen<T> {
        self.operations += 1;
        std::array::from_fn(function)
    }
}

impl Lanes for Model {
    type Float = Sixteen<f32>;
    type Word = Sixteen<u32>;
    type Pair = [Sixteen<u16>; 2];
    type Mask = u16;

    fn word(&mut self, word: u32) -> Self::Word {
        [word; 16]
    }
    fn pair(&mut self, low: u16, high: u16) -> Self::Pair {
        [[low; 16], [high; 16]]
    }
    fn bits(&mut self, x: Self::Float) -> Self::Word {
        self.each(|i| x[i].to_bits())
    }
    fn float(&mut self, x: Self::Word) -> Self::Float {
        self.each(|i| f32::from_bits(x[i]))
    }
    fn add(&mut self, a: Self::Float, b: Self::Float) -> Self::Float {
        self.each(|i| a[i] + b[i])
    }
    fn sub(&mut self, a: Self::Float, b: Self::Float) -> Self::Float {
        self.each(|i| a[i] - b[i])
    }
    fn narrow(&mut self, low: Self::Float, high: Self::Float) -> Self::Pair {
        [self.each(|i| nearest(low[i])), self.each(|i| nearest(high[i]))]
    }
    fn swapped(&mut self, [low, high]: Self::Pair) -> Self::Pair {
        [high, low]
    }
    fn head(&mut self, x: Self::Float) -> Self::Float {
        self.operations += 1;
        self.each(|i| wide(nearest(x[i])))
    }
    fn multiply(&mut self, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.each(|i| sum(None, [(a[0][i], b[0][i]), (a[1][i], b[1][i])], false))
    }
    fn multiply_add(&mut self, s: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.each(|i| sum(Some(s[i]), [(a[0][i], b[0][i]), (a[1][i], b[1][i])], false))
    }
    fn multiply_sub(&mut self, s: Self::Float, a: Self::Pair, b: Self::Pair) -> Self::Float {
        self.each(|i| sum(Some(s[i]), [(a[0][i], b[0][i]), (a[1][i], b[1][i])], true))
    }
    fn add_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i].wrapping_add(b[i]))
    }
    fn sub_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i].wrapping_sub(b[i]))
    }
    fn and(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i] & b[i])
    }
    fn or(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i] | b[i])
    }
    fn shift_left(&mut self, x: Self::Word, by: u32) -> Self::Word {
        self.operations += 1;
        self.each(|i| x[i] << by)
    }
    fn shift_right(&mut self, x: Self::Word, by: u32) -> Self::Word {
        self.operations += 1;
        self.each(|i| (x[i].cast_signed() >> by).cast_unsigned())
    }
    fn less(&mut self, a: Self::Word, b: Self::Word) -> Self::Mask {
        self.operations += 1;
        (0..16).map(|i| u16::from(a[i].cast_signed() < b[i].cast_signed()) << i).sum()
    }
    fn select(&mut self, a: Self::Word, b: Self::Word, mask: Self::Mask) -> Self::Word {
        self.each(|i| if mask >> i & 1 == 1 { b[i] } else { a[i] })
    }
    fn max_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i].cast_signed().max(b[i].cast_signed()).cast_unsigned())
    }
    fn min_words(&mut self, a: Self::Word, b: Self::Word) -> Self::Word {
        self.each(|i| a[i].cast_signed().min(b[i].cast_signed()).cast_unsigned())
    }
}
