//! Matrix products of whole numbers.
//!
//! Rows and columns of i8 or i16 are multiplied as i16 and summed in 32 bits, which wrap: an instruction of most vector units. A
//! result of fewer bits has the low ones. A result of f32 is the exact sum, which takes 64 bits, rounded once. Products of i32 and
//! their sums wrap in 32 bits too.

use super::{Whole, read};
use crate::family::cpu::rows::vectorised;
use crate::tensor::{DataType, Tensor};

/// Rows that are multiplied with a column at once.
const ROWS: usize = 4;
/// Bytes of a block of rows that all columns pass: half of a second-level cache.
const BLOCK_BYTES: usize = 128 * 1024;

/// Types that can be multiplied.
pub const FACTORS: &[DataType] = &[DataType::I8, DataType::I16, DataType::I32];

/// Types that products of `dtype`, which is one of [`FACTORS`], can have. ggml's own graphs say f32; the C++ backend has the others.
pub fn results(dtype: DataType) -> &'static [DataType] {
    match dtype {
        DataType::I8 => &[DataType::I32, DataType::F32, DataType::I16, DataType::I8],
        DataType::I16 => &[DataType::I32, DataType::F32, DataType::I16],
        _ => &[DataType::I32],
    }
}

/// What rows and columns are multiplied as.
pub trait Factor: Whole {
    /// Its type of ggml's.
    const TYPE: DataType;
    /// The low bits of the product.
    fn product(self, other: Self) -> i32;
    /// Fills `numbers` from the row at `offset`.
    fn take(tensor: &Tensor, bytes: &[u8], offset: usize, numbers: &mut [Self]);
}

impl Factor for i16 {
    const TYPE: DataType = DataType::I16;

    #[inline(always)]
    fn product(self, other: Self) -> i32 {
        i32::from(self) * i32::from(other)
    }

    /// From i8 or i16.
    #[inline(always)]
    fn take(tensor: &Tensor, bytes: &[u8], offset: usize, numbers: &mut [Self]) {
        let (mut scratch, run) = (Vec::new(), [0, numbers.len()]);
        if tensor.dtype == DataType::I16 {
            return numbers.copy_from_slice(read::<i16>(tensor, bytes, offset, run, &mut scratch));
        }
        for (number, short) in numbers.iter_mut().zip(read::<i8>(tensor, bytes, offset, run, &mut scratch)) {
            *number = i16::from(*short);
        }
    }
}

impl Factor for i32 {
    const TYPE: DataType = DataType::I32;

    #[inline(always)]
    fn product(self, other: Self) -> i32 {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn take(tensor: &Tensor, bytes: &[u8], offset: usize, numbers: &mut [Self]) {
        let (mut scratch, run) = (Vec::new(), [0, numbers.len()]);
        numbers.copy_from_slice(read::<i32>(tensor, bytes, offset, run, &mut scratch));
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
    pub fn multiply<F: Factor>(&self, columns: &[&[F]], result: DataType, out: &mut [&mut [u8]]) {
        let length = self.tensor.ne[0];
        let block = (BLOCK_BYTES / (length * size_of::<F>())).clamp(ROWS, 256) / ROWS * ROWS;
        let mut widened = Vec::new();
        if self.in_place::<F>(0, self.count).is_none() {
            widened.resize(block.min(self.count) * length, F::ZERO);
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
                                F::take(self.tensor, self.bytes, (first + row) * self.tensor.nb[1], numbers);
                            }
                            &widened[..count * length]
                        }
                    };
                    match result {
                        DataType::F32 => multiply::<i64, F>(rows, columns, first, result, out),
                        _ => multiply::<i32, F>(rows, columns, first, result, out),
                    }
                }
            },
        );
    }

    /// Some rows where they lie, if they are aligned and one behind the other.
    #[inline(always)]
    fn in_place<F: Factor>(&self, first: usize, count: usize) -> Option<&[F]> {
        let Tensor { dtype, ne, nb } = *self.tensor;
        let row = dtype.row_bytes(ne[0]);
        let dense = dtype == F::TYPE && (ne[0] == 1 || nb[0] == size_of::<F>()) && (self.count == 1 || nb[1] == row);
        let bytes = dense.then(|| &self.bytes[first * row..][..count * row])?;
        bytemuck::try_cast_slice(bytes).ok()
    }
}

/// The columns of `tensor` that start at `offsets`, one behind the other.
pub fn columns<F: Factor>(tensor: &Tensor, bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Vec<F> {
    let mut numbers = vec![F::ZERO; tensor.elements()];
    vectorised(
        #[inline(always)]
        || {
            for (offset, column) in offsets.zip(numbers.chunks_exact_mut(tensor.ne[0])) {
                F::take(tensor, bytes, offset, column);
            }
        },
    );
    numbers
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
fn multiply<S: Sum, F: Factor>(rows: &[F], columns: &[&[F]], first: usize, result: DataType, out: &mut [&mut [u8]]) {
    let size = result.block_bytes();
    for (column, out) in columns.iter().zip(out) {
        let mut targets = out[first * size..].chunks_exact_mut(size);
        let mut tiles = rows.chunks_exact(ROWS * column.len());
        for tile in &mut tiles {
            let mut rows = tile.chunks_exact(column.len());
            let rows: [&[F]; ROWS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
            for (sum, target) in dots::<S, F, ROWS>(rows, column).into_iter().zip(&mut targets) {
                sum.store(result, target);
            }
        }
        for (row, target) in tiles.remainder().chunks_exact(column.len()).zip(targets) {
            dots::<S, F, 1>([row], column)[0].store(result, target);
        }
    }
}

/// The dot products of some rows with a column, all of one length.
#[inline(always)]
fn dots<S: Sum, F: Factor, const R: usize>(rows: [&[F]; R], column: &[F]) -> [S; R] {
    let rows = rows.map(|row| &row[..column.len()]);
    let mut sums = [S::ZERO; R];
    for (k, value) in column.iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = sum.add(row[k].product(*value));
        }
    }
    sums
}
