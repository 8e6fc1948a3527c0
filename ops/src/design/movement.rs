//! Operations that move data and compute nothing: shim DMAs read and write, mem tiles hold what is on the way.
//!
//! A transfer is one shim buffer descriptor: a run of words and three loops around it. What does not fit one descriptor is
//! cut into several, which the instruction stream hands to the task queue one after the other. No core takes part.

use super::{Design, Flow, resources};
use crate::node::{Node, Unsupported};
use crate::tensor::Tensor;
use aie_hal::Arch;

/// Bytes that pass a mem tile together.
const PIECE_BYTES: usize = 16 * 1024;
/// Bytes of a word: DMAs move nothing smaller.
const WORD: usize = 4;
/// Largest extent of the two inner loops of a shim descriptor (a field of ten bits).
const INNER_WRAP: usize = 1023;
/// Largest extent of its outermost loop (six bits, stored less one).
const OUTER_WRAP: usize = 64;
/// Largest step of a loop, in words (20 bits, stored less one).
const STEP_WORDS: usize = 1 << 20;
/// How often a task queue starts one descriptor (eight bits, stored less one).
const TASK_REPEATS: usize = 256;
/// Descriptors after which a plan is no longer worth its instruction stream.
const MOST_TRANSFERS: usize = 1024;

/// What a movement needs besides its tensors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Movement {
    /// How many parts of the output are written by transfers of their own, at least one.
    pub parts: usize,
    /// How often the sources are read.
    pub passes: usize,
}

/// Plans the movement of the sources of `node` to its output.
///
/// # Errors
/// [`Unsupported::Resources`] when rows or strides are not whole words, or too many descriptors are needed.
pub fn movement(op: &'static str, node: &Node, arch: &Arch, movement: Movement) -> Result<Design, Unsupported> {
    let not_words = |tensor: &Tensor| {
        let Tensor { dtype, ne, nb } = tensor;
        let reason = format!("a {dtype} tensor with extents {ne:?} and strides {nb:?} is not whole 32-bit words");
        resources(op, arch, format!("{reason}, and shim DMAs move nothing smaller"))
    };
    let mut transfers = 0_usize;
    for source in node.inputs() {
        let count = descriptors(source).ok_or_else(|| not_words(source))?;
        transfers = transfers.saturating_add(count.saturating_mul(movement.passes.div_ceil(TASK_REPEATS).max(1)));
    }
    let written = descriptors(&node.output).ok_or_else(|| not_words(&node.output))?;
    transfers = transfers.saturating_add(written.saturating_mul(movement.parts.max(1)));
    if transfers > MOST_TRANSFERS {
        let reason = format!("{transfers} shim transfers are needed, {MOST_TRANSFERS} are the most a plan may have");
        return Err(resources(op, arch, reason));
    }
    Ok(Design::new(Flow::Movement, node.output.span_bytes().div_ceil(PIECE_BYTES), 0, arch))
}

/// Whether shim DMAs can address all of `tensor`: its rows are whole words, and so are its strides.
pub fn whole_words(tensor: &Tensor) -> bool {
    let row = if tensor.has_contiguous_rows() {
        tensor.dtype.row_bytes(tensor.ne[0]).is_multiple_of(WORD)
    } else {
        tensor.dtype.block_bytes().is_multiple_of(WORD) && tensor.nb[0].is_multiple_of(WORD)
    };
    row && (1..4).all(|d| tensor.ne[d] <= 1 || tensor.nb[d].is_multiple_of(WORD))
}

