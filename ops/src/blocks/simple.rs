//! Blocks of 32 values with one scale, and a minimum in some: q4_0, q4_1, q5_0, q5_1, q8_0.
//!
//! Scale and minimum are f16 and come first. Four bits of value `j` are the low half of byte `j`, four of value `j + 16` the
//! high half of the same byte; fifth bits are the bits of a 32-bit word. Source: ggml-common.h, ggml-quants.c.

use super::conversion::{extreme, magnitude, narrow, reciprocal, truncate, widen};
use super::{Block, Encode, formats, layout};

formats! {
    /// Four bits about zero: `scale * (q - 8)`.
    Q4_0;
    /// Four bits above a minimum: `scale * q + minimum`.
    Q4_1;
    /// Five bits about zero: `scale * (q - 16)`.
    Q5_0;
    /// Five bits above a minimum: `scale * q + minimum`.
    Q5_1;
    /// Signed bytes: `scale * q`.
    Q8_0;
}

/// Splits 16 bytes to 32 values of four bits, adds the fifth from `high`, and hands each to `value`.
#[inline(always)]
fn unpack(quants: &[u8; 16], high: u32, out: &mut [f32; 32], value: impl Fn(i32) -> f32) {
    let (front, back) = out.split_at_mut(16);
    for (j, (target, byte)) in front.iter_mut().zip(quants).enumerate() {
        *target = value(i32::from(byte & 15) | (high >> j & 1).cast_signed() << 4);
    }
    for (j, (target, byte)) in back.iter_mut().zip(quants).enumerate() {
        *target = value(i32::from(byte >> 4) | (high >> (j + 16) & 1).cast_signed() << 4);
    }
}

/// The reverse of [`unpack`]: 32 quants to 16 bytes and the word of fifth bits.
#[inline(always)]
fn pack(quants: [u8; 32], bytes: &mut [u8; 16]) -> [u8; 4] {
    let mut high = 0_u32;
    for (j, byte) in bytes.iter_mut().enumerate() {
        *byte = quants[j] & 15 | quants[j + 16] << 4;
    }
    for (j, quant) in quants.iter().enumerate() {
        high |= u32::from(quant >> 4 & 1) << j;
    }
    high.to_le_bytes()
}

/// Scale and quants about zero: the value of the largest magnitude becomes the lowest quant.
#[inline(always)]
fn about_zero(values: &[f32; 32], middle: u8) -> (f32, [u8; 32]) {
    let scale = extreme(values) / -f32::from(middle);
    let inverse = reciprocal(scale);
    let top = 2 * middle - 1;
    (scale, values.map(|value| (truncate(value * inverse + (f32::from(middle) + 0.5)) as u8).min(top)))
}

/// Scale, minimum and quants above the minimum.
#[inline(always)]
fn above_minimum(values: &[f32; 32], top: u8) -> (f32, f32, [u8; 32]) {
    let minimum = values.iter().fold(f32::MAX, |least, value| if *value < least { *value } else { least });
    let maximum = values.iter().fold(f32::MIN, |most, value| if *value > most { *value } else { most });
    let scale = (maximum - minimum) / f32::from(top);
    let inverse = reciprocal(scale);
    (scale, minimum, values.map(|value| (truncate((value - minimum) * inverse + 0.5) as u8).min(top)))
}

impl Block for Q4_0 {
    layout!(Q4_0, 18, 32);

    #[inline(always)]
    fn decode(&[s0, s1, ref quants @ ..]: &[u8; 18], out: &mut [f32; 32]) {
        let scale = widen([s0, s1]);
        unpack(
            quants,
            0,
            out,
            #[inline(always)]
            |q| (q - 8) as f32 * scale,
        );
    }
}

impl Encode for Q4_0 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, bytes @ ..]: &mut [u8; 18]) {
        let (scale, quants) = about_zero(values, 8);
        [*s0, *s1] = narrow(scale);
        pack(quants, bytes);
    }
}

impl Block for Q4_1 {
    layout!(Q4_1, 20, 32);

    #[inline(always)]
    fn decode(&[s0, s1, m0, m1, ref quants @ ..]: &[u8; 20], out: &mut [f32; 32]) {
        let (scale, minimum) = (widen([s0, s1]), widen([m0, m1]));
        unpack(
            quants,
            0,
            out,
            #[inline(always)]
            |q| q as f32 * scale + minimum,
        );
    }
}

impl Encode for Q4_1 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, m0, m1, bytes @ ..]: &mut [u8; 20]) {
        let (scale, minimum, quants) = above_minimum(values, 15);
        [*s0, *s1] = narrow(scale);
        [*m0, *m1] = narrow(minimum);
        pack(quants, bytes);
    }
}

impl Block for Q5_0 {
    layout!(Q5_0, 22, 32);

    #[inline(always)]
    fn decode(&[s0, s1, h0, h1, h2, h3, ref quants @ ..]: &[u8; 22], out: &mut [f32; 32]) {
        let scale = widen([s0, s1]);
        unpack(
            quants,
            u32::from_le_bytes([h0, h1, h2, h3]),
            out,
            #[inline(always)]
            |q| (q - 16) as f32 * scale,
        );
    }
}

