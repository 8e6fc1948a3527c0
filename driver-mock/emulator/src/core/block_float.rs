//! Block floating point: 64 mantissas of 8 bits in two's complement, then the exponents of the eight blocks of eight.

use super::lanes::{self, Bytes};
use super::rounding::Rounding;
use super::shape::Operands;

/// Where the exponents begin.
pub const EXPONENTS: usize = 64;
/// Numbers of a block.
const BLOCK: usize = 8;

/// 64 numbers of fp32.
///
/// A block has the largest exponent of its numbers. A mantissa is the 24-bit significand in two's complement without its lowest 17
/// bits, 1.0 being 0x40, and without a further bit for each by which its own exponent is less. Known for rounding towards minus
/// infinity; that other modes round at once what is cut, and that 128 becomes 127, is inferred.
pub fn from_fp32(rounding: Rounding, source: &Bytes, out: &mut Bytes) {
    for block in 0..64 / BLOCK {
        let numbers: [u32; BLOCK] = std::array::from_fn(|index| lanes::get(source, 32, block * BLOCK + index) as u32);
        let exponent = |number: u32| number >> 23 & 0xff;
        let largest = numbers.iter().copied().map(exponent).max().unwrap_or(0);
        for (index, number) in numbers.iter().enumerate() {
            let significand = if exponent(*number) == 0 { 0 } else { i128::from(number & 0x7f_ffff | 0x80_0000) };
            let value = if number >> 31 == 1 { -significand } else { significand };
            // More than 32 bits are never left.
            let cut = 17 + (largest - exponent(*number)).min(32);
            out[block * BLOCK + index] = rounding.shift_right(value, cut).min(127) as u8;
        }
        out[EXPONENTS + block] = largest as u8;
    }
}

/// Blocks of eight mantissas with one exponent: lane `i * 8 + j` gets row i of the left factor times row j of the right one.
/// The sum of products is exact; only the addition to the accumulator is rounded.
pub fn multiply(
    operands: &Operands<'_>,
    [has_first, has_second]: [bool; 2],
    [negate_first, _, negate_product]: [bool; 3],
    out: &mut Bytes,
) -> Option<()> {
    let both_signed = operands.configuration >> 8 & 3 == 3;
    if has_second || !both_signed || [operands.left_bytes, operands.right_bytes] != [EXPONENTS + 8; 2] {
        return None;
    }
    for lane in 0..64 {
        let (row, column) = (lane / 8, lane % 8);
        let mantissa = |bytes: &Bytes, index| lanes::number(bytes, 8, index, true);
        let products = (0..8).map(|k| mantissa(operands.left, row * 8 + k) * mantissa(operands.right, column * 8 + k));
        let sum: i64 = products.sum();
        let exponent = i32::from(operands.left[EXPONENTS + row]) + i32::from(operands.right[EXPONENTS + column]) - 254;
        let product = (sum as f64 * 2f64.powi(exponent) / 4096.0) * if negate_product { -1.0 } else { 1.0 };
        let first = f32::from_bits(lanes::get(operands.first, 32, lane) as u32);
        let first = if !has_first {
            0.0
        } else if negate_first {
            -first
        } else {
            first
        };
        // Both are exact in double precision; where their sum is not, the second rounding can differ in the last place only if the
        // first lands on a tie, which 17 significant bits beside 24 cannot make within 53 unless they are far apart.
        lanes::set(out, 32, lane, ((f64::from(first) + product) as f32).to_bits().into());
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_exponent_of_its_largest_number() {
        let (mut source, mut out) = ([0; 256], [0; 256]);
        for (lane, number) in [1.0f32, 0.5, -1.0, 1.984_375, 1e-9, -1e-9, 0.0, 0.75].iter().enumerate() {
            lanes::set(&mut source, 32, lane, number.to_bits().into());
        }
        lanes::set(&mut source, 32, 8, 4.0f32.to_bits().into());
        from_fp32(Rounding::Floor, &source, &mut out);
        // Small numbers are cut to 0 and -1.
        assert_eq!(out[..9], [0x40, 0x20, 0xc0, 0x7f, 0, 0xff, 0, 0x30, 0x40]);
        assert_eq!(out[EXPONENTS..EXPONENTS + 3], [127, 129, 0]);
        from_fp32(Rounding::NearestEven, &source, &mut out);
        assert_eq!(out[4..6], [0, 0]);
        lanes::set(&mut source, 32, 3, (511f32 / 256.0).to_bits().into());
        from_fp32(Rounding::NearestEven, &source, &mut out);
        assert_eq!(out[3], 127, "128 has no place");
    }
}
