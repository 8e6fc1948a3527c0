//! Conversions of numbers as ggml's reference quantisation has them on x86-64.
//!
//! Encoded blocks are to equal ggml's byte for byte, also for rows so small that a reciprocal scale is infinite. There, C
//! leaves the conversion to an integer undefined and the processor decides; the functions here do what it does.

/// A finite f16 as f32, exactly. Three instructions, because a block's scales cost as much as its quants otherwise: infinity and
/// NaN, which no sound block has, become numbers beyond 65,504.
#[inline(always)]
pub fn widen(bits: [u8; 2]) -> f32 {
    // The sign is shifted in from the left, and its copies are cut off.
    let bits = (i32::from(i16::from_le_bytes(bits)) << 13).cast_unsigned() & 0x8fff_ffff;
    // The product moves the exponent's bias from 15 to 127, for subnormal numbers too.
    f32::from_bits(bits) * f32::from_bits((127 + 112) << 23)
}

/// Any f16 as f32: as [`widen`], with infinity and NaN unchanged. For encoders, which meet an infinite scale when values are large.
#[inline(always)]
pub fn widen_any(bits: [u8; 2]) -> f32 {
    let value = widen(bits);
    if value.abs() < 65_536.0 { value } else { half::f16::from_le_bytes(bits).to_f32() }
}

/// An f32 as f16, to nearest, ties to even, infinite beyond the range. NaN becomes the quiet NaN without payload.
#[inline(always)]
pub fn narrow(value: f32) -> [u8; 2] {
    let bits = if value.is_nan() {
        0x7e00 | (value.to_bits() >> 16) as u16 & 0x8000
    } else {
        half::f16::from_f32(value).to_bits()
    };
    bits.to_le_bytes()
}

/// Towards zero; `i32::MIN` for what has no such integer, as `cvttss2si` gives it.
#[inline(always)]
pub fn truncate(value: f32) -> i32 {
    if value.abs() < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// To nearest, ties away from zero, as `lroundf` and a conversion to 32 bits: zero for what is not finite.
#[inline(always)]
pub fn round_away(value: f32) -> i32 {
    if value.is_finite() { value.round() as i32 } else { 0 }
}

/// To nearest, ties to even, of magnitudes below 2^22. The sum with 1.5 * 2^23 leaves the integer in the mantissa; larger
/// magnitudes give what is left there.
#[inline(always)]
pub fn nearest(value: f32) -> i32 {
    ((value + 12_582_912.0).to_bits() & 0x007f_ffff).cast_signed() - 0x0040_0000
}

/// The largest magnitude of those that are numbers; by bits, because an order of integers vectorises.
#[inline(always)]
pub fn magnitude<const N: usize>(values: &[f32; N]) -> f32 {
    let number = |bits: u32| if bits <= f32::INFINITY.to_bits() { bits } else { 0 };
    f32::from_bits(values.iter().fold(0, |most, value| most.max(number(value.abs().to_bits()))))
}

/// The first value of the largest magnitude, with its sign.
#[inline(always)]
pub fn extreme<const N: usize>(values: &[f32; N]) -> f32 {
    let magnitude = magnitude(values);
    values.iter().copied().find(|value| value.abs() == magnitude && magnitude > 0.0).unwrap_or(0.0)
}

/// `1 / value`, and 0 for 0.
#[inline(always)]
pub fn reciprocal(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { 1.0 / value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn every_finite_half_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (widen(bits.to_le_bytes()), half::f16::from_bits(bits).to_f32());
            if expected.is_finite() {
                assert_eq!(found.to_bits(), expected.to_bits(), "{bits:#06x}: {found}");
                assert_eq!(narrow(found), bits.to_le_bytes());
            } else {
                assert!(found.is_finite() && found.abs() > 65_504.0, "{bits:#06x}: {found}");
            }
            let any = widen_any(bits.to_le_bytes());
            assert!(any.to_bits() == expected.to_bits() || any.is_nan() && expected.is_nan(), "{bits:#06x}: {any}");
        }
        assert_eq!(narrow(-f32::NAN), 0xfe00_u16.to_le_bytes());
        assert_eq!(narrow(65_520.0), 0x7c00_u16.to_le_bytes());
    }

    #[rstest]
    #[case(2.5, [2, 3, 2])]
    #[case(-2.5, [-2, -3, -2])]
    #[case(-0.6, [0, -1, -1])]
    #[case(3.5, [3, 4, 4])]
    #[case(f32::INFINITY, [i32::MIN, 0, -0x0040_0000])]
    #[case(f32::NAN, [i32::MIN, 0, 0])]
    fn rounding(#[case] value: f32, #[case] expected: [i32; 3]) {
        assert_eq!([truncate(value), round_away(value), nearest(value)], expected);
    }

    #[test]
    fn extremes_keep_the_sign_of_the_first() {
        assert_eq!(extreme(&[1.0, -3.0, 3.0, 2.0]), -3.0);
        assert_eq!(extreme(&[-0.0; 4]).to_bits(), 0);
        assert_eq!(magnitude(&[1.0, -3.0, f32::NAN, 2.0]), 3.0);
        assert_eq!((reciprocal(0.0), reciprocal(-4.0)), (0.0, -0.25));
    }
}
