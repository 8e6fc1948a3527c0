//! f16 rows to f32 with the vector unit's own conversion.
//!
//! With AVX-512 whole vectors are converted here, in line and at any alignment. Everything else is left to the crate `half`,
//! which finds the machine's conversion at run time and calls it for eight elements at a time.

use crate::family::cpu::element::load_f16;

/// Rows of f16 elements: how many, how long, how many bytes apart.
#[derive(Clone, Copy)]
pub struct Halves<'a> {
    pub bytes: &'a [u8],
    pub rows: usize,
    pub length: usize,
    pub distance: usize,
}

impl<'a> Halves<'a> {
    /// Each row with its place in `target`, where rows start `stride` elements apart; what is behind a row becomes zero.
    #[inline(always)]
    fn each(self, stride: usize, target: &mut [f32], convert: impl Fn(&'a [u8], &mut [f32])) {
        for (row, target) in target.chunks_mut(stride).take(self.rows).enumerate() {
            let (values, padding) = target.split_at_mut(self.length);
            let start = row * self.distance;
            convert(&self.bytes[start..start + self.length * 2], values);
            padding.fill(0.0);
        }
    }

    /// Converts to `target`, where rows start `stride` elements apart; what is between them becomes zero.
    pub fn load(self, stride: usize, target: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if let pulp::x86::Arch::V4(simd) = pulp::x86::Arch::new() {
            return simd.vectorize(
                #[inline(always)]
                || {
                    self.each(
                        stride,
                        target,
                        #[inline(always)]
                        |source, target| wide(simd, source, target),
                    );
                },
            );
        }
        self.each(stride, target, load_f16);
    }
}

/// Sixteen at a time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn wide(simd: pulp::x86::V4, source: &[u8], target: &mut [f32]) {
    let (sources, source) = source.as_chunks::<32>();
    let (targets, target) = target.as_chunks_mut::<16>();
    for (target, source) in targets.iter_mut().zip(sources) {
        let values: pulp::f32x16 = pulp::cast!(simd.avx512f._mm512_cvtph_ps(pulp::cast!(*source)));
        *target = bytemuck::cast(values);
    }
    load_f16(source, target);
}

#[cfg(test)]
mod tests {
    use super::Halves;

    #[test]
    fn every_half_becomes_its_value() {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for shift in [0, 1] {
            let shifted: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
            let mut target = vec![9.0; 260 * 256];
            // Rows of 256 leave four elements between them.
            Halves { bytes: &shifted[shift..], rows: 256, length: 256, distance: 512 }.load(260, &mut target);
            for bits in 0..=u16::MAX {
                let (row, column) = (usize::from(bits >> 8), usize::from(bits & 0xff));
                let (found, expected) = (target[row * 260 + column], half::f16::from_bits(bits).to_f32());
                assert!(found == expected || (found.is_nan() && expected.is_nan()), "{bits:#06x}: {found}, {expected}");
            }
            assert!(target.chunks(260).all(|row| row[256..] == [0.0; 4]));
        }
    }

    #[test]
    fn short_rows_and_tails_are_converted() {
        let values: Vec<f32> = (0..60).map(|i| i as f32 / 4.0).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect();
        for length in [1, 7, 15, 16, 17, 20] {
            let mut target = vec![9.0; 3 * length];
            Halves { bytes: &bytes, rows: 3, length, distance: 2 * length }.load(length, &mut target);
            assert_eq!(target, values[..3 * length]);
        }
    }
}
