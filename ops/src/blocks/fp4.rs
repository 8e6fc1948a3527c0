//! Four-bit floats (E2M1) with shared scales: mxfp4 and nvfp4.
//!
//! The magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, the top bit is the sign. Here they count twice, as integers, and scales
//! count half. Negative zero is zero. Four bits of value `j` are the low half of byte `j` of their group, the second half of
//! the group is in the high halves. Sources: OCP Microscaling Formats 1.0 (E2M1, E8M0); ggml-common.h, ggml-quants.c and
//! ggml-impl.h.

use super::conversion::{magnitude, truncate};
use super::{Block, Encode, formats, layout};

formats! {
    /// 32 values with one scale, a power of two (E8M0).
    MXFP4;
    /// Four groups of 16 values with a scale each, an unsigned float of four and three bits (UE4M3).
    NVFP4;
}

/// Twice the value of a four-bit float.
#[inline(always)]
fn doubled(bits: u8) -> i32 {
    let (exponent, mantissa) = (u32::from(bits >> 1 & 3), i32::from(bits & 1));
    let magnitude = if exponent == 0 { mantissa } else { (2 | mantissa) << exponent >> 1 };
    if bits & 8 == 0 { magnitude } else { -magnitude }
}

/// Half of the scale 2^(e - 127). Also of 255, which the standard calls NaN and ggml does not.
#[inline(always)]
fn half_power(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

/// Half of the scale; zero for NaN. Bit 7 has no meaning.
#[inline(always)]
fn half_scale(bits: u8) -> f32 {
    // The product moves the exponent's bias from 7 to 127 and halves, for subnormal numbers too.
    let value = f32::from_bits(u32::from(bits & 0x7f) << 20) * f32::from_bits((127 + 119) << 23);
    if bits == 0x7f { 0.0 } else { value }
}

/// The scale nearest to `value`, halves up; what rounds to 256 or more becomes 448, the largest, as ggml has it.
#[inline(always)]
fn nearest_scale(value: f32) -> u8 {
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    let bits = value.min(448.0).to_bits();
    let exponent = (bits >> 23).cast_signed() - 127 + 7;
    if exponent <= 0 {
        return ((value * 512.0 + 0.5) as u8).min(7);
    }
    // A mantissa that overflows moves on to the next exponent.
    let rounded = (exponent << 3) + (bits >> 20 & 7).cast_signed() + (bits >> 19 & 1).cast_signed();
    if rounded >= 0x78 { 0x7e } else { rounded as u8 }
}

/// The bits of the four-bit floats nearest to `values` at a halved scale; the lower bits win a tie.
#[inline(always)]
fn nearest<const N: usize>(values: &[f32; N], scale: f32) -> [u8; N] {
    let mut chosen = [0; N];
    let mut errors = values.map(|value| (0.0 * scale - value).abs());
    for bits in 1..16 {
        let candidate = doubled(bits) as f32 * scale;
        for ((chosen, least), value) in chosen.iter_mut().zip(&mut errors).zip(values) {
            let error = (candidate - value).abs();
            let better = error < *least;
            *chosen = if better { bits } else { *chosen };
            *least = if better { error } else { *least };
        }
    }
    chosen
}

impl Block for MXFP4 {
    layout!(MXFP4, 17, 32);

    #[inline(always)]
    fn decode(&[exponent, ref quants @ ..]: &[u8; 17], out: &mut [f32; 32]) {
        let scale = half_power(exponent);
        let (front, back) = out.split_at_mut(16);
        for ((front, back), byte) in front.iter_mut().zip(back).zip(quants) {
            *front = doubled(byte & 15) as f32 * scale;
            *back = doubled(byte >> 4) as f32 * scale;
        }
    }
}

impl Encode for MXFP4 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [exponent, bytes @ ..]: &mut [u8; 17]) {
        let most = magnitude(values);
        // The largest E2M1 number is between 2^2 and 2^3. Exponents below zero wrap, as ggml's do.
        *exponent = if most > 0.0 { truncate(most.log2().floor() - 2.0 + 127.0) as u8 } else { 0 };
        let quants = nearest(values, half_power(*exponent));
        for (j, byte) in bytes.iter_mut().enumerate() {
            *byte = quants[j] | quants[j + 16] << 4;
        }
    }
}

