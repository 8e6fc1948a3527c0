//! Dot products of quantised rows with columns of f32: the inner loop of products with few columns.
//!
//! A block of weights is decoded where it is multiplied, into a few registers, so that a token reads the weights once and in
//! the size they have in the file. With many columns that would decode each block many times; [`super::dot`] then multiplies
//! rows that were decoded once.
//!
//! Rows are taken one after the other: weights come from memory, and memory is fastest when it is read in order.

use super::dot::put;
use crate::blocks::{Block, Visitor};
use bytemuck::{Zeroable as _, cast_slice};
use pulp::{Simd, WithSimd};

/// From this number of columns on, rows are better decoded once and multiplied by [`super::dot`].
pub const MANY_COLUMNS_OF_BLOCKS: usize = 24;
/// Columns for which a decoded block is used.
const COLUMNS: usize = 4;

/// Computes `out[j][i]`, the dot product of the quantised `rows[i]` and `columns[j]`, little-endian f32 without gaps. To be
/// visited with the format of the rows.
pub struct BlockProducts<'a, 'o> {
    /// Rows of whole blocks, all of one length.
    pub rows: &'a [&'a [u8]],
    /// Columns with as many elements as a row.
    pub columns: &'a [&'a [f32]],
    /// For each column the elements of the result, at least as many as rows.
    pub out: &'a mut [&'o mut [u8]],
}

impl Visitor for BlockProducts<'_, '_> {
    /// Whether this machine has a vector unit for it. Without one it is no faster than decoding the rows first, and nothing is done.
    type Output = bool;

    fn visit<F: Block>(self) -> bool {
        let products = InFormat::<F> { products: self, format: std::marker::PhantomData };
        match pulp::Arch::new() {
            #[cfg(target_arch = "x86_64")]
            pulp::Arch::V3(simd) => Simd::vectorize(simd, products),
            #[cfg(target_arch = "x86_64")]
            pulp::Arch::V4(simd) => Simd::vectorize(simd, products),
            #[cfg(target_arch = "aarch64")]
            pulp::Arch::Neon(simd) => Simd::vectorize(simd, products),
            _ => return false,
        }
        true
    }
}

struct InFormat<'a, 'o, F> {
    products: BlockProducts<'a, 'o>,
    format: std::marker::PhantomData<F>,
}

impl<F: Block> WithSimd for InFormat<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let BlockProducts { rows, columns, out } = self.products;
        for (columns, out) in columns.chunks(COLUMNS).zip(out.chunks_mut(COLUMNS)) {
            for (i, row) in rows.iter().enumerate() {
                match columns {
                    [w] => put(i, out, row_times::<S, F, 1>(simd, row, [w])),
                    [w, x] => put(i, out, row_times::<S, F, 2>(simd, row, [w, x])),
                    [w, x, y] => put(i, out, row_times::<S, F, 3>(simd, row, [w, x, y])),
                    [w, x, y, z] => put(i, out, row_times::<S, F, 4>(simd, row, [w, x, y, z])),
                    _ => {}
                }
            }
        }
    }
}

/// The dot products of a row with columns.
#[inline(always)]
fn row_times<S: Simd, F: Block, const C: usize>(simd: S, row: &[u8], columns: [&[f32]; C]) -> [[f32; 1]; C] {
    let row: &[F::Bytes] = cast_slice(row);
    let count = row.len();
    let mut blocks: [&[F::Values]; C] = [&[]; C];
    for (blocks, column) in blocks.iter_mut().zip(columns) {
        *blocks = &cast_slice(column)[..count];
    }
    // Four sums for a column, because an addition takes longer than the next product: two for every other block.
    let mut sums = [[simd.splat_f32s(0.0); 2]; C];
    let mut others = sums;
    for (index, block) in row.iter().enumerate() {
        block_times::<S, F, C>(simd, block, &blocks, index, &mut sums);
        std::mem::swap(&mut sums, &mut others);
    }
    let mut result = [[0.0; 1]; C];
    for j in 0..C {
        let sum = simd.add_f32s(simd.add_f32s(sums[j][0], sums[j][1]), simd.add_f32s(others[j][0], others[j][1]));
        result[j][0] = simd.reduce_sum_f32s(sum);
    }
    result
}

/// Adds the products of a block and block `index` of each column. Blocks are multiples of twice every register's length: nothing is left over.
#[inline(always)]
fn block_times<S: Simd, F: Block, const C: usize>(
    simd: S,
    block: &F::Bytes,
    columns: &[&[F::Values]; C],
    index: usize,
    sums: &mut [[S::f32s; 2]; C],
) {
    let mut values = F::Values::zeroed();
    F::decode(block, &mut values);
    let left = S::as_simd_f32s(values.as_ref()).0.as_chunks::<2>().0;
    for j in 0..C {
        let right = S::as_simd_f32s(columns[j][index].as_ref()).0.as_chunks::<2>().0;
        for (left, right) in left.iter().zip(right) {
            sums[j][0] = simd.mul_add_e_f32s(left[0], right[0], sums[j][0]);
            sums[j][1] = simd.mul_add_e_f32s(left[1], right[1], sums[j][1]);
        }
    }
}
