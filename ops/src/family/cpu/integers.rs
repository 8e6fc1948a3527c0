//! Products of whole numbers: rows of i8 times columns of i8, summed in i32.
//!
//! Sums wrap, as those of the array's accumulators do, so that their order does not matter. Rows below 2^17 elements cannot reach
//! that.

use super::rows::{Row, for_each_row, vectorised};
use crate::tensor::Tensor;
use aie_hal::HostFunctionError;

/// `out[m, n] = sum over k of weights[k, m] * columns[k, n]` for tensors that passed the rules of MUL_MAT.
///
/// # Errors
/// As [`for_each_row`].
pub fn multiply(
    [weights, columns, out]: [&Tensor; 3],
    [left, right]: [&[u8]; 2],
    output: &mut [u8],
) -> Result<(), HostFunctionError> {
    let depth = weights.ne[0];
    let repeats = [columns.ne[2] / weights.ne[2], columns.ne[3] / weights.ne[3]];
    let work = out.elements().saturating_mul(depth);
    for_each_row(out, output, work, |_, column, target| {
        let Row([_, second, third]) = column;
        let bytes = right.get(column.offset(columns)..).unwrap_or_default();
        let values: Vec<i8> = (0..depth).map(|k| bytes[k * columns.nb[0]].cast_signed()).collect();
        for (m, sum) in target.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let start = Row([m, second / repeats[0], third / repeats[1]]).offset(weights);
            let row = left.get(start..).unwrap_or_default();
            *sum = vectorised(
                #[inline(always)]
                || dot(row, weights.nb[0], &values),
            )
            .to_le_bytes();
        }
        Ok(())
    })
}

/// The sum of the products of values and bytes that lie `apart` bytes from each other.
#[inline(always)]
fn dot(row: &[u8], apart: usize, values: &[i8]) -> i32 {
    let product = |byte: u8, value: i8| i32::from(byte.cast_signed()) * i32::from(value);
    if apart == 1 {
        return row.iter().zip(values).fold(0, |sum, (byte, value)| sum.wrapping_add(product(*byte, *value)));
    }
    values.iter().enumerate().fold(0, |sum, (k, value)| sum.wrapping_add(product(row[k * apart], *value)))
}
