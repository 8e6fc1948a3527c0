//! Values as points of a lattice: iq1, iq2 and iq3, read only (ggml's CPU backend does not convert to them).
//!
//! A super-block of 256 values consists of 32 groups of eight. A group is one point with eight coordinates, or two with four,
//! by its index in a grid; iq2 and iq3 have magnitudes in the grid and signs beside it. Source: ggml-common.h,
//! ggml-quants.c.

mod grids;

use super::conversion::widen;
use super::{Block, formats, layout};

formats! {
    /// Points of 256, 7 bits of signs, scales for 32 values.
    IQ2XXS;
    /// Points of 512, 7 bits of signs, scales for 16 values.
    IQ2XS;
    /// Points of 1024, 8 bits of signs, scales for 16 values.
    IQ2S;
    /// Two points of 256, 7 bits of signs, scales for 32 values.
    IQ3XXS;
    /// Two points of 512, 8 bits of signs, scales for 32 values.
    IQ3S;
    /// Points of 2048 with a common shift and scale for 32 values.
    IQ1S;
    /// Points of 2048, a shift each, scales for 16 values.
    IQ1M;
}

/// Coordinates of iq2: 8, 25 or 43.
#[inline(always)]
fn iq2_point(word: u16) -> [i32; 8] {
    std::array::from_fn(|j| {
        let level = i32::from(word >> (2 * j) & 3);
        8 + 17 * level + (level >> 1)
    })
}

/// Coordinates of two points of iq3_xxs: 4, 12, 20, 28, 36, 44, 52 or 62.
#[inline(always)]
fn iq3_xxs_points(words: [u16; 2]) -> [i32; 8] {
    std::array::from_fn(|j| {
        let level = i32::from(words[j / 4] >> (j % 4 * 3) & 7);
        4 + 8 * level + ((level + 1) >> 3 << 1)
    })
}

/// Coordinates of two points of iq3_s: the odd numbers from 1 to 15.
#[inline(always)]
fn iq3_s_points(words: [u16; 2]) -> [i32; 8] {
    std::array::from_fn(|j| 2 * i32::from(words[j / 4] >> (j % 4 * 3) & 7) + 1)
}

/// The eighth sign makes the number of negative ones even.
#[inline(always)]
fn signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Scaled coordinates with signs, a set bit for minus.
#[inline(always)]
fn signed(point: [i32; 8], signs: u8, scale: f32, out: &mut [f32]) {
    for (j, (value, coordinate)) in out.iter_mut().zip(point).enumerate() {
        let magnitude = scale * coordinate as f32;
        *value = f32::from_bits(magnitude.to_bits() ^ u32::from(signs >> j & 1) << 31);
    }
}

/// Coordinates -1, 0 or 1 of an iq1 point, shifted by an eighth down or up.
#[inline(always)]
fn shifted(index: u16, down: bool, scale: f32, out: &mut [f32]) {
    let word = grids::IQ1[usize::from(index & 2047)];
    let shift = if down { -0.125 } else { 0.125 };
    for (j, value) in out.iter_mut().enumerate() {
        *value = scale * (f32::from((word >> (2 * j) & 3).cast_signed() - 1) + shift);
    }
}

/// Scale of iq2 from four bits.
#[inline(always)]
fn quarter_step(scale: f32, bits: u8) -> f32 {
    scale * (0.5 + f32::from(bits)) * 0.25
}

/// The two bytes at `2 * index` as a word.
#[inline(always)]
fn pair(bytes: &[u8], index: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])
}

/// The four bytes at `4 * index` as a word.
#[inline(always)]
fn quad(bytes: &[u8], index: usize) -> u32 {
    u32::from(pair(bytes, 2 * index)) | u32::from(pair(bytes, 2 * index + 1)) << 16
}

