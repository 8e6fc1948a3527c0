//! Encoding of the super-block formats.
//!
//! Sub-blocks get the scales of [`k_fit`](super::k_fit); these are rounded to few bits against the largest, and the quants are
//! then chosen again for the scales as they are stored. Source: ggml-quants.c (`quantize_row_*_K_ref`).

use super::Encode;
use super::conversion::{extreme, narrow, nearest, widen_any};
use super::k_fit::{NOTHING, Trials, improve_quants, try_scales};
use super::k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K, six_bit_pairs, six_bit_scales};

/// The largest of numbers above zero, or zero.
#[inline(always)]
fn largest<const N: usize>(numbers: &[f32; N]) -> f32 {
    numbers.iter().fold(0.0, |most, number| if *number > most { *number } else { most })
}

/// Quants for a stored scale and depth, from 0 to `top`. Those of before stay when the scale is zero.
#[inline(always)]
fn choose_again<const N: usize>(values: &[f32; N], scale: f32, depth: f32, top: i32, quants: &mut [u8; N]) {
    if scale != 0.0 {
        *quants = values.map(|value| nearest((value + depth) / scale).clamp(0, top) as u8);
    }
}

/// As [`choose_again`] for quants about zero, counted from `-bottom`.
#[inline(always)]
fn choose_about_zero(values: &[f32; 16], scale: f32, bottom: i32, quants: &mut [u8; 16]) {
    if scale != 0.0 {
        *quants = values.map(|value| (nearest(value / scale).clamp(-bottom, bottom - 1) + bottom) as u8);
    }
}

/// Low two bits of four runs of 32 in 32 bytes, for each half.
#[inline(always)]
fn pack_two_bits(quants: &[u8; 256], bytes: &mut [u8; 64]) {
    for (half, bytes) in quants.as_chunks::<128>().0.iter().zip(bytes.as_chunks_mut::<32>().0) {
        for (j, byte) in bytes.iter_mut().enumerate() {
            let quant = |run: usize| half[32 * run + j] & 3;
            *byte = quant(0) | quant(1) << 2 | quant(2) << 4 | quant(3) << 6;
        }
    }
}

impl Encode for Q2K {
    #[inline(always)]
    fn encode(values: &[f32; 256], block: &mut [u8; 84]) {
        const TRIALS: Trials = Trials { top: 3, first: -0.5, more: 15, by_magnitude: true };
        let (mut scales, mut depths, mut quants) = ([0.0; 16], [0.0; 16], [0; 256]);
        let subs = values.as_chunks::<16>().0;
        for (sub, (values, quants)) in subs.iter().zip(quants.as_chunks_mut::<16>().0).enumerate() {
            let found = TRIALS.search(values, &values.map(f32::abs));
            (scales[sub], depths[sub], *quants) = (found.scale, found.depth, found.quants);
        }
        let [packed @ .., s0, s1, m0, m1] = block;
        let (steps, bytes) = packed.split_at_mut(16);
        let (most_scale, most_depth) = (largest(&scales), largest(&depths));
        // Of the fifteen steps, as many as fit; none without a positive number.
        let parts = |number: f32, most: f32| if most > 0.0 { nearest(15.0 / most * number) } else { 0 };
        for (sub, step) in steps.iter_mut().enumerate() {
            *step = parts(scales[sub], most_scale) as u8 | (parts(depths[sub], most_depth) << 4) as u8;
        }
        [*s0, *s1] = narrow(most_scale / 15.0);
        [*m0, *m1] = narrow(most_depth / 15.0);
        let (scale, minimum) = (widen_any([*s0, *s1]), widen_any([*m0, *m1]));
        for ((values, quants), step) in subs.iter().zip(quants.as_chunks_mut::<16>().0).zip(steps) {
            let (scale, depth) = (scale * f32::from(*step & 15), minimum * f32::from(*step >> 4));
            choose_again(values, scale, depth, 3, quants);
        }
        if let Some(bytes) = bytes.first_chunk_mut() {
            pack_two_bits(&quants, bytes);
        }
    }
}

