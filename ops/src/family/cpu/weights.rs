//! Rows of weights times columns: what products with one matrix of weights and with many share.
//!
//! With few columns rows of bf16 or f32 weights are used where they lie and blocks are decoded where they are multiplied; with
//! many, or for other types, blocks of rows are first turned into f32.

use super::block_dot::{BlockProducts, MANY_COLUMNS_OF_BLOCKS};
use super::dot::{COLUMNS, Element, Products, ROWS};
use super::element::{load_row, read};
use crate::blocks;
use crate::tensor::{DataType, Tensor};
use aie_hal::HostFunctionError;

/// From this number of columns on, weights are turned into f32 before they are multiplied.
const MANY_COLUMNS: usize = 12;
/// Bytes of a block of rows as f32 that many columns pass: half of a second-level cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// The same for a few columns: what has been decoded is still in the first-level cache when it is multiplied.
const SMALL_BLOCK_BYTES: usize = 32 * 1024;

/// Consecutive rows of a matrix of weights, whose rows are not empty.
pub struct WeightRows<'a> {
    /// Name of the operation, for errors.
    pub kernel: &'static str,
    /// Layout of the weights.
    pub tensor: &'a Tensor,
    /// Their memory from the first row on.
    pub bytes: &'a [u8],
    /// How many rows.
    pub count: usize,
}

impl<'a> WeightRows<'a> {
    /// Writes the dot products with each of `columns` to its piece of the result in `out`, little-endian f32 without gaps.
    ///
    /// # Errors
    /// [`HostFunctionError::Data`] when a row is not whole blocks.
    pub fn multiply(&self, columns: &[&[f32]], out: &mut [&mut [u8]]) -> Result<(), HostFunctionError> {
        let (length, dtype) = (self.tensor.ne[0], self.tensor.dtype);
        let dense = length == 1 || self.tensor.nb[0] == dtype.block_bytes();
        if dense
            && dtype == DataType::F32
            && let Some(rows) = self.in_place::<f32>()
        {
            multiply(&rows, columns, out, length);
            return Ok(());
        }
        if dtype.is_quantised() && columns.len() < MANY_COLUMNS_OF_BLOCKS {
            let size = dtype.row_bytes(length);
            let rows: Vec<&[u8]> = (0..self.count).map(|row| &self.row(row)[..size]).collect();
            if blocks::visit(dtype, BlockProducts { rows: &rows, columns, out: &mut *out }) == Some(true) {
                return Ok(());
            }
        }
        if dense
            && dtype == DataType::BF16
            && columns.len() < MANY_COLUMNS
            && let Some(rows) = self.in_place::<u16>()
        {
            multiply(&rows, columns, out, length);
            return Ok(());
        }
        let bytes = if columns.len() <= COLUMNS { SMALL_BLOCK_BYTES } else { BLOCK_BYTES };
        let block = (bytes / (length * 4)).clamp(1, 64).next_multiple_of(ROWS).min(self.count);
        let mut converted = vec![0.0_f32; block * length];
        for first in (0..self.count).step_by(block) {
            let count = block.min(self.count - first);
            for (i, row) in converted.chunks_exact_mut(length).take(count).enumerate() {
                self.convert(first + i, row)?;
            }
            let rows: Vec<&[f32]> = converted.chunks_exact(length).take(count).collect();
            let mut out: Vec<&mut [u8]> = out.iter_mut().map(|out| &mut out[first * 4..(first + count) * 4]).collect();
            multiply(&rows, columns, &mut out, length);
        }
        Ok(())
    }

    fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.tensor.nb[1]..]
    }

    /// The rows as typed slices, or `None` when they are not aligned.
    fn in_place<E: bytemuck::AnyBitPattern>(&self) -> Option<Vec<&'a [E]>> {
        let size = self.tensor.ne[0] * size_of::<E>();
        (0..self.count).map(|row| bytemuck::try_cast_slice(&self.row(row)[..size]).ok()).collect()
    }

    fn convert(&self, row: usize, target: &mut [f32]) -> Result<(), HostFunctionError> {
        if load_row(self.tensor, self.row(row), target) {
            return Ok(());
        }
        let reason = format!("a row of {} elements of {} has no whole blocks", target.len(), self.tensor.dtype);
        Err(HostFunctionError::Data { kernel: self.kernel.to_owned(), reason })
    }
}

/// The columns of `tensor` that start at `offsets`, as f32: where they lie if they are, else in `scratch`. They are not empty.
pub fn columns<'a>(
    tensor: &Tensor,
    bytes: &'a [u8],
    offsets: impl Iterator<Item = usize> + Clone,
    scratch: &'a mut Vec<f32>,
) -> Vec<&'a [f32]> {
    let length = tensor.ne[0];
    if tensor.dtype == DataType::F32 && (length == 1 || tensor.nb[0] == 4) {
        let columns: Result<Vec<&[f32]>, _> =
            offsets.clone().map(|offset| bytemuck::try_cast_slice(&bytes[offset..][..length * 4])).collect();
        if let Ok(columns) = columns {
            return columns;
        }
    }
    scratch.reserve_exact(tensor.elements());
    let mut column = Vec::new();
    for offset in offsets {
        scratch.extend_from_slice(read(tensor, bytes, offset, 0, length, &mut column));
    }
    scratch.chunks_exact(length).collect()
}

/// All dot products, in blocks of rows that stay in cache while all columns pass.
fn multiply<E: Element>(rows: &[&[E]], columns: &[&[f32]], out: &mut [&mut [u8]], length: usize) {
    let block = (BLOCK_BYTES / (length * size_of::<E>())).max(1).next_multiple_of(ROWS);
    if columns.len() <= COLUMNS || rows.len() <= block {
        return pulp::Arch::new().dispatch(Products { rows, columns, out });
    }
    for (i, rows) in rows.chunks(block).enumerate() {
        let first = i * block * 4;
        let mut out: Vec<&mut [u8]> = out.iter_mut().map(|out| &mut out[first..first + rows.len() * 4]).collect();
        pulp::Arch::new().dispatch(Products { rows, columns, out: &mut out });
    }
}
