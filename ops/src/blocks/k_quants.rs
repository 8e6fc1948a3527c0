//! Super-blocks of 256 values: q2_K to q6_K.
//!
//! A super-block has sub-blocks of 16 or 32 values with small integer scales (and minimums, where values lie above one),
//! which f16 scales of the super-block turn into numbers. Source: ggml-common.h, ggml-quants.c.

use super::conversion::widen;
use super::{Block, formats, layout};

formats! {
    /// Two bits above a minimum, sub-blocks of 16.
    Q2K;
    /// Three bits about zero, sub-blocks of 16.
    Q3K;
    /// Four bits above a minimum, sub-blocks of 32.
    Q4K;
    /// Five bits above a minimum, sub-blocks of 32.
    Q5K;
    /// Six bits about zero, sub-blocks of 16.
    Q6K;
}

/// Four bytes at `index` as a word, to shift and mask four small numbers at once.
#[inline(always)]
fn word(bytes: &[u8; 12], index: usize) -> u32 {
    u32::from_le_bytes([bytes[4 * index], bytes[4 * index + 1], bytes[4 * index + 2], bytes[4 * index + 3]])
}

/// Joins words of four bytes each.
#[inline(always)]
fn bytes<const N: usize>(words: [u32; N]) -> [[u8; 4]; N] {
    words.map(u32::to_le_bytes)
}

/// Scales and minimums of q4_K and q5_K, eight of six bits each. The first four of either are the low bits of their own
/// byte; the others have four bits in a shared byte and two on top of the byte four places before.
#[inline(always)]
pub(super) fn six_bit_pairs(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    const LOW_6: u32 = 0x3f3f_3f3f;
    const LOW_4: u32 = 0x0f0f_0f0f;
    const TOP_2: u32 = 0xc0c0_c0c0;
    let (scale, minimum, shared) = (word(packed, 0), word(packed, 1), word(packed, 2));
    let scales = bytes([scale & LOW_6, shared & LOW_4 | (scale & TOP_2) >> 2]);
    let minimums = bytes([minimum & LOW_6, shared >> 4 & LOW_4 | (minimum & TOP_2) >> 2]);
    let join = |[a, b]: [[u8; 4]; 2]| [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
    (join(scales), join(minimums))
}

/// Scales of q3_K, 16 of six bits about 32: four bits in the first eight bytes, two in the last four.
#[inline(always)]
pub(super) fn six_bit_scales(packed: &[u8; 12]) -> [i8; 16] {
    const LOW_4: u32 = 0x0f0f_0f0f;
    const LOW_2: u32 = 0x0303_0303;
    let (first, second, top) = (word(packed, 0), word(packed, 1), word(packed, 2));
    let words = [
        first & LOW_4 | (top & LOW_2) << 4,
        second & LOW_4 | (top >> 2 & LOW_2) << 4,
        first >> 4 & LOW_4 | (top >> 4 & LOW_2) << 4,
        second >> 4 & LOW_4 | (top >> 6 & LOW_2) << 4,
    ];
    let mut scales = [0; 16];
    for (four, word) in scales.as_chunks_mut::<4>().0.iter_mut().zip(bytes(words)) {
        *four = word.map(|byte| byte.cast_signed() - 32);
    }
    scales
}

/// Splits a block into its fields of fixed sizes, which add up to it.
macro_rules! fields {
    ($bytes:expr => $($name:ident: $size:literal),*) => {
        let rest: &[u8] = $bytes;
        $(let (&$name, rest) = rest.split_first_chunk::<$size>().unwrap_or((&[0; $size], &[]));)*
        debug_assert!(rest.is_empty());
    };
}

impl Block for Q2K {
    layout!(Q2_K, 84, 256);

    #[inline(always)]
    fn decode(block: &[u8; 84], out: &mut [f32; 256]) {
        fields!(block => scales: 16, quants: 64, scale: 2, minimum: 2);
        let (scale, minimum) = (widen(scale), widen(minimum));
        let steps = scales.map(|byte| scale * f32::from(byte & 15));
        let floors = scales.map(|byte| minimum * f32::from(byte >> 4));
        // 32 bytes carry two bits each of four runs of 32 values.
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (half, shift, side) = (sub / 8, sub % 8 / 2 * 2, sub % 2);
            for (j, value) in values.iter_mut().enumerate() {
                let quant = quants[32 * half + 16 * side + j] >> shift & 3;
                *value = steps[sub] * f32::from(quant) - floors[sub];
            }
        }
    }
}

