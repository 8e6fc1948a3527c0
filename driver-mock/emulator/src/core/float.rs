//! Floating-point multiply-accumulate: bf16 factors, sums of fp32 with the array's own rounding.

use super::lanes::{self, Bytes};
use super::operation::Accumulate;
use super::shape::{Operands, Shape};

/// Sums of bf16 products and accumulators on AIE2, and sums of accumulators on both generations.
pub fn sums(
    operation: Accumulate,
    shape: Option<Shape>,
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, negate_second, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    let single = |bytes: &Bytes, lane, negate: bool| lanes::get(bytes, 32, lane) as u32 ^ u32::from(negate) << 31;
    if !operation.product {
        // Two accumulators, added as the array adds fp32; agrees with the published programs.
        for lane in 0..operands.bytes / 4 {
            let first = if has_first { single(operands.first, lane, negate_first) } else { 0 };
            let second = if has_second { single(operands.second, lane, negate_second) } else { 0 };
            lanes::set(out, 32, lane, (f32::from_bits(first) + f32::from_bits(second)).to_bits().into());
        }
        return Some(());
    }
    let (left, right) = (Factor::new(operands.left, negate_product), Factor::new(operands.right, false));
    for lane in 0..operands.bytes / 4 {
        let mut sum = Aligned::new();
        if has_first {
            sum.single(single(operands.first, lane, negate_first));
        }
        if has_second {
            sum.single(single(operands.second, lane, negate_second));
        }
        if let Some(shape) = shape.filter(|shape| lane < shape.lanes()) {
            for term in 0..shape.products() {
                let (of_left, of_right) = shape.terms(lane, term);
                sum.product(left.element(of_left), right.element(of_right));
            }
        }
        lanes::set(out, 32, lane, sum.finish().into());
    }
    Some(())
}

/// bf16 by element on AIE2P: the product is exact in fp32, and one addition follows.
pub fn by_element(
    shape: Shape,
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, _, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    // In which order three terms are rounded is not public.
    if has_second {
        return None;
    }
    let bf16 = |bytes: &Bytes, lane| f32::from_bits((lanes::get(bytes, 16, lane) as u32) << 16);
    for lane in 0..operands.bytes / 4 {
        let mut sum = 0f32;
        if lane < shape.lanes() {
            let product = bf16(operands.left, lane) * bf16(operands.right, lane);
            sum = if negate_product { -product } else { product };
            if has_first {
                let first = f32::from_bits(lanes::get(operands.first, 32, lane) as u32);
                sum += if negate_first { -first } else { first };
            }
        }
        lanes::set(out, 32, lane, sum.to_bits().into());
    }
    Some(())
}

/// Elements of bf16 that a factor has.
const ELEMENTS: usize = 32;
/// Terms of one lane that there is room for: sixteen products and two accumulators, and a power of two.
const TERMS: usize = 32;
/// The exponent of a term that counts as zero: less than all others.
const ABSENT: i32 = -1;

/// The numbers of a factor, each with its exponent, 0 for what counts as zero, and its significand with the sign.
struct Factor([(i32, i32); ELEMENTS]);

impl Factor {
    fn new(bytes: &Bytes, negate: bool) -> Self {
        let mut elements = [(0, 0); ELEMENTS];
        for (element, bytes) in elements.iter_mut().zip(bytes.as_chunks().0) {
            let number = u16::from_le_bytes(*bytes);
            let significand = i32::from(number & 0x7f | 0x80);
            let is_negative = (number >> 15 == 1) != negate;
            *element = (i32::from(number >> 7 & 0xff), if is_negative { -significand } else { significand });
        }
        Self(elements)
    }

    #[inline(always)]
    fn element(&self, index: usize) -> (i32, i32) {
        self.0[index % ELEMENTS]
    }
}

