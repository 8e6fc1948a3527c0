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
    for lane in 0..operands.bytes / 4 {
        let mut sum = Aligned::default();
        if !operation.product {
            // Two accumulators, added as the array adds fp32; agrees with the published programs.
            let first = if has_first { single(operands.first, lane, negate_first) } else { 0 };
            let second = if has_second { single(operands.second, lane, negate_second) } else { 0 };
            lanes::set(out, 32, lane, (f32::from_bits(first) + f32::from_bits(second)).to_bits().into());
            continue;
        }
        if has_first {
            sum.single(single(operands.first, lane, negate_first));
        }
        if has_second {
            sum.single(single(operands.second, lane, negate_second));
        }
        if let Some(shape) = shape.filter(|shape| lane < shape.lanes()) {
            for term in 0..shape.products() {
                let (left, right) = shape.terms(lane, term);
                let (left, right) = (lanes::get(operands.left, 16, left), lanes::get(operands.right, 16, right));
                sum.product(left as u16, right as u16, negate_product);
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

/// The most terms of one lane: sixteen products and two accumulators.
const MOST_TERMS: usize = 18;

/// A floating-point sum as the array makes it, seen in values captured on silicon: all terms are aligned to the largest exponent
/// with 23 fractional bits, each rounded to nearest even; the sum is exact, and rounded to nearest even in the end.
/// Numbers with exponent 0 count as zero.
#[derive(Default)]
struct Aligned {
    /// (sign, significand, exponent of its lowest bit relative to 2^-277, comparable exponent).
    terms: arrayvec::ArrayVec<(bool, u64, i32, i32), MOST_TERMS>,
    /// A NaN or infinity went in: the sum of all terms with exponent 255 taken as an ordinary one decides the sign.
    special: bool,
}

impl Aligned {
    fn product(&mut self, left: u16, right: u16, negate: bool) {
        let exponent = |x: u16| i32::from(x >> 7 & 0xff);
        let significand = |x: u16| u64::from(x & 0x7f | 0x80);
        if exponent(left) == 0 || exponent(right) == 0 {
            return;
        }
        self.special |= exponent(left) == 255 || exponent(right) == 255;
        let sum = exponent(left) + exponent(right);
        let negative = (left ^ right) >> 15 == 1;
        self.terms.push((negative != negate, significand(left) * significand(right), 9, sum));
    }

    fn single(&mut self, bits: u32) {
        let exponent = (bits >> 23 & 0xff) as i32;
        if exponent == 0 {
            return;
        }
        self.special |= exponent == 255;
        self.terms.push((bits >> 31 == 1, u64::from(bits & 0x7f_ffff | 0x80_0000), 0, exponent + 127));
    }

    fn finish(&self) -> u32 {
        let Some(largest) = self.terms.iter().map(|(.., exponent)| *exponent).max() else {
            return 0;
        };
        let mut sum = 0i64;
        for (negative, significand, up, exponent) in &self.terms {
            let aligned = round_even((*significand) << up, (largest - exponent).cast_unsigned()).cast_signed();
            sum += if *negative { -aligned } else { aligned };
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
        let magnitude = sum.unsigned_abs();
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