impl Block for NVFP4 {
    layout!(NVFP4, 36, 64);

    #[inline(always)]
    fn decode(&[s0, s1, s2, s3, ref quants @ ..]: &[u8; 36], out: &mut [f32; 64]) {
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(quants.as_chunks::<8>().0);
        for ((values, bytes), scale) in groups.zip([s0, s1, s2, s3].map(half_scale)) {
            for (j, byte) in bytes.iter().enumerate() {
                values[j] = doubled(byte & 15) as f32 * scale;
                values[j + 8] = doubled(byte >> 4) as f32 * scale;
            }
        }
    }
}

impl Encode for NVFP4 {
    #[inline(always)]
    fn encode(values: &[f32; 64], block: &mut [u8; 36]) {
        let (scales, quants) = block.split_at_mut(4);
        let groups = values.as_chunks::<16>().0.iter().zip(quants.as_chunks_mut::<8>().0);
        for ((values, bytes), scale) in groups.zip(scales) {
            *scale = nearest_scale(magnitude(values) / 6.0);
            let quants = nearest(values, half_scale(*scale));
            for (j, byte) in bytes.iter_mut().enumerate() {
                *byte = quants[j] | quants[j + 8] << 4;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn the_sixteen_floats() {
        let all: Vec<i32> = (0..16).map(doubled).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);
    }

    #[rstest]
    #[case(0x38, 1.0)]
    #[case(0x7e, 448.0)]
    #[case(0x08, 1.0 / 64.0)]
    #[case(0x07, 7.0 / 512.0)]
    #[case(0x01, 1.0 / 512.0)]
    #[case(0x00, 0.0)]
    fn scales_of_groups(#[case] bits: u8, #[case] scale: f32) {
        assert_eq!(half_scale(bits) * 2.0, scale);
        assert_eq!(nearest_scale(scale), bits);
    }

    #[test]
    fn scales_at_the_edges() {
        assert_eq!((half_scale(0x7f), half_scale(0xff)), (0.0, 240.0));
        assert_eq!([1e9, 256.0, 1.0625, 1.9999, 0.0009, f32::NAN].map(nearest_scale), [0x7e, 0x7e, 0x39, 0x40, 0, 0]);
        assert_eq!(
            [0, 1, 2, 127].map(half_power),
            [2.0_f32.powi(-127) / 2.0, 2.0_f32.powi(-127), 2.0_f32.powi(-126), 0.5]
        );
    }

    #[test]
    fn values_by_hand() {
        let mut block = [0; 17];
        (block[0], block[1], block[16]) = (128, 0xf7, 0x8a);
        let mut out = [9.0; 32];
        MXFP4::decode(&block, &mut out);
        assert_eq!((out[0], out[16], out[15], out[31]), (12.0, -12.0, -2.0, 0.0));
        let mut again = [0; 17];
        MXFP4::encode(&out, &mut again);
        block[16] = 0x0a;
        assert_eq!(again, block);

        let mut block = [0; 36];
        block[..5].copy_from_slice(&[0x38, 0x40, 0, 0, 0x7f]);
        block[12] = 0x2f;
        let mut out = [9.0; 64];
        NVFP4::decode(&block, &mut out);
        assert_eq!((out[0], out[8], out[16], out[24], out[63]), (-6.0, 6.0, -12.0, 2.0, 0.0));
        let mut again = [0xff; 36];
        NVFP4::encode(&out, &mut again);
        assert_eq!(again, block);
    }
}