impl Encode for Q5_0 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, h0, h1, h2, h3, bytes @ ..]: &mut [u8; 22]) {
        let (scale, quants) = about_zero(values, 16);
        [*s0, *s1] = narrow(scale);
        [*h0, *h1, *h2, *h3] = pack(quants, bytes);
    }
}

impl Block for Q5_1 {
    layout!(Q5_1, 24, 32);

    #[inline(always)]
    fn decode(&[s0, s1, m0, m1, h0, h1, h2, h3, ref quants @ ..]: &[u8; 24], out: &mut [f32; 32]) {
        let (scale, minimum) = (widen([s0, s1]), widen([m0, m1]));
        let high = u32::from_le_bytes([h0, h1, h2, h3]);
        unpack(
            quants,
            high,
            out,
            #[inline(always)]
            |q| q as f32 * scale + minimum,
        );
    }
}

impl Encode for Q5_1 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, m0, m1, h0, h1, h2, h3, bytes @ ..]: &mut [u8; 24]) {
        let (scale, minimum, quants) = above_minimum(values, 31);
        [*s0, *s1] = narrow(scale);
        [*m0, *m1] = narrow(minimum);
        [*h0, *h1, *h2, *h3] = pack(quants, bytes);
    }
}

impl Block for Q8_0 {
    layout!(Q8_0, 34, 32);

    #[inline(always)]
    fn decode(&[s0, s1, ref quants @ ..]: &[u8; 34], out: &mut [f32; 32]) {
        let scale = widen([s0, s1]);
        for (target, quant) in out.iter_mut().zip(quants) {
            *target = f32::from(quant.cast_signed()) * scale;
        }
    }
}

impl Encode for Q8_0 {
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, bytes @ ..]: &mut [u8; 34]) {
        // As ggml's CPU backend does it with AVX2, which is what a copy is compared with: the inverse without a second
        // rounding, ties to even, saturated. Its reference (`quantize_row_q8_0_ref`) differs in ties.
        let largest = magnitude(values);
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        [*s0, *s1] = narrow(largest / 127.0);
        *bytes = values.map(|value| truncate((value * inverse).round_ties_even()).clamp(-128, 127) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scale 0.5 and minimum -3 as f16.
    const HALF: [u8; 2] = [0x00, 0x38];
    const MINUS_THREE: [u8; 2] = [0x00, 0xc2];

    #[test]
    fn values_by_hand() {
        let mut out = [0.0; 32];
        let mut bytes = [0; 18];
        bytes[..2].copy_from_slice(&HALF);
        bytes[2] = 0xf1;
        Q4_0::decode(&bytes, &mut out);
        assert_eq!((out[0], out[16], out[1]), (-3.5, 3.5, -4.0));

        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&HALF);
        bytes[2..4].copy_from_slice(&MINUS_THREE);
        bytes[19] = 0x4f;
        Q4_1::decode(&bytes, &mut out);
        assert_eq!((out[15], out[31], out[0]), (4.5, -1.0, -3.0));

        let mut bytes = [0; 22];
        bytes[..2].copy_from_slice(&HALF);
        bytes[2..6].copy_from_slice(&0x8000_0001_u32.to_le_bytes());
        bytes[6] = 0x21;
        bytes[21] = 0x30;
        Q5_0::decode(&bytes, &mut out);
        assert_eq!((out[0], out[16], out[31], out[1]), (0.5, -7.0, 1.5, -8.0));

        let mut bytes = [0; 24];
        bytes[..2].copy_from_slice(&HALF);
        bytes[2..4].copy_from_slice(&MINUS_THREE);
        bytes[4..8].copy_from_slice(&0x0001_0002_u32.to_le_bytes());
        bytes[8] = 0x21;
        Q5_1::decode(&bytes, &mut out);
        assert_eq!((out[0], out[1], out[16], out[2]), (-2.5, 5.0, 6.0, -3.0));

        let mut bytes = [0; 34];
        bytes[..2].copy_from_slice(&HALF);
        bytes[2] = 0x80;
        bytes[33] = 127;
        Q8_0::decode(&bytes, &mut out);
        assert_eq!((out[0], out[31], out[1]), (-64.0, 63.5, 0.0));
    }

    #[test]
    fn encoding_by_hand() {
        let mut values = [0.0; 32];
        (values[0], values[16], values[31]) = (4.0, -2.0, 3.5);
        let mut bytes = [0; 18];
        Q4_0::encode(&values, &mut bytes);
        // The extreme 4 becomes quant 0 of scale -0.5.
        assert_eq!((&bytes[..3], bytes[17], bytes[3]), (&[0x00, 0xb8, 0xc0][..], 0x18, 0x88));

        let mut bytes = [0; 34];
        values[0] = 127.0;
        values[1] = -2.5;
        Q8_0::encode(&values, &mut bytes);
        assert_eq!((&bytes[..4], bytes[33]), (&[0x00, 0x3c, 127, 0xfe][..], 4));
    }
}
