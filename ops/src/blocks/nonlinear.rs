//! Four bits that stand for 16 unevenly spaced levels: iq4_nl in blocks of 32, iq4_xs in super-blocks of 256.
//!
//! Four bits of value `j` of 32 are the low half of byte `j`, those of value `j + 16` the high half. In iq4_xs each run of 32
//! has a scale of six bits about 32: four in a nibble, two in a 16-bit word. Source: ggml-common.h, ggml-quants.c.

use super::conversion::{extreme, narrow, nearest, reciprocal, widen};
use super::{Block, Encode, formats, layout};

formats! {
    /// A scale for 32 values.
    IQ4NL;
    /// Scales for runs of 32 values, and one for the super-block.
    IQ4XS;
}

/// The levels (`kvalues_iq4nl` of ggml-common.h).
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Runs whose magnitudes are all below this are taken for zero.
const NOTHING: f32 = 1e-15;

/// The level of four bits, by choice between halves with masks: lanes of a vector have no table.
#[inline(always)]
fn level(bits: u8) -> i8 {
    let mask = |bit: u8| (bits >> bit & 1).wrapping_neg();
    let (first, second, third, fourth) = (mask(0), mask(1), mask(2), mask(3));
    let choose = |mask: u8, low: u8, high: u8| low ^ (low ^ high) & mask;
    let pair = |i: usize| choose(first, LEVELS[i].cast_unsigned(), LEVELS[i + 1].cast_unsigned());
    let four = |i: usize| choose(second, pair(i), pair(i + 2));
    choose(fourth, choose(third, four(0), four(4)), choose(third, four(8), four(12))).cast_signed()
}

#[inline(always)]
fn unpack(quants: &[u8; 16], scale: f32, out: &mut [f32; 32]) {
    let mut bits = [0; 32];
    for (j, byte) in quants.iter().enumerate() {
        bits[j] = byte & 15;
        bits[j + 16] = byte >> 4;
    }
    // Levels first, all of them: bytes fill a vector four times as densely as the numbers.
    let mut levels = [0; 32];
    for (level, bits) in levels.iter_mut().zip(bits) {
        *level = self::level(bits);
    }
    for (value, level) in out.iter_mut().zip(levels) {
        *value = scale * f32::from(level);
    }
}

#[inline(always)]
fn pack(quants: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| quants[j] | quants[j + 16] << 4)
}

/// The level nearest to `value`, by its number; the upper of two as near.
#[inline(always)]
fn nearest_level(value: f32) -> u8 {
    let above = 15 - LEVELS[1..15].iter().map(|level| u8::from(value < f32::from(*level))).sum::<u8>();
    let (lower, upper) = (f32::from(LEVELS[usize::from(above) - 1]), f32::from(LEVELS[usize::from(above)]));
    if value - lower < upper - value { above - 1 } else { above }
}

/// A least-squares fit of levels to values, weighted by the values' squares: numerator and denominator of the scale.
#[inline(always)]
fn moments(values: &[f32; 32], quants: &[u8; 32]) -> (f32, f32) {
    let (mut products, mut squares) = (0.0, 0.0);
    for (value, quant) in values.iter().zip(quants) {
        let (level, weight) = (f32::from(LEVELS[usize::from(*quant)]), value * value);
        products += weight * level * value;
        squares += weight * level * level;
    }
    (products, squares)
}

/// The nearest levels of values times `inverse`, and their [`moments`].
#[inline(always)]
fn fit(values: &[f32; 32], inverse: f32) -> (f32, f32, [u8; 32]) {
    let quants = values.map(|value| nearest_level(inverse * value));
    let (products, squares) = moments(values, &quants);
    (products, squares, quants)
}

impl Block for IQ4NL {
    layout!(IQ4_NL, 18, 32);

    #[inline(always)]
    fn decode(&[s0, s1, ref quants @ ..]: &[u8; 18], out: &mut [f32; 32]) {
        unpack(quants, widen([s0, s1]), out);
    }
}

impl Encode for IQ4NL {
    /// A block of nothing gets scale zero and the level nearest to zero. ggml leaves its quants undefined.
    #[inline(always)]
    fn encode(values: &[f32; 32], [s0, s1, bytes @ ..]: &mut [u8; 18]) {
        let extreme = extreme(values);
        if extreme.abs() < NOTHING {
            [*s0, *s1] = narrow(0.0);
            *bytes = pack(&[nearest_level(0.0); 32]);
            return;
        }
        let (products, squares, quants) = fit(values, 1.0 / (extreme / f32::from(LEVELS[0])));
        [*s0, *s1] = narrow(if squares > 0.0 { products / squares } else { 0.0 });
        *bytes = pack(&quants);
    }
}

impl Block for IQ4XS {
    layout!(IQ4_XS, 136, 256);