impl Block for Q3K {
    layout!(Q3_K, 110, 256);

    #[inline(always)]
    fn decode(block: &[u8; 110], out: &mut [f32; 256]) {
        fields!(block => high: 32, quants: 64, scales: 12, scale: 2);
        let scale = widen(scale);
        let steps = six_bit_scales(&scales).map(|step| scale * f32::from(step));
        // Bit `r` of a byte of `high` is the third bit of run `r` of 32 values; unset, it takes four off.
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (half, run, side) = (sub / 8, sub / 2, sub % 2);
            for (j, value) in values.iter_mut().enumerate() {
                let low = quants[32 * half + 16 * side + j] >> (run % 4 * 2) & 3;
                let top = high[16 * side + j] >> run & 1;
                *value = steps[sub] * f32::from((low | top << 2).cast_signed() - 4);
            }
        }
    }
}

impl Block for Q4K {
    layout!(Q4_K, 144, 256);

    #[inline(always)]
    fn decode(block: &[u8; 144], out: &mut [f32; 256]) {
        fields!(block => scale: 2, minimum: 2, packed: 12, quants: 128);
        let (scale, minimum) = (widen(scale), widen(minimum));
        let (scales, minimums) = six_bit_pairs(&packed);
        let steps = scales.map(|step| scale * f32::from(step));
        let floors = minimums.map(|floor| minimum * f32::from(floor));
        // 32 bytes carry a run of 32 values in their low and the next in their high halves.
        for (pair, values) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let (low, high) = values.split_at_mut(32);
            for (j, value) in low.iter_mut().enumerate() {
                *value = steps[2 * pair] * f32::from(quants[32 * pair + j] & 15) - floors[2 * pair];
            }
            for (j, value) in high.iter_mut().enumerate() {
                *value = steps[2 * pair + 1] * f32::from(quants[32 * pair + j] >> 4) - floors[2 * pair + 1];
            }
        }
    }
}

impl Block for Q5K {
    layout!(Q5_K, 176, 256);

    #[inline(always)]
    fn decode(block: &[u8; 176], out: &mut [f32; 256]) {
        fields!(block => scale: 2, minimum: 2, packed: 12, high: 32, quants: 128);
        let (scale, minimum) = (widen(scale), widen(minimum));
        let (scales, minimums) = six_bit_pairs(&packed);
        let steps = scales.map(|step| scale * f32::from(step));
        let floors = minimums.map(|floor| minimum * f32::from(floor));
        // As q4_K; bit `r` of a byte of `high` is the fifth bit of run `r`.
        for (run, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (j, value) in values.iter_mut().enumerate() {
                let quant = quants[32 * (run / 2) + j] >> (run % 2 * 4) & 15 | (high[j] >> run & 1) << 4;
                *value = steps[run] * f32::from(quant) - floors[run];
            }
        }
    }
}

impl Block for Q6K {
    layout!(Q6_K, 210, 256);

