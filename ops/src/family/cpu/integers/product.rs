//! Matrix products of whole numbers.
//!
//! Rows and columns of i8 or i16 are multiplied as i16 and summed in 32 bits, which wrap: an instruction of most vector units. A
//! result of fewer bits has the low ones. A result of f32 is the exact sum, which takes 64 bits, rounded once.

use super::read;
use crate::family::cpu::rows::vectorised;
use crate::tensor::{DataType, Tensor};

/// Rows that are multiplied with a column at once.
const ROWS: usize = 4;
/// Bytes of a block of rows that all columns pass: half of a second-level cache.
const BLOCK_BYTES: usize = 128 * 1024;

/// Types that can be multiplied.
pub const FACTORS: &[DataType] = &[DataType::I8, DataType::I16];

/// Types that products of `dtype`, which is one of [`FACTORS`], can have. ggml's own graphs say f32; the C++ backend has the others.
pub fn results(dtype: DataType) -> &'static [DataType] {
    match dtype {
        DataType::I8 => &[DataType::I32, DataType::F32, DataType::I16, DataType::I8],
        _ => &[DataType::I32, DataType::F32, DataType::I16],
    }
}

/// Consecutive rows of a matrix of weights, whose rows are not empty.
pub struct WholeRows<'a> {
    /// Layout of the weights.
    pub tensor: &'a Tensor,
    /// Their memory from the first row on.
    pub bytes: &'a [u8],
    /// How many rows.
    pub count: usize,
}

impl WholeRows<'_> {
    /// Writes the dot products with each of `columns` to its piece of the result in `out`, which has the type `result` and no gaps.
    pub fn multiply(&self, columns: &[&[i16]], result: DataType, out: &mut [&mut [u8]]) {
        let length = self.tensor.ne[0];
        let block = (BLOCK_BYTES / (length * size_of::<i16>())).clamp(ROWS, 256) / ROWS * ROWS;
        let mut widened = Vec::new();
        if self.in_place(0, self.count).is_none() {
            widened.resize(block.min(self.count) * length, 0_i16);
        }
        vectorised(
            #[inline(always)]
            || {
                for first in (0..self.count).step_by(block) {
                    let count = block.min(self.count - first);
                    let rows = match self.in_place(first, count) {
                        Some(rows) => rows,
                        None => {
                            for (row, numbers) in widened.chunks_exact_mut(length).take(count).enumerate() {
                                widen(self.tensor, self.bytes, (first + row) * self.tensor.nb[1], numbers);
                            }
                            &widened[..count * length]
                        }
                    };
                    match result {
                        DataType::F32 => multiply::<i64>(rows, columns, first, result, out),
                        _ => multiply::<i32>(rows, columns, first, result, out),
                    }
                }
            },
        );
    }

    /// Some rows where they lie, if they are aligned i16 one behind the other.
    #[inline(always)]
    fn in_place(&self, first: usize, count: usize) -> Option<&[i16]> {
        let Tensor { dtype, ne, nb } = *self.tensor;
        let row = dtype.row_bytes(ne[0]);
        let dense = dtype == DataType::I16 && (ne[0] == 1 || nb[0] == 2) && (self.count == 1 || nb[1] == row);
        let bytes = dense.then(|| &self.bytes[first * row..][..count * row])?;
        bytemuck::try_cast_slice(bytes).ok()
    }
}

/// The columns of `tensor` that start at `offsets`, one behind the other.
pub fn columns(tensor: &Tensor, bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Vec<i16> {
    let mut numbers = vec![0; tensor.elements()];
    vectorised(
        #[inline(always)]
        || {
            for (offset, column) in offsets.zip(numbers.chunks_exact_mut(tensor.ne[0])) {
                widen(tensor, bytes, offset, column);
            }
        },
    );
    numbers
}

/// Fills `numbers` from the row at `offset`.
#[inline(always)]
fn widen(tensor: &Tensor, bytes: &[u8], offset: usize, numbers: &mut [i16]) {
    let (mut scratch, run) = (Vec::new(), [0, numbers.len()]);
    if tensor.dtype == DataType::I16 {
        return numbers.copy_from_slice(read::<i16>(tensor, bytes, offset, run, &mut scratch));
    }
    for (number, short) in numbers.iter_mut().zip(read::<i8>(tensor, bytes, offset, run, &mut scratch)) {
        *number = i16::from(*short);
    }
}

/// What products are summed in.
trait Sum: Copy {
    const ZERO: Self;
    fn add(self, product: i32) -> Self;
    /// Little-endian bytes of `result`, as many as it has.
    fn store(self, result: DataType, target: &mut [u8]);
}

impl Sum for i32 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn add(self, product: i32) -> Self {
        self.wrapping_add(product)
    }

    /// The low bytes.
    #[inline(always)]
    fn store(self, _: DataType, target: &mut [u8]) {
        let bytes = target.len();
        target.copy_from_slice(&self.to_le_bytes()[..bytes]);
    }
}

impl Sum for i64 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn add(self, product: i32) -> Self {
        self.wrapping_add(product.into())
    }

    #[inline(always)]
    fn store(self, _: DataType, target: &mut [u8]) {
        target.copy_from_slice(&(self as f32).to_le_bytes());
    }
}

/// All dot products of `rows`, which lie one behind the other and belong to the elements of the result from `first` on.
#[inline(always)]
fn multiply<S: Sum>(rows: &[i16], columns: &[&[i16]], first: usize, result: DataType, out: &mut [&mut [u8]]) {
    let size = result.block_bytes();
    for (column, out) in columns.iter().zip(out) {
        let mut targets = out[first * size..].chunks_exact_mut(size);
        let mut tiles = rows.chunks_exact(ROWS * column.len());
        for tile in &mut tiles {
            let mut rows = tile.chunks_exact(column.len());
            let rows: [&[i16]; ROWS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
            for (sum, target) in dots::<S, ROWS>(rows, column).into_iter().zip(&mut targets) {
                sum.store(result, target);
            }
        }
        for (row, target) in tiles.remainder().chunks_exact(column.len()).zip(targets) {
            dots::<S, 1>([row], column)[0].store(result, target);
        }
    }
}

/// The dot products of some rows with a column, all of one length.
#[inline(always)]
fn dots<S: Sum, const R: usize>(rows: [&[i16]; R], column: &[i16]) -> [S; R] {
    let rows = rows.map(|row| &row[..column.len()]);
    let mut sums = [S::ZERO; R];
    for (k, value) in column.iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = sum.add(i32::from(row[k]) * i32::from(*value));
        }
    }
    sums
}