    #[inline(always)]
    fn decode(&[s0, s1, h0, h1, l0, l1, l2, l3, ref quants @ ..]: &[u8; 136], out: &mut [f32; 256]) {
        let scale = widen([s0, s1]);
        let (low, high) = (u32::from_le_bytes([l0, l1, l2, l3]), u32::from(u16::from_le_bytes([h0, h1])));
        for (run, (values, bytes)) in out.as_chunks_mut::<32>().0.iter_mut().zip(quants.as_chunks::<16>().0).enumerate()
        {
            let step = low >> (4 * run) & 15 | (high >> (2 * run) & 3) << 4;
            unpack(bytes, scale * (step.cast_signed() - 32) as f32, values);
        }
    }
}

/// Trials of a run's scale to either side of the one that maps its extreme value to the first level.
const TRIALS: i32 = 7;

#[inline(always)]
fn best_scale(values: &[f32; 32]) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < NOTHING {
        return 0.0;
    }
    let first = i32::from(LEVELS[0]);
    let (products, squares, _) = fit(values, 1.0 / (-extreme / first as f32));
    let mut scale = if squares > 0.0 { products / squares } else { 0.0 };
    let mut best = scale * products;
    for trial in -TRIALS..=TRIALS {
        let (products, squares, _) = fit(values, (trial + first) as f32 / extreme);
        if squares > 0.0 && products * products > best * squares {
            scale = products / squares;
            best = scale * products;
        }
    }
    scale
}

impl Encode for IQ4XS {
    #[inline(always)]
    fn encode(values: &[f32; 256], [s0, s1, h0, h1, l0, l1, l2, l3, quants @ ..]: &mut [u8; 136]) {
        let runs = values.as_chunks::<32>().0;
        let mut scales = [0.0; 8];
        for (scale, run) in scales.iter_mut().zip(runs) {
            *scale = best_scale(run);
        }
        let scale = -extreme(&scales) / 32.0;
        let inverse = reciprocal(scale);
        let (mut low, mut high) = (0_u32, 0_u16);
        for (run, (values, bytes)) in runs.iter().zip(quants.as_chunks_mut::<16>().0).enumerate() {
            let step = nearest(inverse * scales[run]).clamp(-32, 31);
            let inverse = reciprocal(scale * step as f32);
            *bytes = pack(&values.map(|value| nearest_level(inverse * value)));
            let stored = (step + 32) as u8;
            low |= u32::from(stored & 15) << (4 * run);
            high |= u16::from(stored >> 4) << (2 * run);
        }
        [*s0, *s1] = narrow(scale);
        [*h0, *h1] = high.to_le_bytes();
        [*l0, *l1, *l2, *l3] = low.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_chosen_and_found() {
        for bits in 0..16 {
            let expected = LEVELS[usize::from(bits)];
            assert_eq!(level(bits), expected);
            assert_eq!(nearest_level(f32::from(expected)), bits);
        }
        // Between -10 and 1 lies -4.5; the upper of two as near is taken.
        assert_eq!([-4.5, -4.6, 0.0, 1e9, -1e9, f32::NAN].map(nearest_level), [8, 7, 8, 15, 0, 15]);
    }

    #[test]
    fn values_by_hand() {
        let mut block = [0x88; 18];
        block[..3].copy_from_slice(&[0x00, 0x38, 0xf0]);
        let mut out = [0.0; 32];
        IQ4NL::decode(&block, &mut out);
        assert_eq!((out[0], out[16], out[1]), (-63.5, 56.5, 0.5));
        let mut again = [0; 18];
        IQ4NL::encode(&out, &mut again);
        assert_eq!(again, block);
        IQ4NL::encode(&[1e-16; 32], &mut again);
        assert_eq!(again[..3], [0, 0, 0x88]);
    }

    #[test]
    fn runs_by_hand() {
        let mut block = [0x88; 136];
        block[..8].copy_from_slice(&[0x00, 0x38, 0x01, 0x80, 0x02, 0, 0, 0xf0]);
        block[8] = 0x08;
        let mut out = [0.0; 256];
        IQ4XS::decode(&block, &mut out);
        // Steps: 18 - 32, 0 - 32, ..., 47 - 32 of scale 0.5.
        assert_eq!((out[0], out[16], out[1], out[32], out[255]), (-7.0, 889.0, -7.0, -16.0, 7.5));
    }

    #[test]
    fn runs_return() {
        // All levels in each run; steps -32 and seven times 8.
        let mut block = [0; 136];
        block[..8].copy_from_slice(&[0x00, 0x38, 0xa8, 0xaa, 0x80, 0x88, 0x88, 0x88]);
        block[8..].iter_mut().zip((0..16).cycle()).for_each(|(byte, j)| *byte = j | (15 - j) << 4);
        let (mut out, mut again) = ([0.0; 256], [0; 136]);
        IQ4XS::decode(&block, &mut out);
        assert_eq!((out[0], out[16], out[32], out[255]), (2032.0, -1808.0, -508.0, -508.0));
        IQ4XS::encode(&out, &mut again);
        assert_eq!(again, block);
    }
}