    #[inline(always)]
    fn decode(block: &[u8; 210], out: &mut [f32; 256]) {
        fields!(block => low: 128, high: 64, scales: 16, scale: 2);
        let scale = widen(scale);
        let steps = scales.map(|step| scale * f32::from(step.cast_signed()));
        // Of each half: two runs of 32 in the low halves of 64 bytes, two in the high halves; top bits in 32 bytes.
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (half, run, side) = (sub / 8, sub % 8 / 2, sub % 2);
            for (j, value) in values.iter_mut().enumerate() {
                let quant = low[64 * half + 32 * (run % 2) + 16 * side + j] >> (run / 2 * 4) & 15;
                let top = high[32 * half + 16 * side + j] >> (2 * run) & 3;
                *value = steps[sub] * f32::from((quant | top << 4).cast_signed() - 32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scale 1 and minimum 2 as f16.
    const ONE: [u8; 2] = [0x00, 0x3c];
    const TWO: [u8; 2] = [0x00, 0x40];

    #[test]
    fn packed_scales() {
        let mut packed = [0; 12];
        // Pair 1: 33 and 18. Pair 6: 45 = 0b10_1101 and 27 = 0b01_1011.
        (packed[1], packed[5]) = (33, 18);
        (packed[2], packed[6], packed[10]) = (0b10 << 6, 0b01 << 6, 0xbd);
        let (scales, minimums) = six_bit_pairs(&packed);
        assert_eq!((scales[1], minimums[1], scales[6], minimums[6]), (33, 18, 45, 27));
        assert_eq!((scales.iter().sum::<u8>(), minimums.iter().sum::<u8>()), (78, 45));

        // Scales 2, 9 and 15 of sixteen: 0b11_0101, 0b01_1010, 0b10_0001, about 32.
        let mut packed = [0; 12];
        (packed[2], packed[1], packed[7]) = (0x05, 0xa0, 0x10);
        (packed[10], packed[9], packed[11]) = (0b11, 0b01 << 4, 0b10 << 6);
        let scales = six_bit_scales(&packed);
        assert_eq!((scales[2], scales[9], scales[15], scales[0]), (53 - 32, 26 - 32, 33 - 32, -32));
    }

    #[test]
    fn two_and_three_bits_by_hand() {
        let mut out = [0.0; 256];
        let mut block = [0; 84];
        block[80..].copy_from_slice(&[ONE, TWO].concat());
        // Sub-block 5 (values 80 to 95 of the first half): 3 of scale 4 less 2 times 1.
        block[5] = 0x14;
        block[16 + 16 + 7] = 3 << 4;
        Q2K::decode(&block, &mut out);
        assert_eq!((out[87], out[86], out[71]), (10.0, -2.0, 0.0));

        let mut block = [0; 110];
        block[108..].copy_from_slice(&ONE);
        // Sub-block 15: scale 33 - 32; quants 2 with and without the third bit.
        (block[96 + 7], block[96 + 11]) = (0x10, 0b10 << 6);
        (block[32 + 63], block[32 + 62], block[31]) = (2 << 6, 2 << 6, 0x80);
        Q3K::decode(&block, &mut out);
        assert_eq!((out[255], out[254], out[253]), (2.0, -2.0, -4.0));
    }

    #[test]
    fn four_to_six_bits_by_hand() {
        let mut out = [0.0; 256];
        let mut block = [0; 144];
        block[..4].copy_from_slice(&[ONE, TWO].concat());
        // Run 3: scale 10, minimum 1.
        (block[4 + 3], block[4 + 7]) = (10, 1);
        block[16 + 32 + 31] = 0x7f;
        Q4K::decode(&block, &mut out);
        assert_eq!((out[127], out[126], out[95]), (68.0, -2.0, 0.0));

        let mut block = [0; 176];
        block[..4].copy_from_slice(&[ONE, TWO].concat());
        (block[4 + 3], block[4 + 7]) = (10, 1);
        (block[16 + 31], block[48 + 32 + 31]) = (1 << 3, 0x7f);
        Q5K::decode(&block, &mut out);
        assert_eq!((out[127], out[126]), (228.0, -2.0));

        let mut block = [0; 210];
        block[208..].copy_from_slice(&ONE);
        // Value 1 of run 7 in sub-block 14 with scale -3: 5 and top bits 3.
        block[192 + 14] = 0xfd;
        (block[64 + 32 + 1], block[128 + 32 + 1]) = (0x50, 3 << 6);
        Q6K::decode(&block, &mut out);
        assert_eq!((out[225], out[224]), (-63.0, 96.0));
    }
}
