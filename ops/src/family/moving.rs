//! Elements moved as they are: what joining, repeating and padding share.
//!
//! No value is read, so a type is only a number of bytes. A tensor is seen in units that are moved as a whole; rows of
//! blocks have no gaps and are seen as bytes.

use super::rules::require;
use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};

/// Why tensors whose rows are not whole words stay on the host.
pub(super) const NOT_WORDS: &str = "shim DMAs move whole 32-bit words, and its rows or strides are not whole words";

/// Whether shim DMAs, which move whole 32-bit words, can address all of `tensor`: its rows are whole words, and so are its strides.
pub(super) fn whole_words(tensor: &Tensor) -> bool {
    const WORD: usize = 4;
    let row = if tensor.has_contiguous_rows() {
        tensor.dtype.row_bytes(tensor.ne[0]).is_multiple_of(WORD)
    } else {
        tensor.dtype.block_bytes().is_multiple_of(WORD) && tensor.nb[0].is_multiple_of(WORD)
    };
    row && (1..4).all(|d| tensor.ne[d] <= 1 || tensor.nb[d].is_multiple_of(WORD))
}

/// `tensor` in units: itself, or for quantised types a tensor of bytes.
pub(super) fn units(tensor: &Tensor) -> Tensor {
    if !tensor.dtype.is_quantised() {
        return *tensor;
    }
    let [_, b, c, d] = tensor.ne;
    let [_, second, third, fourth] = tensor.nb;
    Tensor { dtype: DataType::I8, ne: [tensor.dtype.row_bytes(tensor.ne[0]), b, c, d], nb: [1, second, third, fourth] }
}

/// The type that source `index`, or the result, has: what is moved stays what it is.
pub(super) fn own_type(node: &Node, index: Option<usize>) -> DataType {
    index.and_then(|slot| node.source(slot)).map_or(node.output.dtype, |tensor| tensor.dtype)
}

/// Rows of blocks have no gaps; single elements can lie anywhere.
pub(super) fn dense_blocks(op: &'static str, operand: &str, tensor: &Tensor) -> Result<(), Unsupported> {
    require(op, !tensor.dtype.is_quantised() || tensor.has_contiguous_rows(), || {
        format!("rows of {operand} have gaps (stride {}); rows of {} must be contiguous", tensor.nb[0], tensor.dtype)
    })
}

/// Fills `target`, which has no gaps, with the units from number `start` of the row at `offset` of `tensor`.
#[inline(always)]
pub(super) fn copy_run(tensor: &Tensor, bytes: &[u8], offset: usize, start: usize, target: &mut [u8]) {
    if !target.is_empty() {
        let stride = tensor.nb[0];
        copy_strided(tensor.dtype.block_bytes(), stride, &bytes[offset + start * stride..], target);
    }
}

/// Fills `target`, which has no gaps, with units of `size` bytes that lie `stride` bytes apart.
#[inline(always)]
pub(super) fn copy_strided(size: usize, stride: usize, source: &[u8], target: &mut [u8]) {
    #[inline(always)]
    fn sized<const SIZE: usize>(stride: usize, source: &[u8], target: &mut [u8]) {
        for (i, unit) in target.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
            unit.copy_from_slice(&source[i * stride..i * stride + SIZE]);
        }
    }
    if stride == size || target.len() == size {
        let bytes = target.len();
        return target.copy_from_slice(&source[..bytes]);
    }
    match size {
        1 => sized::<1>(stride, source, target),
        2 => sized::<2>(stride, source, target),
        4 => sized::<4>(stride, source, target),
        _ => sized::<8>(stride, source, target),
    }
}

/// Repeats the first `run` bytes of `target` until it is full.
#[inline(always)]
pub(super) fn repeat_run(target: &mut [u8], run: usize) {
    let mut done = run.max(1);
    while done < target.len() {
        let count = done.min(target.len() - done);
        target.copy_within(..count, done);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(DataType::I8)]
    #[case(DataType::F16)]
    #[case(DataType::F32)]
    #[case(DataType::I64)]
    fn runs_are_taken_with_and_without_gaps(#[case] dtype: DataType, #[values(1, 3)] gap: usize) {
        let size = dtype.block_bytes();
        let tensor = Tensor { dtype, ne: [7, 2, 1, 1], nb: [size * gap, size * gap * 7, 0, 0] };
        let bytes: Vec<u8> = (0..tensor.span_bytes()).map(|i| i as u8).collect();
        let mut target = vec![0; 4 * size];
        copy_run(&tensor, &bytes, tensor.nb[1], 2, &mut target);
        for (i, unit) in target.chunks(size).enumerate() {
            let first = tensor.nb[1] + (2 + i) * tensor.nb[0];
            assert_eq!(unit, &bytes[first..first + size]);
        }
        copy_run(&tensor, &[], 0, 0, &mut []);
    }

    #[rstest]
    #[case(3, 12)]
    #[case(3, 3)]
    #[case(1, 17)]
    #[case(4, 100)]
    fn a_run_fills_the_rest(#[case] run: usize, #[case] length: usize) {
        let mut target: Vec<u8> = (0..length).map(|i| if i < run { i as u8 + 1 } else { 0 }).collect();
        repeat_run(&mut target, run);
        assert!(target.iter().enumerate().all(|(i, value)| usize::from(*value) == i % run + 1), "{target:?}");
    }

    #[test]
    fn blocks_are_bytes() {
        let blocks = Tensor::contiguous(DataType::Q4_0, [64, 3, 2, 1]);
        assert_eq!(units(&blocks), Tensor::contiguous(DataType::I8, [36, 3, 2, 1]));
        let halves = Tensor::contiguous(DataType::F16, [64, 3, 2, 1]);
        assert_eq!(units(&halves), halves);
        assert!(dense_blocks("CONCAT", "source 0", &blocks).is_ok());
        assert!(dense_blocks("CONCAT", "source 0", &Tensor { nb: [36, 72, 216, 432], ..blocks }).is_err());
    }

    fn strided(dtype: DataType, ne: [usize; 4], nb: [usize; 4]) -> Tensor {
        Tensor { dtype, ne, nb }
    }

    #[rstest]
    #[case::contiguous(Tensor::contiguous(DataType::F32, [1 << 20, 50, 2, 1]), true)]
    #[case::rows_with_gaps(strided(DataType::F32, [64, 9, 5, 3], [4, 512, 8192, 65536]), true)]
    #[case::transposed(strided(DataType::F32, [8, 2000, 1, 1], [8000, 4, 0, 0]), true)]
    #[case::far_apart(strided(DataType::F32, [8, 10, 1, 1], [4, 8 << 20, 0, 0]), true)]
    #[case::odd_halves(Tensor::contiguous(DataType::F16, [3, 2, 1, 1]), false)]
    #[case::transposed_halves(strided(DataType::F16, [8, 8, 1, 1], [16, 2, 0, 0]), false)]
    #[case::bytes(Tensor::contiguous(DataType::I8, [64, 3, 1, 1]), true)]
    #[case::odd_blocks(Tensor::contiguous(DataType::Q4_0, [32, 2, 1, 1]), false)]
    #[case::even_blocks(Tensor::contiguous(DataType::Q8_0, [64, 2, 1, 1]), true)]
    fn dmas_move_whole_words(#[case] tensor: Tensor, #[case] expected: bool) {
        assert_eq!(whole_words(&tensor), expected);
    }
}