impl Encode for Q3K {
    #[inline(always)]
    fn encode(values: &[f32; 256], block: &mut [u8; 110]) {
        let (mut scales, mut quants) = ([0.0; 16], [0; 256]);
        let subs = values.as_chunks::<16>().0;
        for (sub, (values, quants)) in subs.iter().zip(quants.as_chunks_mut::<16>().0).enumerate() {
            let found = improve_quants(values, 4);
            (scales[sub], *quants) = (found.scale, found.quants);
        }
        let [rest @ .., s0, s1] = block;
        let (high, rest) = rest.split_at_mut(32);
        let (bytes, packed) = rest.split_at_mut(64);
        let most = extreme(&scales);
        let mut steps = [0_u8; 12];
        let mut scale = 0.0;
        if most != 0.0 {
            let inverse = -32.0 / most;
            scale = 1.0 / inverse;
            for (sub, number) in scales.iter().enumerate() {
                let step = (nearest(inverse * number) as i8).clamp(-32, 31).wrapping_add(32).cast_unsigned();
                steps[sub % 8] |= (step & 15) << (sub / 8 * 4);
                steps[8 + sub % 4] |= step >> 4 << (sub / 4 * 2);
            }
        }
        packed.copy_from_slice(&steps);
        [*s0, *s1] = narrow(scale);
        let scale = widen_any([*s0, *s1]);
        let sub_quants = quants.as_chunks_mut::<16>().0.iter_mut();
        for ((values, quants), step) in subs.iter().zip(sub_quants).zip(six_bit_scales(&steps)) {
            choose_about_zero(values, scale * f32::from(step), 4, quants);
        }
        for (j, byte) in high.iter_mut().enumerate() {
            *byte = (0..8).fold(0, |byte, run| byte | quants[32 * run + j] >> 2 << run);
        }
        if let Some(bytes) = bytes.first_chunk_mut() {
            pack_two_bits(&quants, bytes);
        }
    }
}

/// What q4_K and q5_K have in common: the two f16, the packed scales and minimums, and the quants.
#[inline(always)]
fn above_minimums(values: &[f32; 256], trials: &Trials) -> ([u8; 16], [u8; 256]) {
    let (mut scales, mut depths, mut quants) = ([0.0; 8], [0.0; 8], [0; 256]);
    let subs = values.as_chunks::<32>().0;
    for (sub, (values, quants)) in subs.iter().zip(quants.as_chunks_mut::<32>().0).enumerate() {
        let squares = values.iter().fold(0.0, |sum, value| sum + value * value);
        let typical = (squares / 32.0_f32).sqrt();
        let found = trials.search(values, &values.map(|value| typical + value.abs()));
        (scales[sub], depths[sub], *quants) = (found.scale, found.depth, found.quants);
    }
    let (most_scale, most_depth) = (largest(&scales), largest(&depths));
    let inverse = |most: f32| if most > 0.0 { 63.0 / most } else { 0.0 };
    let (scale_parts, depth_parts) = (inverse(most_scale), inverse(most_depth));
    let mut packed = [0_u8; 12];
    for sub in 0..8 {
        let step = (nearest(scale_parts * scales[sub]) as u8).min(63);
        let floor = (nearest(depth_parts * depths[sub]) as u8).min(63);
        if sub < 4 {
            (packed[sub], packed[sub + 4]) = (step, floor);
        } else {
            packed[sub + 4] = step & 15 | floor << 4;
            packed[sub - 4] |= step >> 4 << 6;
            packed[sub] |= floor >> 4 << 6;
        }
    }
    let ([s0, s1], [m0, m1]) = (narrow(most_scale / 63.0), narrow(most_depth / 63.0));
    let (scale, minimum) = (widen_any([s0, s1]), widen_any([m0, m1]));
    let (steps, floors) = six_bit_pairs(&packed);
    for (sub, (values, quants)) in subs.iter().zip(quants.as_chunks_mut::<32>().0).enumerate() {
        let (scale, depth) = (scale * f32::from(steps[sub]), minimum * f32::from(floors[sub]));
        choose_again(values, scale, depth, trials.top, quants);
    }
    let mut header = [s0, s1, m0, m1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&packed);
    (header, quants)
}

/// Low four bits of a run of 32 in the low halves of 32 bytes, those of the next in the high halves.
#[inline(always)]
fn pack_four_bits(quants: &[u8; 256], bytes: &mut [u8]) {
    for (pair, bytes) in quants.as_chunks::<64>().0.iter().zip(bytes.as_chunks_mut::<32>().0) {
        for (j, byte) in bytes.iter_mut().enumerate() {
            *byte = pair[j] & 15 | pair[j + 32] << 4;
        }
    }
}

impl Encode for Q4K {
    #[inline(always)]
    fn encode(values: &[f32; 256], block: &mut [u8; 144]) {
        const TRIALS: Trials = Trials { top: 15, first: -1.0, more: 20, by_magnitude: false };
        let (header, quants) = above_minimums(values, &TRIALS);
        let (front, bytes) = block.split_at_mut(16);
        front.copy_from_slice(&header);
        pack_four_bits(&quants, bytes);
    }
}

