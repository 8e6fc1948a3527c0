//! Many dot products at once: the inner loop of matrix products.
//!
//! Both operands of ggml's product have their common dimension innermost, so an element of the result is the dot product of
//! two rows. A tile of 4 x 4 dot products loads eight vectors for sixteen multiply-adds, which keeps the multipliers busy
//! without any packing; with one column it streams four rows of weights and is limited by memory. Each product is summed in
//! lanes, and the lanes are added at the end.

use pulp::{Simd, WithSimd};

/// Lanes a product is summed in: one AVX-512 register, two of AVX2.
const LANES: usize = 16;
/// Rows of a tile.
pub const ROWS: usize = 4;
/// Columns of a tile.
pub const COLUMNS: usize = 4;

/// Elements of the left operand, turned into f32 as they are loaded.
pub trait Element: Copy + Send + Sync {
    /// The value.
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
    fn with_simd<S: Simd>(self, _: S) {
        let Self { rows, columns, out } = self;
        for (columns, out) in columns.chunks(COLUMNS).zip(out.chunks_mut(COLUMNS)) {
            for (block, rows) in rows.chunks(ROWS).enumerate() {
                let first = block * ROWS;
                match (rows, columns) {
                    (&[a, b, c, d], &[w]) => put(first, out, tile::<S, E, 4, 1>([a, b, c, d], [w])),
                    (&[a, b, c, d], &[w, x]) => put(first, out, tile::<S, E, 4, 2>([a, b, c, d], [w, x])),
                    (&[a, b, c, d], &[w, x, y]) => put(first, out, tile::<S, E, 4, 3>([a, b, c, d], [w, x, y])),
                    (&[a, b, c, d], &[w, x, y, z]) => put(first, out, tile::<S, E, 4, 4>([a, b, c, d], [w, x, y, z])),
                    _ => {
                        for (i, row) in rows.iter().enumerate() {
                            for (column, out) in columns.iter().zip(out.iter_mut()) {
                                put(first + i, std::slice::from_mut(out), tile::<S, E, 1, 1>([row], [column]));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Writes a tile to elements `first..first + R` of its columns.
#[inline(always)]
fn put<const R: usize, const C: usize>(first: usize, out: &mut [&mut [u8]], tile: [[f32; R]; C]) {
    for (out, values) in out.iter_mut().zip(tile) {
        let target = &mut out[first * 4..(first + R) * 4];
        for (target, value) in target.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *target = value.to_le_bytes();
        }
    }
}

/// `result[j][i]` is the dot product of `rows[i]` and `columns[j]`. Fused multiply-add where the machine has it: the fallback
/// of the standard library would be a function call.
#[inline(always)]
fn tile<S: Simd, E: Element, const R: usize, const C: usize>(rows: [&[E]; R], columns: [&[f32]; C]) -> [[f32; R]; C] {
    let multiply_add = |a: f32, b: f32, sum: f32| if S::IS_SCALAR { a * b + sum } else { a.mul_add(b, sum) };
    let mut sums = [[[0.0_f32; LANES]; C]; R];
    let length = columns[0].len();
    let chunks = length / LANES;
    let row_chunks: [&[[E; LANES]]; R] = rows.map(|row| &row.as_chunks::<LANES>().0[..chunks]);
    let column_chunks: [&[[f32; LANES]]; C] = columns.map(|column| &column.as_chunks::<LANES>().0[..chunks]);
    for k in 0..chunks {
        let mut right = [[0.0; LANES]; C];
        for j in 0..C {
            right[j] = column_chunks[j][k];
        }
        for i in 0..R {
            let left = row_chunks[i][k].map(
                #[inline(always)]
                |element| element.value(),
            );
            for j in 0..C {
                for lane in 0..LANES {
                    sums[i][j][lane] = multiply_add(left[lane], right[j][lane], sums[i][j][lane]);
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
            let mut sum = add_lanes(sums[i][j]);
            for (a, b) in rows[i][tail..length].iter().zip(&columns[j][tail..length]) {
                sum = multiply_add(a.value(), *b, sum);
            }
            result[j][i] = sum;
        }
    }
    result
}

/// The sum of the lanes, pairwise.
#[inline(always)]
fn add_lanes(lanes: [f32; LANES]) -> f32 {
    let mut lanes = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}
