//! PAD: a tensor with a border of zeros, or of itself as if it lay on a torus.
//!
//! Words 0 to 7 of the parameters are the widths before and after each dimension, innermost first; a negative width cuts off.
//! Word 8 asks for the circular form (ggml.h, `ggml_pad_ext_circular`).

use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::moving::copy_run;
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, Movement, movement, whole_words};
use crate::node::Node;
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Pad];

const NAME: &str = "PAD";

#[derive(Debug)]
struct Pad;

/// Widths before and after each dimension.
fn widths(node: &Node) -> [[i32; 2]; 4] {
    std::array::from_fn(|d| [node.params.int(2 * d), node.params.int(2 * d + 1)])
}

fn circular(node: &Node) -> bool {
    node.params.int(8) != 0
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(NAME, node, 1)?;
        let (a, out) = (source(NAME, node, 0)?, &node.output);
        for (operand, tensor) in [("source 0", a), ("the result", out)] {
            if tensor.dtype != DataType::F32 {
                return wrong_type(NAME, operand, tensor.dtype, "f32");
            }
        }
        for (d, widths) in widths(node).into_iter().enumerate() {
            let [before, after] = widths.map(i128::from);
            let (from, to) = (a.ne[d] as i128, out.ne[d] as i128);
            require(NAME, from + before + after == to, || {
                format!("dimension {d} has {from} elements, {before} before and {after} after, but the result has {to}")
            })?;
            require(NAME, !circular(node) || before <= from && after <= from, || {
                format!(
                    "dimension {d} of {from} elements cannot wrap around {before} before and {after} after; at most once"
                )
            })?;
        }
        dense_rows(NAME, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Array
    }

    /// A negative width cuts off.
    fn needs_all(&self, node: &Node, index: Option<usize>) -> bool {
        index.is_none() || widths(node).iter().flatten().all(|width| *width >= 0)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        let bordered = widths(node).iter().filter(|widths| **widths != [0, 0]).count() as u32;
        // A border of zeros is written first, all over, and the tensor into it; on a torus each dimension has three parts.
        let plan = if circular(node) {
            let parts = 3_usize.pow(bordered);
            Movement { parts, passes: parts }
        } else {
            Movement { parts: 2, passes: 1 }
        };
        movement(NAME, node, arch, plan)
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (out, circular) = (node.output, circular(node));
        let before = widths(node).map(|[before, _]| before as isize);
        Ok(kernel(node, None, move |inputs, output| {
            let bytes = inputs[a.position];
            for_each_row(
                &out,
                output,
                out.elements() / 4,
                #[inline(always)]
                |_, row, target| {
                    let mut offset = Some(0_usize);
                    for (d, index) in (1..4).zip(row.0) {
                        let place = place(index, before[d], a.tensor.ne[d], circular);
                        offset = offset.zip(place).map(|(sum, index)| sum + index * a.tensor.nb[d]);
                    }
                    match offset {
                        None => target.fill(0),
                        Some(offset) if circular => wrapped(&a.tensor, bytes, offset, before[0], target),
                        Some(offset) => bordered(&a.tensor, bytes, offset, before[0], target),
                    }
                    Ok(())
                },
            )
        }))
    }
}

/// The index in a source of `extent` for `index` of the result, if it is not in a border.
#[inline(always)]
fn place(index: usize, before: isize, extent: usize, circular: bool) -> Option<usize> {
    let index = index.cast_signed() - before;
    if circular {
        return Some(index.rem_euclid(extent.cast_signed()).cast_unsigned());
    }
    usize::try_from(index).ok().filter(|index| *index < extent)
}

/// A row between zeros.
#[inline(always)]
fn bordered(a: &Tensor, bytes: &[u8], offset: usize, before: isize, target: &mut [u8]) {
    let left = before.max(0).cast_unsigned().min(target.len() / 4);
    let skipped = (-before).max(0).cast_unsigned().min(a.ne[0]);
    let (zeros, rest) = target.split_at_mut(left * 4);
    let kept = (a.ne[0] - skipped).min(rest.len() / 4);
    let (middle, tail) = rest.split_at_mut(kept * 4);
    zeros.fill(0);
    copy_run(a, bytes, offset, skipped, middle);
    tail.fill(0);
}

