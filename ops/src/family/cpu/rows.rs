//! Handing out the rows of a result: in place, in order, on as many cores as the work is worth.

use crate::tensor::Tensor;
use aie_hal::HostFunctionError;
use pulp::Arch;
use rayon::prelude::*;

/// Below this many element-operations a kernel runs on the calling thread: waking the others would cost more.
pub const PARALLEL_WORK: usize = 64 * 1024;

/// Elements of a row that are handed out as one piece, when rows are long and few.
const PIECE: usize = 16 * 1024;

/// Position of a row: the outer three indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row(pub [usize; 3]);

impl Row {
    /// The row with number `index`, counted in dimension order.
    #[inline(always)]
    pub fn nth(ne: &[usize; 4], index: usize) -> Self {
        Self([index % ne[1], index / ne[1] % ne[2], index / (ne[1] * ne[2])])
    }

    /// Where the row starts in `tensor`, in bytes.
    #[inline(always)]
    pub fn offset(self, tensor: &Tensor) -> usize {
        let [a, b, c] = self.0;
        a * tensor.nb[1] + b * tensor.nb[2] + c * tensor.nb[3]
    }

    /// Where the row of a repeated `tensor` starts: indices wrap at its extents.
    #[inline(always)]
    pub fn offset_repeated(self, tensor: &Tensor) -> usize {
        let [a, b, c] = self.0;
        // The division is the most costly thing in a short row; most extents are one or not repeated.
        let wrap = |i: usize, n: usize| if i < n { i } else { i % n };
        Self([wrap(a, tensor.ne[1]), wrap(b, tensor.ne[2]), wrap(c, tensor.ne[3])]).offset(tensor)
    }
}

/// Buffers a thread keeps while it works on rows.
#[derive(Debug, Default)]
pub struct Scratch {
    /// For the first source.
    pub a: Vec<f32>,
    /// For the second source.
    pub b: Vec<f32>,
    /// For the result.
    pub out: Vec<f32>,
}

/// Bytes from the first to behind the last element of a row.
fn row_span(tensor: &Tensor) -> usize {
    if tensor.dtype.is_quantised() {
        tensor.dtype.row_bytes(tensor.ne[0])
    } else {
        tensor.dtype.block_bytes() + (tensor.ne[0] - 1) * tensor.nb[0]
    }
}

/// Rows, or pieces of one, with the element each starts at and their memory.
type Share<'s, 'r> = &'s mut (dyn Iterator<Item = (Row, usize, &'r mut [u8])> + 'r);

/// Calls `body` once for each row of `tensor` with the row's memory in `output`. `work` is the number of element-operations of
/// the whole; it decides whether other threads are woken. `tensor` is not empty.
///
/// # Errors
/// The first error of `body`.
pub fn for_each_row<B>(tensor: &Tensor, output: &mut [u8], work: usize, body: B) -> Result<(), HostFunctionError>
where
    B: Fn(&mut Scratch, Row, &mut [u8]) -> Result<(), HostFunctionError> + Sync,
{
    hand_out_rows(tensor, output, work, &|share| {
        vectorised(
            #[inline(always)]
            || {
                let mut scratch = Scratch::default();
                for (row, _, bytes) in share {
                    body(&mut scratch, row, bytes)?;
                }
                Ok(())
            },
        )
    })
}

/// As [`for_each_row`] for functions of single elements: long rows come in pieces. `body` gets the element a piece starts at.
/// Rows have no gaps; `tensor` is of a plain type.
///
/// # Errors
/// The first error of `body`.
pub fn for_each_piece<B>(tensor: &Tensor, output: &mut [u8], work: usize, body: B) -> Result<(), HostFunctionError>
where
    B: Fn(&mut Scratch, Row, usize, &mut [u8]) -> Result<(), HostFunctionError> + Sync,
{
    let run = |share: Share<'_, '_>| {
        vectorised(
            #[inline(always)]
            || {
                let mut scratch = Scratch::default();
                for (row, start, bytes) in share {
                    body(&mut scratch, row, start, bytes)?;
                }
                Ok(())
            },
        )
    };
    if tensor.ne[0] >= 2 * PIECE && work >= PARALLEL_WORK && !tensor.dtype.is_quantised() {
        hand_out_pieces(tensor, output, &run)
    } else {
        hand_out_rows(tensor, output, work, &run)
    }
}

