//! Ternary values with a scale: tq1_0 packs five to a byte, tq2_0 four; 256 to a block.
//!
//! The scale is an f16 at the end of the block, and a quant of 0, 1, 2 stands for -1, 0, 1 times it. Source: ggml-common.h,
//! ggml-quants.c.

use super::conversion::{magnitude, narrow, reciprocal, round_away, widen};
use super::{Block, Encode, formats, layout};

formats! {
    /// Five values to a byte.
    TQ1_0;
    /// Four values to a byte, two bits each.
    TQ2_0;
}

/// The five digits of a byte, first to last: byte / 256 is a number below one written in base three, so a multiplication
/// by three brings the next digit before the point.
#[inline(always)]
fn digit(byte: u8, position: usize) -> i8 {
    let fraction = byte.wrapping_mul([1, 3, 9, 27, 81][position]);
    ((u16::from(fraction) * 3) >> 8) as i8
}

/// The byte whose digits are `digits`: the smallest fraction of 256 that is not below the number.
#[inline(always)]
fn byte(digits: [i32; 5]) -> u8 {
    let number = digits.iter().fold(0_u8, |number, digit| number.wrapping_mul(3).wrapping_add(*digit as u8));
    (u32::from(number) * 256).div_ceil(243) as u8
}

/// Quants of `bytes` go to runs of as many values: the first digit of all, then the second of all, and so on.
#[inline(always)]
fn unpack(bytes: &[u8], scale: f32, out: &mut [f32]) {
    for (position, run) in out.chunks_exact_mut(bytes.len()).enumerate() {
        for (value, byte) in run.iter_mut().zip(bytes) {
            *value = f32::from(digit(*byte, position) - 1) * scale;
        }
    }
}

/// The reverse of [`unpack`]. Digits without a value are zero.
#[inline(always)]
fn pack(values: &[f32], inverse: f32, bytes: &mut [u8]) {
    let run = bytes.len();
    for (j, target) in bytes.iter_mut().enumerate() {
        *target = byte(
            [0, 1, 2, 3, 4]
                .map(|position| values.get(position * run + j).map_or(0, |value| round_away(value * inverse) + 1)),
        );
    }
}

impl Block for TQ1_0 {
    layout!(TQ1_0, 54, 256);

    #[inline(always)]
    fn decode(block: &[u8; 54], out: &mut [f32; 256]) {
        let [bytes @ .., s0, s1] = block;
        let scale = widen([*s0, *s1]);
        unpack(&bytes[..32], scale, &mut out[..160]);
        unpack(&bytes[32..48], scale, &mut out[160..240]);
        unpack(&bytes[48..], scale, &mut out[240..]);
    }
}

impl Encode for TQ1_0 {
    #[inline(always)]
    fn encode(values: &[f32; 256], [bytes @ .., s0, s1]: &mut [u8; 54]) {
        let scale = magnitude(values);
        let inverse = reciprocal(scale);
        [*s0, *s1] = narrow(scale);
        pack(&values[..160], inverse, &mut bytes[..32]);
        pack(&values[160..240], inverse, &mut bytes[32..48]);
        pack(&values[240..], inverse, &mut bytes[48..]);
    }
}

impl Block for TQ2_0 {
    layout!(TQ2_0, 66, 256);

    #[inline(always)]
    fn decode(block: &[u8; 66], out: &mut [f32; 256]) {
        let [quants @ .., s0, s1] = block;
        let scale = widen([*s0, *s1]);
        for (run, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (j, value) in values.iter_mut().enumerate() {
                let quant = quants[32 * (run / 4) + j] >> (run % 4 * 2) & 3;
                *value = f32::from(quant.cast_signed() - 1) * scale;
            }
        }
    }
}

impl Encode for TQ2_0 {
    #[inline(always)]
    fn encode(values: &[f32; 256], [quants @ .., s0, s1]: &mut [u8; 66]) {
        let scale = magnitude(values);
        let inverse = reciprocal(scale);
        [*s0, *s1] = narrow(scale);
        for (j, byte) in quants.iter_mut().enumerate() {
            let quant = |run: usize| (round_away(values[128 * (j / 32) + 32 * run + j % 32] * inverse) + 1) as u8 & 3;
            *byte = quant(0) | quant(1) << 2 | quant(2) << 4 | quant(3) << 6;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ternary pattern that differs between all positions of a byte.
    fn pattern() -> [f32; 256] {
        std::array::from_fn(|i| (i * i / 3 % 3) as f32 * 0.5 - 0.5)
    }

    #[test]
    fn digits_of_a_byte() {
        for number in 0..243 {
            let digits = [81, 27, 9, 3, 1].map(|power| number / power % 3);
            let packed = byte(digits);
            assert_eq!([0, 1, 2, 3, 4].map(|position| i32::from(digit(packed, position))), digits);
        }
        // 242 is 22222 in base three; 242 * 256 / 243, rounded up, is 255.
        assert_eq!((byte([2; 5]), byte([0; 5]), byte([1, 0, 0, 0, 0])), (255, 0, 86));
    }

    #[test]
    fn ternary_values_return() {
        let (values, mut out) = (pattern(), [9.0; 256]);
        let mut block = [0; 54];
        TQ1_0::encode(&values, &mut block);
        TQ1_0::decode(&block, &mut out);
        assert_eq!(out, values);
        assert_eq!(block[52..], [0x00, 0x38]);
        let mut block = [0; 66];
        TQ2_0::encode(&values, &mut block);
        TQ2_0::decode(&block, &mut out);
        assert_eq!(out, values);
        assert_eq!(block[64..], [0x00, 0x38]);
    }

    #[test]
    fn places_by_hand() {
        let mut block = [0x55; 66];
        block[64..].copy_from_slice(&[0x00, 0x40]);
        block[33] = 0b00_01_10_01;
        let mut out = [9.0; 256];
        TQ2_0::decode(&block, &mut out);
        assert_eq!([0, 129, 161, 193, 225].map(|i| out[i]), [0.0, 0.0, 2.0, 0.0, -2.0]);

        let mut block = [byte([1; 5]); 54];
        block[52..].copy_from_slice(&[0x00, 0x40]);
        block[31] = byte([0, 2, 1, 1, 2]);
        block[33] = byte([1, 1, 2, 1, 0]);
        block[51] = byte([2, 1, 1, 0, 0]);
        TQ1_0::decode(&block, &mut out);
        assert_eq!([31, 63, 95, 127, 159].map(|i| out[i]), [-2.0, 2.0, 0.0, 0.0, 2.0]);
        assert_eq!([161, 177, 193, 209, 225].map(|i| out[i]), [0.0, 0.0, 2.0, 0.0, -2.0]);
        assert_eq!([243, 247, 251, 255].map(|i| out[i]), [2.0, 0.0, 0.0, -2.0]);
    }
}
