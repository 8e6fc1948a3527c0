//! Whole numbers: i8, i16 and i32, exact modulo a power of two.
//!
//! What a type cannot hold wraps round: a result has the low bits of the exact one. The C++ backend's cores do so, which compute
//! sums and products of elements in `int` and keep the low bits, and so does the array's matrix unit, whose accumulators lose
//! their upper bits on the way to a vector unless a core switches saturation on. The order of a sum does not matter then.

pub mod elements;
pub mod product;

use crate::tensor::{DataType, Tensor};

/// The types, shortest first.
pub const WHOLE: &[DataType] = &[DataType::I8, DataType::I16, DataType::I32];

/// A whole number as it lies in memory.
pub trait Whole: bytemuck::Pod + Ord + Send + Sync {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The distance from zero; the least number stays what it is.
    fn magnitude(self) -> Self;
    /// 1, 0 or -1.
    fn sign(self) -> Self;
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl Whole for $number {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.wrapping_abs()
            }

            #[inline(always)]
            fn sign(self) -> Self {
                self.signum()
            }
        }
    )*};
}

whole!(i8, i16, i32);

/// The first `length` numbers of a buffer of another type, which grows as needed. What they are is arbitrary.
#[inline(always)]
fn buffer<W: Whole>(scratch: &mut Vec<f32>, length: usize) -> &mut [W] {
    let words = (length * size_of::<W>()).div_ceil(size_of::<f32>());
    if scratch.len() < words {
        scratch.resize(words, 0.0);
    }
    &mut bytemuck::cast_slice_mut(scratch.as_mut_slice())[..length]
}

/// `length` elements from element `start` of the row at `offset`: where they lie if they are aligned and have no gaps, otherwise
/// copied to `scratch`.
#[inline(always)]
fn read<'a, W: Whole>(
    tensor: &Tensor,
    bytes: &'a [u8],
    offset: usize,
    [start, length]: [usize; 2],
    scratch: &'a mut Vec<f32>,
) -> &'a [W] {
    let (size, stride) = (size_of::<W>(), tensor.nb[0]);
    if length == 0 {
        return &[];
    }
    if stride == size || tensor.ne[0] == 1 {
        let source = &bytes[offset + start * size..][..length * size];
        if let Ok(numbers) = bytemuck::try_cast_slice(source) {
            return numbers;
        }
        let numbers = buffer::<W>(scratch, length);
        bytemuck::cast_slice_mut(numbers).copy_from_slice(source);
        return numbers;
    }
    let first = offset + start * stride;
    let numbers = buffer::<W>(scratch, length);
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = bytemuck::pod_read_unaligned(&bytes[first + i * stride..][..size]);
    }
    numbers
}

/// Gives `fill` the numbers that lie in `target` without gaps: in place if they are aligned, by way of `scratch` otherwise.
#[inline(always)]
fn write<W: Whole>(target: &mut [u8], scratch: &mut Vec<f32>, fill: impl FnOnce(&mut [W])) {
    if let Ok(numbers) = bytemuck::try_cast_slice_mut(target) {
        return fill(numbers);
    }
    let numbers = buffer::<W>(scratch, target.len() / size_of::<W>());
    fill(numbers);
    target.copy_from_slice(bytemuck::cast_slice(numbers));
}
