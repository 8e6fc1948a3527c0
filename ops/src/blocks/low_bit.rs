//! One and two bits with a scale: q1_0 in blocks of 128, q2_0 in blocks of 64.
//!
//! The scale is an f16 and comes first; values follow from the lowest bits of each byte on. Source: ggml-common.h,
//! ggml-quants.c.

use super::conversion::{magnitude, narrow, truncate, widen};
use super::{Block, Encode, formats, layout};

formats! {
    /// Signs: `scale` for a set bit, `-scale` for one that is not.
    Q1_0;
    /// Two bits: `scale * (q - 1)`.
    Q2_0;
}

impl Block for Q1_0 {
    layout!(Q1_0, 18, 128);

    #[inline(always)]
    fn decode(&[s0, s1, ref bits @ ..]: &[u8; 18], out: &mut [f32; 128]) {
        let scale = widen([s0, s1]).to_bits();
        for (values, byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
            for (j, value) in values.iter_mut().enumerate() {
                *value = f32::from_bits(scale ^ u32::from(!byte >> j & 1) << 31);
            }
        }
    }
}

impl Encode for Q1_0 {
    #[inline(always)]
    fn encode(values: &[f32; 128], [s0, s1, bits @ ..]: &mut [u8; 18]) {
        let sum = values.iter().fold(0.0, |sum, value| sum + value.abs());
        [*s0, *s1] = narrow(sum / 128.0);
        for (byte, values) in bits.iter_mut().zip(values.as_chunks::<8>().0) {
            *byte = values.iter().rev().fold(0, |byte, value| byte << 1 | u8::from(*value >= 0.0));
        }
    }
}

impl Block for Q2_0 {
    layout!(Q2_0, 18, 64);

    #[inline(always)]
    fn decode(&[s0, s1, ref quants @ ..]: &[u8; 18], out: &mut [f32; 64]) {
        let scale = widen([s0, s1]);
        for (values, byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(quants) {
            for (j, value) in values.iter_mut().enumerate() {
                *value = f32::from((byte >> (2 * j) & 3).cast_signed() - 1) * scale;
            }
        }
    }
}

impl Encode for Q2_0 {
    #[inline(always)]
    fn encode(values: &[f32; 64], [s0, s1, quants @ ..]: &mut [u8; 18]) {
        let scale = magnitude(values);
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        [*s0, *s1] = narrow(scale);
        for (byte, values) in quants.iter_mut().zip(values.as_chunks::<4>().0) {
            let quant = |value: &f32| truncate((value * inverse).round()).saturating_add(1).clamp(0, 3) as u8;
            *byte = values.iter().rev().fold(0, |byte, value| byte << 2 | quant(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_by_hand() {
        let mut block = [0; 18];
        block[..4].copy_from_slice(&[0x00, 0x3e, 0b101, 0x80]);
        let mut out = [0.0; 128];
        Q1_0::decode(&block, &mut out);
        assert_eq!((&out[..4], out[15], out[127]), (&[1.5, -1.5, 1.5, -1.5][..], 1.5, -1.5));

        let mut again = [0xff; 18];
        Q1_0::encode(&out, &mut again);
        assert_eq!(again, block);
    }

    #[test]
    fn two_bits_by_hand() {
        let mut block = [0b0101_0101; 18];
        block[..3].copy_from_slice(&[0x00, 0x3e, 0b11_10_01_00]);
        let mut out = [1.0; 64];
        Q2_0::decode(&block, &mut out);
        assert_eq!((&out[..4], out[4], out[63]), (&[-1.5, 0.0, 1.5, 3.0][..], 0.0, 0.0));

        // The scale is the largest magnitude, so quant 3 is never written.
        let mut values = [0.0; 64];
        values[..4].copy_from_slice(&[-2.0, -0.9, 1.0, 2.0]);
        Q2_0::encode(&values, &mut block);
        assert_eq!(block[..4], [0x00, 0x40, 0b10_10_01_00, 0b01_01_01_01]);
    }
}