/// Calls `run` with shares of the rows. Not generic, as what follows: threads and their jobs are compiled once, and not for
/// each of the hundred functions that go through rows.
fn hand_out_rows(
    tensor: &Tensor,
    output: &mut [u8],
    work: usize,
    run: &(dyn Fn(Share<'_, '_>) -> Result<(), HostFunctionError> + Sync),
) -> Result<(), HostFunctionError> {
    let rows = tensor.rows();
    let span = row_span(tensor);
    let threads = if work >= PARALLEL_WORK && rows > 1 { rayon::current_num_threads() } else { 1 };
    let share = if threads > 1 { rows.div_ceil(threads * 4) } else { rows };
    if tensor.is_contiguous() {
        let one = |(chunk, bytes): (usize, &mut [u8])| {
            let rows = bytes.chunks_exact_mut(span).enumerate();
            run(&mut rows.map(|(i, row)| (Row::nth(&tensor.ne, chunk * share + i), 0, row)))
        };
        return if threads > 1 {
            output.par_chunks_mut(share * span).enumerate().try_for_each(one)
        } else {
            one((0, output))
        };
    }
    if let Some(mut pieces) = disjoint_rows(tensor, output) {
        let one =
            |chunk: &mut [(Row, &mut [u8])]| run(&mut chunk.iter_mut().map(|(row, bytes)| (*row, 0, &mut **bytes)));
        return if threads > 1 { pieces.par_chunks_mut(share).try_for_each(one) } else { one(&mut pieces) };
    }
    (0..rows).try_for_each(|index| {
        let row = Row::nth(&tensor.ne, index);
        let start = row.offset(tensor);
        run(&mut std::iter::once((row, 0, &mut output[start..start + span])))
    })
}

/// Calls `run` with each piece of each row, one row after the other.
fn hand_out_pieces(
    tensor: &Tensor,
    output: &mut [u8],
    run: &(dyn Fn(Share<'_, '_>) -> Result<(), HostFunctionError> + Sync),
) -> Result<(), HostFunctionError> {
    let span = row_span(tensor);
    let size = tensor.dtype.block_bytes();
    (0..tensor.rows()).try_for_each(|index| {
        let row = Row::nth(&tensor.ne, index);
        let start = row.offset(tensor);
        let pieces = output[start..start + span].par_chunks_mut(PIECE * size).enumerate();
        pieces.try_for_each(|(piece, bytes)| run(&mut std::iter::once((row, piece * PIECE, bytes))))
    })
}

/// Runs `body` compiled for the vector unit of this machine, chosen at run time.
#[inline(always)]
pub fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(body)
}

/// The rows as separate pieces of memory, in the order they lie there, or `None` when they interleave.
pub fn disjoint_rows<'a>(tensor: &Tensor, output: &'a mut [u8]) -> Option<Vec<(Row, &'a mut [u8])>> {
    let span = row_span(tensor);
    let mut outer = [1, 2, 3];
    outer.sort_by_key(|&d| (tensor.nb[d], tensor.ne[d]));
    let [inner, middle, outer] = outer;
    let mut pieces = Vec::with_capacity(tensor.rows());
    let mut rest = output;
    let mut position = 0;
    for c in 0..tensor.ne[outer] {
        for b in 0..tensor.ne[middle] {
            for a in 0..tensor.ne[inner] {
                let mut index = [0; 4];
                (index[inner], index[middle], index[outer]) = (a, b, c);
                let row = Row([index[1], index[2], index[3]]);
                let start = row.offset(tensor);
                let gap = start.checked_sub(position)?;
                let (_, tail) = rest.split_at_mut(gap);
                let (piece, tail) = tail.split_at_mut(span);
                pieces.push((row, piece));
                rest = tail;
                position = start + span;
            }
        }
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DataType;
    use rstest::rstest;

    fn f32_tensor(ne: [usize; 4], nb: [usize; 4]) -> Tensor {
        Tensor { dtype: DataType::F32, ne, nb }
    }

    #[rstest]
    #[case::contiguous(Tensor::contiguous(DataType::F32, [5, 4, 3, 2]))]
    #[case::gaps(f32_tensor([5, 4, 3, 2], [4, 32, 128, 512]))]
    #[case::permuted(f32_tensor([5, 4, 3, 2], [4, 60, 20, 240]))]
    #[case::interleaved(f32_tensor([3, 2, 2, 1], [8, 4, 24, 48]))]
    fn every_row_is_handed_out_once(#[case] tensor: Tensor, #[values(0, usize::MAX)] work: usize) {
        let mut output = vec![0_u8; tensor.span_bytes()];
        for_each_row(&tensor, &mut output, work, |_, row, bytes| {
            for i in 0..tensor.ne[0] {
                let [a, b, c] = row.0;
                bytes[i * tensor.nb[0]] += (1 + i + 5 * a + 20 * b + 60 * c) as u8;
            }
            Ok(())
        })
        .unwrap();
        for index in 0..tensor.rows() {
            let row = Row::nth(&tensor.ne, index);
            for i in 0..tensor.ne[0] {
                let [a, b, c] = row.0;
                let expected = 1 + i + 5 * a + 20 * b + 60 * c;
                assert_eq!(usize::from(output[row.offset(&tensor) + i * tensor.nb[0]]), expected);
            }
        }
    }

    #[test]
    fn long_rows_come_in_pieces_that_cover_them() {
        let tensor = Tensor::contiguous(DataType::F32, [3 * PIECE + 7, 2, 1, 1]);
        let mut output = vec![0_u8; tensor.span_bytes()];
        for_each_piece(&tensor, &mut output, usize::MAX, |_, row, start, bytes| {
            for (i, value) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *value = ((row.0[0] * tensor.ne[0] + start + i) as f32).to_le_bytes();
            }
            Ok(())
        })
        .unwrap();
        for (i, value) in output.as_chunks::<4>().0.iter().enumerate() {
            assert_eq!(f32::from_le_bytes(*value), i as f32);
        }
    }
}