/// A row that begins `before` elements before its first and goes on from its start when it ends.
#[inline(always)]
fn wrapped(a: &Tensor, bytes: &[u8], offset: usize, before: isize, target: &mut [u8]) {
    let mut position = (-before).rem_euclid(a.ne[0].cast_signed()).cast_unsigned();
    let mut rest = target;
    while !rest.is_empty() {
        let count = (a.ne[0] - position).min(rest.len() / 4);
        let (run, tail) = rest.split_at_mut(count * 4);
        copy_run(a, bytes, offset, position, run);
        (rest, position) = (tail, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, Random, assert_close, find, indices, node, permuted, run};
    use super::*;
    use crate::node::OpParams;
    use rstest::rstest;

    fn params(widths: [[i32; 2]; 4], circular: bool) -> OpParams {
        OpParams(std::array::from_fn(|word| match word {
            0..8 => widths[word / 2][word % 2],
            8 => i32::from(circular),
            _ => 0,
        }))
    }

    fn padded(ne: [usize; 4], widths: [[i32; 2]; 4]) -> Tensor {
        Tensor::contiguous(
            DataType::F32,
            std::array::from_fn(|d| (ne[d] as i32 + widths[d][0] + widths[d][1]) as usize),
        )
    }

    #[rstest]
    #[case::after([[0, 3], [0, 2], [0, 0], [0, 0]])]
    #[case::everywhere([[1, 2], [3, 4], [3, 2], [1, 3]])]
    #[case::wide([[11, 11], [5, 5], [4, 4], [3, 3]])]
    #[case::none([[0, 0]; 4])]
    #[case::cut([[-2, 3], [1, -1], [-1, -1], [0, 0]])]
    fn is_the_definition(
        #[case] widths: [[i32; 2]; 4],
        #[values(false, true)] circular: bool,
        #[values(false, true)] transposed: bool,
    ) {
        let mut tensor = Tensor::contiguous(DataType::F32, [11, 5, 4, 3]);
        if transposed {
            tensor = permuted(&Tensor::contiguous(DataType::F32, [5, 11, 3, 4]), [1, 0, 3, 2]);
        }
        let a = Data::random(tensor, &mut Random(9));
        let out = padded(tensor.ne, widths);
        let values = a.values();
        let exact = indices(out.ne).map(|index| {
            let at: [i32; 4] = std::array::from_fn(|d| index[d] as i32 - widths[d][0]);
            let inside = (0..4).all(|d| (0..tensor.ne[d] as i32).contains(&at[d]));
            if circular || inside {
                a.get(&values, std::array::from_fn(|d| at[d].rem_euclid(tensor.ne[d] as i32) as usize))
            } else {
                0.0
            }
        });
        let result = run(NAME, params(widths, circular), out, &[Some(&a)]).unwrap();
        assert_close(&result.values(), exact, 0.0);
    }

    #[test]
    fn by_hand() {
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &[1.0, 2.0, 3.0]);
        let widths = [[2, 1], [0, 0], [0, 0], [0, 0]];
        let out = padded(a.tensor.ne, widths);
        let result = |circular| run(NAME, params(widths, circular), out, &[Some(&a)]).unwrap().values();
        assert_eq!(result(false), [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
        assert_eq!(result(true), [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    }

    #[rstest]
    #[case::result_too_short([[1, 1], [0, 0], [0, 0], [0, 0]], false, [5, 2, 1, 1])]
    #[case::more_than_once_around([[5, 0], [0, 0], [0, 0], [0, 0]], true, [9, 2, 1, 1])]
    #[case::widest([[i32::MAX, i32::MAX], [0, 0], [0, 0], [0, 0]], false, [4, 2, 1, 1])]
    #[case::narrowest([[i32::MIN, i32::MIN], [0, 0], [0, 0], [0, 0]], false, [4, 2, 1, 1])]
    fn refuses(#[case] widths: [[i32; 2]; 4], #[case] circular: bool, #[case] ne: [usize; 4]) {
        let a = Tensor::contiguous(DataType::F32, [4, 2, 1, 1]);
        let out = Tensor::contiguous(DataType::F32, ne);
        assert!(find(NAME).check(&node(NAME, params(widths, circular), out, &[Some(a)])).is_err());
        let half = Tensor::contiguous(DataType::F16, [4, 2, 1, 1]);
        assert!(find(NAME).check(&node(NAME, params([[0, 0]; 4], false), half, &[Some(half)])).is_err());
    }

    #[test]
    fn extremes_cut_everything() {
        // All of the source is cut off before, and the same number of zeros follows.
        let a = Data::contiguous(DataType::F32, [3, 1, 1, 1], &[1.0, 2.0, 3.0]);
        let widths = [[-5, 5], [0, 0], [0, 0], [0, 0]];
        let result = run(NAME, params(widths, false), padded(a.tensor.ne, widths), &[Some(&a)]).unwrap();
        assert_eq!(result.values(), [0.0; 3]);
    }

    #[test]
    fn is_planned_without_cores() {
        let a = Tensor::contiguous(DataType::F32, [512, 512, 1, 1]);
        let widths = [[1, 1], [1, 1], [0, 0], [0, 0]];
        for circular in [false, true] {
            let node = node(NAME, params(widths, circular), padded(a.ne, widths), &[Some(a)]);
            let design = find(NAME).design(&node, &crate::design::tests::arch("aie2")).unwrap();
            assert_eq!(design.cores(), 0);
        }
    }
}
