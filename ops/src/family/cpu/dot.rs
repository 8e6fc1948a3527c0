//! Many dot products at once: the inner loop of matrix products.
//!
//! Both operands of ggml's product have their common dimension innermost, so an element of the result is the dot product of
//! two rows. A tile of 4 x 4 dot products loads eight vectors for sixteen multiply-adds, which keeps the multipliers busy
//! without any packing. With one column rows are streamed one after the other, and memory is the limit. Each product is summed in
//! lanes, and the lanes are added at the end.

use pulp::{Simd, WithSimd};

/// Elements taken at a time: one register of AVX-512, two of AVX2.
const LANES: usize = 16;
/// Rows of a tile.
pub const ROWS: usize = 4;
/// Columns of a tile.
pub const COLUMNS: usize = 4;

/// Elements of the left operand, turned into f32 as they are loaded.
pub trait Element: Copy + Send + Sync {
    fn value(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

/// The bits of a bf16.
impl Element for u16 {
    #[inline(always)]
    fn value(self) -> f32 {
        super::element::widen(self)
    }
}

/// Computes `out[j][i]`, the dot product of `rows[i]` and `columns[j]`, little-endian f32 without gaps, for all rows and
/// columns.
pub struct Products<'a, 'o, E> {
    /// Rows of the left operand, all of one length.
    pub rows: &'a [&'a [E]],
    /// Columns of the right operand, of the same length.
    pub columns: &'a [&'a [f32]],
    /// For each column the elements of the result, at least as many as rows.
    pub out: &'a mut [&'o mut [u8]],
}