/// A floating-point sum as the array makes it, seen in values captured on silicon: all terms are aligned to the largest exponent
/// with 23 fractional bits, each rounded to nearest even; the sum is exact, and rounded to nearest even in the end.
/// Numbers with exponent 0 count as zero.
struct Aligned {
    /// Of each term the exponent that it is compared by, and the significand with its sign, whose lowest bit is worth 2^-277 at
    /// exponent 0. It has 25 bits at most, so a sum of all fits.
    terms: [(i32, i32); TERMS],
    count: usize,
    largest: i32,
    /// A NaN or infinity went in: the sum of all terms with exponent 255 taken as an ordinary one decides the sign.
    special: bool,
}

impl Aligned {
    #[inline(always)]
    fn new() -> Self {
        Self { terms: [(ABSENT, 0); TERMS], count: 0, largest: ABSENT, special: false }
    }

    #[inline(always)]
    fn add(&mut self, exponent: i32, significand: i32) {
        self.terms[self.count % TERMS] = (exponent, significand);
        self.count += 1;
        self.largest = self.largest.max(exponent);
    }

    #[inline(always)]
    fn product(&mut self, left: (i32, i32), right: (i32, i32)) {
        let is_there = left.0 != 0 && right.0 != 0;
        self.special |= is_there && (left.0 == 255 || right.0 == 255);
        let exponent = if is_there { left.0 + right.0 } else { ABSENT };
        let product = (left.1 * right.1) << 9;
        self.add(exponent, if is_there { product } else { 0 });
    }

    #[inline(always)]
    fn single(&mut self, bits: u32) {
        let exponent = (bits >> 23 & 0xff).cast_signed();
        if exponent == 0 {
            return;
        }
        self.special |= exponent == 255;
        let significand = (bits & 0x7f_ffff | 0x80_0000).cast_signed();
        self.add(exponent + 127, if bits >> 31 == 1 { -significand } else { significand });
    }

    fn finish(&self) -> u32 {
        let largest = self.largest;
        if largest == ABSENT {
            return 0;
        }
        let mut sum = 0;
        for (exponent, significand) in &self.terms[..self.count.min(TERMS)] {
            let aligned = align(significand.unsigned_abs(), (largest - exponent).cast_unsigned()).cast_signed();
            sum += if *significand < 0 { -aligned } else { aligned };
        }
        let negative = sum < 0;
        let sign = u32::from(negative) << 31;
        if self.special {
            return sign | 0x7f80_0001;
        }
        if sum == 0 {
            return 0;
        }
        // sum * 2^(largest - 277), normalised to 24 bits.
        let magnitude = u64::from(sum.unsigned_abs());
        let extra = 64 - magnitude.leading_zeros() as i32 - 24;
        let mut rounded = if extra > 0 { round_even(magnitude, extra.cast_unsigned()) } else { magnitude << -extra };
        let mut exponent = largest - 277 + 150 + extra;
        if rounded >> 24 == 1 {
            rounded >>= 1;
            exponent += 1;
        }
        match exponent {
            ..=0 => sign,
            255.. => sign | 0x7f80_0000,
            _ => sign | exponent.cast_unsigned() << 23 | rounded as u32 & 0x7f_ffff,
        }
    }
}

/// `value / 2^shift`, to nearest, ties to even, of a value of at most 25 bits.
#[inline(always)]
fn align(value: u32, shift: u32) -> u32 {
    // Without a branch, in halves: nothing is left of such a value from 26 on.
    let shift = shift.min(30);
    (2 * value + (1 << shift) - 1 + (value >> shift & 1)) >> (shift + 1)
}

/// `value / 2^shift`, to nearest, ties to even.
fn round_even(value: u64, shift: u32) -> u64 {
    if shift == 0 {
        return value;
    }
    if shift > 63 {
        return 0;
    }
    let (floor, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    floor + u64::from(rest > half || rest == half && floor & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_as_they_are_rounded() {
        let mut random = fastrand::Rng::with_seed(1);
        let values = (0..20_000).map(|index| random.u32(..1 << 25) >> (index % 25) << (index % 7));
        for value in values.map(|value| value & 0x1ff_ffff).chain([0, 1, 0x1ff_ffff, 1 << 24, 3 << 23]) {
            for shift in (0..40).chain([63, 64, 600]) {
                assert_eq!(u64::from(align(value, shift)), round_even(value.into(), shift), "{value:#x} {shift}");
            }
        }
    }
}