impl Block for IQ2XXS {
    layout!(IQ2_XXS, 66, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref runs @ ..]: &[u8; 66], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        // Of each run of 32: four indices, then a word of four times seven signs and the scale.
        for (values, bytes) in out.as_chunks_mut::<32>().0.iter_mut().zip(runs.as_chunks::<8>().0) {
            let word = quad(bytes, 1);
            let step = quarter_step(scale, (word >> 28) as u8);
            for (group, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let point = iq2_point(grids::IQ2_XXS[usize::from(bytes[group])]);
                signed(point, signs(word >> (7 * group)), step, values);
            }
        }
    }
}

impl Block for IQ2XS {
    layout!(IQ2_XS, 74, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref rest @ ..]: &[u8; 74], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (groups, scales) = rest.split_at(64);
        for (group, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = pair(groups, group);
            let step = quarter_step(scale, scales[group / 4] >> (group / 2 % 2 * 4) & 15);
            let point = iq2_point(grids::IQ2_XS[usize::from(word & 511)]);
            signed(point, signs(u32::from(word >> 9)), step, values);
        }
    }
}

impl Block for IQ2S {
    layout!(IQ2_S, 82, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref rest @ ..]: &[u8; 82], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (low, rest) = rest.split_at(32);
        let (signs, rest) = rest.split_at(32);
        let (high, scales) = rest.split_at(8);
        for (group, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let index = usize::from(low[group]) | usize::from(high[group / 4] >> (group % 4 * 2) & 3) << 8;
            let step = quarter_step(scale, scales[group / 4] >> (group / 2 % 2 * 4) & 15);
            signed(iq2_point(grids::IQ2_S[index]), signs[group], step, values);
        }
    }
}

impl Block for IQ3XXS {
    layout!(IQ3_XXS, 98, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref rest @ ..]: &[u8; 98], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (indices, words) = rest.split_at(64);
        for (run, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let word = quad(words, run);
            let step = scale * (0.5 + (word >> 28) as f32) * 0.5;
            for (group, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let at = 8 * run + 2 * group;
                let points = [indices[at], indices[at + 1]].map(|index| grids::IQ3_XXS[usize::from(index)]);
                signed(iq3_xxs_points(points), signs(word >> (7 * group)), step, values);
            }
        }
    }
}

impl Block for IQ3S {
    layout!(IQ3_S, 110, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref rest @ ..]: &[u8; 110], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (low, rest) = rest.split_at(64);
        let (high, rest) = rest.split_at(8);
        let (signs, scales) = rest.split_at(32);
        for (group, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let step = scale * f32::from(1 + 2 * (scales[group / 8] >> (group / 4 % 2 * 4) & 15));
            // Point `p` of 64 has its ninth bit at place `p % 8` of byte `p / 8`.
            let points = [2 * group, 2 * group + 1].map(|point| {
                let ninth = usize::from(high[point / 8] >> (point % 8) & 1);
                grids::IQ3_S[usize::from(low[point]) | ninth << 8]
            });
            signed(iq3_s_points(points), signs[group], step, values);
        }
    }
}

impl Block for IQ1S {
    layout!(IQ1_S, 50, 256);

    #[inline(always)]
    fn decode(&[s0, s1, ref rest @ ..]: &[u8; 50], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (low, words) = rest.split_at(32);
        // A word: four times three bits of index, three of scale, one of shift.
        for (group, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = pair(words, group / 4);
            let step = scale * f32::from(2 * (word >> 12 & 7) + 1);
            let index = u16::from(low[group]) | (word >> (group % 4 * 3) & 7) << 8;
            shifted(index, word & 0x8000 != 0, step, values);
        }
    }
}

impl Block for IQ1M {
    layout!(IQ1_M, 56, 256);