impl Encode for Q5K {
    #[inline(always)]
    fn encode(values: &[f32; 256], block: &mut [u8; 176]) {
        const TRIALS: Trials = Trials { top: 31, first: -0.5, more: 15, by_magnitude: false };
        let (header, quants) = above_minimums(values, &TRIALS);
        let (front, rest) = block.split_at_mut(16);
        let (high, bytes) = rest.split_at_mut(32);
        front.copy_from_slice(&header);
        for (j, byte) in high.iter_mut().enumerate() {
            *byte = (0..8).fold(0, |byte, run| byte | quants[32 * run + j] >> 4 << run);
        }
        pack_four_bits(&quants, bytes);
    }
}

impl Encode for Q6K {
    #[inline(always)]
    fn encode(values: &[f32; 256], block: &mut [u8; 210]) {
        let (mut scales, mut quants) = ([0.0; 16], [0; 256]);
        let subs = values.as_chunks::<16>().0;
        for (sub, (values, quants)) in subs.iter().zip(quants.as_chunks_mut::<16>().0).enumerate() {
            let found = try_scales(values, 32);
            (scales[sub], *quants) = (found.scale, found.quants);
        }
        let most = extreme(&scales);
        if most.abs() < NOTHING {
            *block = [0; 210];
            return;
        }
        let [rest @ .., s0, s1] = block;
        let (low, rest) = rest.split_at_mut(128);
        let (high, steps) = rest.split_at_mut(64);
        let inverse = -128.0 / most;
        [*s0, *s1] = narrow(1.0 / inverse);
        let scale = widen_any([*s0, *s1]);
        for (sub, step) in steps.iter_mut().enumerate() {
            *step = nearest(inverse * scales[sub]).min(127) as u8;
        }
        for ((values, quants), step) in subs.iter().zip(quants.as_chunks_mut::<16>().0).zip(steps) {
            choose_about_zero(values, scale * f32::from(step.cast_signed()), 32, quants);
        }
        let halves = quants.as_chunks::<128>().0.iter();
        for ((quants, low), high) in halves.zip(low.as_chunks_mut::<64>().0).zip(high.as_chunks_mut::<32>().0) {
            for (j, byte) in low.iter_mut().enumerate() {
                *byte = quants[j] & 15 | quants[j + 64] << 4;
            }
            for (j, byte) in high.iter_mut().enumerate() {
                *byte = (0..4).fold(0, |byte, run| byte | quants[32 * run + j] >> 4 << (2 * run));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{Block, decode, encode};
    use crate::tensor::DataType;
    use rstest::rstest;

    /// Waves of all sub-blocks' sizes, not about zero.
    fn waves() -> [f32; 256] {
        std::array::from_fn(|i| ((i * i) as f32 * 0.11).sin() * (1.0 + (i / 32) as f32) + 0.25)
    }

    /// A block after encoding and decoding.
    fn returned(dtype: DataType, values: &[f32; 256]) -> Vec<f32> {
        let (mut bytes, mut back) = (vec![0xaa; dtype.block_bytes()], vec![1.0; 256]);
        assert!(encode(dtype, values, &mut bytes) && decode(dtype, &bytes, &mut back));
        back
    }

    /// Half a step of each format, and what rounding the scales adds, in parts of the values' range, which is about 16.
    #[rstest]
    #[case(DataType::Q2_K, 0.25)]
    #[case(DataType::Q3_K, 0.15)]
    #[case(DataType::Q4_K, 0.045)]
    #[case(DataType::Q5_K, 0.022)]
    #[case(DataType::Q6_K, 0.02)]
    fn waves_return_within_a_step_and_nothing_is_zero(#[case] dtype: DataType, #[case] limit: f32) {
        let errors = waves().into_iter().zip(returned(dtype, &waves())).map(|(a, b)| (a - b).abs() / 16.0);
        let worst = errors.fold(0.0, f32::max);
        assert!(worst < limit, "{worst}");
        assert_eq!(returned(dtype, &[0.0; 256]), [0.0; 256]);
    }

    /// A line of sixteen steps in each run of 32 is what q4_K holds exactly.
    #[test]
    fn lines_return() {
        let line: [f32; 256] = std::array::from_fn(|i| (i % 16) as f32 - 5.0);
        let (mut bytes, mut back) = ([0; 144], [0.0; 256]);
        Q4K::encode(&line, &mut bytes);
        Q4K::decode(&bytes, &mut back);
        assert!(line.iter().zip(back).all(|(a, b)| (a - b).abs() < 0.02), "{back:?}");
        assert_eq!((bytes[16], bytes[31]), (0x00, 0xff));
    }
}