/// Shim descriptors that read or write `tensor`, or `None` when it is not whole words.
fn descriptors(tensor: &Tensor) -> Option<usize> {
    if !whole_words(tensor) {
        return None;
    }
    if tensor.is_contiguous() {
        return Some(1);
    }
    // Loops in words, innermost first; neighbours that are one run are merged.
    let mut loops: Vec<(usize, usize)> = if tensor.has_contiguous_rows() {
        vec![(tensor.dtype.row_bytes(tensor.ne[0]) / WORD, 1)]
    } else {
        vec![(tensor.dtype.block_bytes() / WORD, 1), (tensor.ne[0], tensor.nb[0] / WORD)]
    };
    for d in (1..4).filter(|&d| tensor.ne[d] > 1) {
        let (extent, step) = (tensor.ne[d], tensor.nb[d] / WORD);
        match loops.last_mut() {
            Some((inner, stride)) if step == *inner * *stride => *inner *= extent,
            _ => loops.push((extent, step)),
        }
    }
    // A run that is too long for one loop takes two; when no divisor is small enough, pieces of it take transfers.
    let (run, step) = loops[0];
    let mut count = 1_usize;
    if run > INNER_WRAP {
        match (2..=INNER_WRAP).rev().find(|factor| run.is_multiple_of(*factor) && run / factor <= INNER_WRAP) {
            Some(factor) => {
                loops[0] = (factor, step);
                loops.insert(1, (run / factor, factor));
            }
            None => {
                count = run.div_ceil(INNER_WRAP);
                loops[0] = (INNER_WRAP, step);
            }
        }
    }
    for (index, (extent, step)) in loops.into_iter().enumerate().skip(1) {
        let parts = match index {
            _ if step > STEP_WORDS => extent,
            1 => extent.div_ceil(INNER_WRAP),
            2 => 1,
            3 => extent.div_ceil(OUTER_WRAP),
            _ => extent,
        };
        count = count.saturating_mul(parts);
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arch, node};
    use super::*;
    use crate::tensor::DataType::{self, F16, F32, I8, Q4_0, Q8_0};
    use rstest::rstest;

    fn strided(dtype: DataType, ne: [usize; 4], nb: [usize; 4]) -> Tensor {
        Tensor { dtype, ne, nb }
    }

    #[rstest]
    #[case::contiguous(Tensor::contiguous(F32, [1 << 20, 50, 2, 1]), Some(1))]
    #[case::rows_with_gaps(strided(F32, [64, 9, 5, 3], [4, 512, 8192, 65536]), Some(1))]
    #[case::many_batches(strided(F32, [64, 9, 5, 65], [4, 512, 8192, 65536]), Some(2))]
    #[case::long_rows(strided(F32, [2046, 4, 1, 1], [4, 16384, 0, 0]), Some(1))]
    #[case::long_rows_of_a_prime(strided(F32, [2053, 4, 1, 1], [4, 16384, 0, 0]), Some(3))]
    #[case::transposed(strided(F32, [8, 2000, 1, 1], [8000, 4, 0, 0]), Some(1))]
    #[case::far_apart(strided(F32, [8, 10, 1, 1], [4, 8 << 20, 0, 0]), Some(10))]
    #[case::odd_halves(Tensor::contiguous(F16, [3, 2, 1, 1]), None)]
    #[case::transposed_halves(strided(F16, [8, 8, 1, 1], [16, 2, 0, 0]), None)]
    #[case::bytes(Tensor::contiguous(I8, [64, 3, 1, 1]), Some(1))]
    #[case::odd_blocks(Tensor::contiguous(Q4_0, [32, 2, 1, 1]), None)]
    #[case::even_blocks(Tensor::contiguous(Q8_0, [64, 2, 1, 1]), Some(1))]
    fn transfers_are_counted(#[case] tensor: Tensor, #[case] expected: Option<usize>) {
        assert_eq!(descriptors(&tensor), expected);
        assert_eq!(whole_words(&tensor), expected.is_some());
    }

    #[test]
    fn no_core_takes_part() {
        let tensor = Tensor::contiguous(F32, [4096, 64, 1, 1]);
        let plan = Movement { parts: 1, passes: 1 };
        let design = movement("PAD", &node(tensor, &[tensor]), &arch("aie2p"), plan).unwrap();
        assert_eq!((design.columns, design.cores()), (8, 0));
    }

    #[test]
    fn what_dmas_cannot_do_is_reported() {
        let plan = Movement { parts: 1, passes: 1 };
        let odd = Tensor::contiguous(F16, [3, 1, 1, 1]);
        let message = movement("REPEAT", &node(odd, &[odd]), &arch("aie2"), plan).unwrap_err().to_string();
        assert!(message.contains("not whole 32-bit words"), "{message}");
        let tensor = Tensor::contiguous(F32, [4, 1, 1, 1]);
        let many = Movement { parts: 5000, passes: 1 };
        let message = movement("REPEAT", &node(tensor, &[tensor]), &arch("aie2"), many).unwrap_err().to_string();
        assert!(message.contains("5001 shim transfers are needed, 1024"), "{message}");
    }
}