    #[inline(always)]
    fn decode(block: &[u8; 56], out: &mut [f32; 256]) {
        let (low, rest) = block.split_at(32);
        let (high, scales) = rest.split_at(16);
        let words: [u16; 4] = std::array::from_fn(|i| pair(scales, i));
        // The f16 scale is in the top four bits of the words, from the lowest part on.
        let scale =
            widen((words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12).to_le_bytes());
        for (group, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let step = scale * f32::from(2 * (words[group / 8] >> (group / 2 % 4 * 3) & 7) + 1);
            // Three bits of index and one of shift.
            let nibble = u16::from(high[group / 2] >> (group % 2 * 4) & 15);
            shifted(u16::from(low[group]) | (nibble & 7) << 8, nibble & 8 != 0, step, values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable as _;

    #[test]
    fn levels() {
        assert_eq!(iq2_point(0b10_01_00_10_01_00_01_10), [43, 25, 8, 25, 43, 8, 25, 43]);
        assert_eq!(iq3_xxs_points([0o3210, 0o7654]), [4, 12, 20, 28, 36, 44, 52, 62]);
        assert_eq!(iq3_s_points([0o3210, 0o7654]), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!([0, 1, 3, 127].map(signs), [0, 0x81, 3, 0xff]);
    }

    /// Points of a grid are distinct, and the ternary ones have no fourth level.
    #[test]
    fn grids_are_sound() {
        fn check(grid: &[u16], ternary: bool) {
            let mut sorted = grid.to_vec();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|two| two[0] < two[1]));
            let limit = if ternary { word_without_threes } else { |word: u16| word < 0o10000 };
            assert!(sorted.iter().all(|word| limit(*word)));
        }
        fn word_without_threes(word: u16) -> bool {
            word & word >> 1 & 0x5555 == 0
        }
        check(&grids::IQ2_XXS, true);
        check(&grids::IQ2_XS, true);
        check(&grids::IQ2_S, true);
        check(&grids::IQ1, true);
        check(&grids::IQ3_XXS, false);
        check(&grids::IQ3_S, false);
    }

    /// With all bits zero and scale 2: the first point of the grid at the least step.
    #[test]
    fn first_points() {
        fn first<F: Block>(step: f32, expected: [f32; 8]) {
            let mut out = F::Values::zeroed();
            let mut bytes = vec![0; F::BYTES];
            bytes[1] = 0x40;
            if F::TYPE == crate::tensor::DataType::IQ1_M {
                (bytes[1], bytes[55]) = (0, 0x40);
            }
            F::decode(bytemuck::from_bytes(&bytes), &mut out);
            assert_eq!(out.as_ref()[..8], expected.map(|value| value * step), "{}", F::TYPE);
        }
        first::<IQ2XXS>(0.25, [8.0; 8]);
        first::<IQ2XS>(0.25, [8.0; 8]);
        first::<IQ2S>(0.25, [8.0; 8]);
        first::<IQ3XXS>(0.5, [4.0; 8]);
        first::<IQ3S>(2.0, [1.0; 8]);
        first::<IQ1S>(2.0, [-0.875; 8]);
        first::<IQ1M>(2.0, [-0.875; 8]);
    }

    /// Fields away from zero, in the last group of the block.
    #[test]
    fn last_groups() {
        let mut out = [0.0; 256];
        let mut block = [0; 66];
        block[..2].copy_from_slice(&[0x00, 0x40]);
        block[62..].copy_from_slice(&(0xf000_0000_u32 | 1 << 21).to_le_bytes());
        IQ2XXS::decode(&block, &mut out);
        assert_eq!(out[248..], [-62.0, 62.0, 62.0, 62.0, 62.0, 62.0, 62.0, -62.0]);

        let mut block = [0; 110];
        block[..2].copy_from_slice(&[0x00, 0x3c]);
        (block[105], block[109]) = (0x82, 0x70);
        IQ3S::decode(&block, &mut out);
        assert_eq!(out[248..], [15.0, -15.0, 15.0, 15.0, 15.0, 15.0, 15.0, -15.0]);

        let mut block = [0; 50];
        block[..2].copy_from_slice(&[0x00, 0x3c]);
        block[48..].copy_from_slice(&0xf000_u16.to_le_bytes());
        IQ1S::decode(&block, &mut out);
        assert_eq!(out[255], 15.0 * -1.125);
    }
}