impl<E: Element> WithSimd for Products<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, columns, out } = self;
        if let ([column], [out]) = (columns, &mut *out) {
            for (row, target) in rows.iter().zip(out.as_chunks_mut::<4>().0) {
                *target = streamed(simd, row, column).to_le_bytes();
            }
            return;
        }
        for (columns, out) in columns.chunks(COLUMNS).zip(out.chunks_mut(COLUMNS)) {
            for (block, rows) in rows.chunks(ROWS).enumerate() {
                let first = block * ROWS;
                match (rows, columns) {
                    (&[a, b, c, d], &[w, x]) => put(first, out, tile(simd, [a, b, c, d], [w, x])),
                    (&[a, b, c, d], &[w, x, y]) => put(first, out, tile(simd, [a, b, c, d], [w, x, y])),
                    (&[a, b, c, d], &[w, x, y, z]) => put(first, out, tile(simd, [a, b, c, d], [w, x, y, z])),
                    _ => {
                        for (i, row) in rows.iter().enumerate() {
                            for (column, out) in columns.iter().zip(out.iter_mut()) {
                                put(first + i, std::slice::from_mut(out), tile(simd, [row], [column]));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The dot product of a row that is used once: rows are then read in order, which is when memory is fastest, and a row has
/// four sums, because an addition takes longer than the next product.
#[inline(always)]
fn streamed<S: Simd, E: Element>(simd: S, row: &[E], column: &[f32]) -> f32 {
    let zero = simd.splat_f32s(0.0);
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    let (row_runs, row_rest) = row.as_chunks::<{ 4 * LANES }>();
    let (column_runs, column_rest) = column.as_chunks::<{ 4 * LANES }>();
    for (row, column) in row_runs.iter().zip(column_runs) {
        let left = row.map(
            #[inline(always)]
            |element| element.value(),
        );
        let left = S::as_simd_f32s(&left).0.as_chunks::<4>().0;
        let right = S::as_simd_f32s(column).0.as_chunks::<4>().0;
        for (left, right) in left.iter().zip(right) {
            a = simd.mul_add_e_f32s(left[0], right[0], a);
            b = simd.mul_add_e_f32s(left[1], right[1], b);
            c = simd.mul_add_e_f32s(left[2], right[2], c);
            d = simd.mul_add_e_f32s(left[3], right[3], d);
        }
    }
    let sum = simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d));
    let mut sum = simd.reduce_sum_f32s(sum);
    for (a, b) in row_rest.iter().zip(column_rest) {
        sum += a.value() * b;
    }
    sum
}

/// Writes a tile to elements `first..first + R` of its columns.
#[inline(always)]
pub fn put<const R: usize, const C: usize>(first: usize, out: &mut [&mut [u8]], tile: [[f32; R]; C]) {
    for (out, values) in out.iter_mut().zip(tile) {
        let target = &mut out[first * 4..(first + R) * 4];
        for (target, value) in target.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *target = value.to_le_bytes();
        }
    }
}

/// `result[j][i]` is the dot product of `rows[i]` and `columns[j]`.
#[inline(always)]
fn tile<S: Simd, E: Element, const R: usize, const C: usize>(
    simd: S,
    rows: [&[E]; R],
    columns: [&[f32]; C],
) -> [[f32; R]; C] {
    let length = columns[0].len();
    let chunks = length / LANES;
    let row_chunks: [&[[E; LANES]]; R] = rows.map(|row| &row.as_chunks::<LANES>().0[..chunks]);
    let column_chunks: [&[[f32; LANES]]; C] = columns.map(|column| &column.as_chunks::<LANES>().0[..chunks]);
    let mut sums = [[simd.splat_f32s(0.0); C]; R];
    for k in 0..chunks {
        for i in 0..R {
            let left = row_chunks[i][k].map(
                #[inline(always)]
                |element| element.value(),
            );
            for (part, left) in S::as_simd_f32s(&left).0.iter().enumerate() {
                for j in 0..C {
                    let right = S::as_simd_f32s(&column_chunks[j][k]).0[part];
                    sums[i][j] = simd.mul_add_e_f32s(*left, right, sums[i][j]);
                }
            }
        }
    }
    // The compiler keeps sums in registers only if nothing below indexes their array at run time. This makes a copy for that.
    let sums = std::hint::black_box(sums);
    let tail = chunks * LANES;
    let mut result = [[0.0; R]; C];
    for i in 0..R {
        for j in 0..C {
            let mut sum = simd.reduce_sum_f32s(sums[i][j]);
            for (a, b) in rows[i][tail..length].iter().zip(&columns[j][tail..length]) {
                sum += a.value() * b;
            }
            result[j][i] = sum;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_tile_shape_and_tail_is_exact_on_small_integers(
        #[values(1, 3, 4, 5, 8, 11)] row_count: usize,
        #[values(1, 2, 3, 4, 5, 7)] column_count: usize,
        #[values(1, 15, 16, 17, 64, 100)] length: usize,
    ) {
        let value = |seed: usize, k: usize| ((seed * 7 + k * 3) % 9) as f32 - 4.0;
        let rows: Vec<Vec<f32>> = (0..row_count).map(|i| (0..length).map(|k| value(i, k)).collect()).collect();
        let halves: Vec<Vec<u16>> =
            rows.iter().map(|row| row.iter().map(|x| (x.to_bits() >> 16) as u16).collect()).collect();
        let columns: Vec<Vec<f32>> =
            (0..column_count).map(|j| (0..length).map(|k| value(j + 50, k)).collect()).collect();
        let columns: Vec<&[f32]> = columns.iter().map(Vec::as_slice).collect();
        let mut out = vec![vec![0_u8; row_count * 4]; column_count];
        let mut check = |run: &dyn Fn(&mut [&mut [u8]])| {
            let mut slices: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            run(&mut slices);
            for (j, column) in columns.iter().enumerate() {
                for (i, row) in rows.iter().enumerate() {
                    let expected: f32 = row.iter().zip(*column).map(|(a, b)| a * b).sum();
                    let bytes = &slices[j][i * 4..i * 4 + 4];
                    assert_eq!(
                        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                        expected,
                        "row {i}, column {j}"
                    );
                }
            }
            for slice in slices {
                slice.fill(0);
            }
        };
        let f32s: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let bf16s: Vec<&[u16]> = halves.iter().map(Vec::as_slice).collect();
        check(&|out| pulp::Arch::new().dispatch(Products { rows: &f32s, columns: &columns, out }));
        check(&|out| pulp::Arch::new().dispatch(Products { rows: &bf16s, columns: &columns, out }));
        // Without a vector unit the same sums come out.
        check(&|out| Products { rows: &bf16s, columns: &columns, out }.with_simd(pulp::Scalar));
    }
}
