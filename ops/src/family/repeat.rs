//! REPEAT: a tensor laid end to end until it fills the result.

use super::cpu::kernel::{Argument, kernel};
use super::cpu::rows::for_each_row;
use super::moving::{NOT_WORDS, copy_run, repeat_run};
use super::rules::{addressable, dense_rows, require, source, wrong_type};
use crate::design::{Design, Movement, movement, whole_words};
use crate::node::Node;
use crate::operation::{Operation, Placement, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::{Arch, HostFunction};
use std::sync::Arc;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[&Repeat];

const NAME: &str = "REPEAT";

/// How often a mem tile sends a piece again for one descriptor (the repeat count of a task has eight bits).
const SENT_AGAIN: usize = 256;

#[derive(Debug)]
struct Repeat;

impl Operation for Repeat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32, I16, I32};
        addressable(NAME, node, 1)?;
        let (a, out) = (source(NAME, node, 0)?, &node.output);
        if !matches!(a.dtype, F32 | F16 | BF16 | I32 | I16) {
            return wrong_type(NAME, "source 0", a.dtype, "f32, f16, bf16, i32, i16");
        }
        if out.dtype != a.dtype {
            return wrong_type(NAME, "the result", out.dtype, "the type of source 0");
        }
        require(NAME, a.repeats_to(out), || format!("extents {:?} do not divide the result's {:?}", a.ne, out.ne))?;
        dense_rows(NAME, out)
    }

    fn placement(&self, node: &Node) -> Placement {
        let words = node.source(0).is_some_and(whole_words) && whole_words(&node.output);
        if words { Placement::Array } else { Placement::Host(NOT_WORDS) }
    }

    fn array_type(&self, node: &Node, _: Option<usize>, _: DataType) -> DataType {
        node.output.dtype
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn design(&self, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
        let parts = parts(source(NAME, node, 0)?, &node.output, arch);
        movement(NAME, node, arch, Movement { parts, passes: parts })
    }

    fn reference(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        self.check(node)?;
        let Some(a) = Argument::of(node, 0) else { unreachable!("check finds the source") };
        let (tensor, out) = folded(&a.tensor, &node.output);
        let (size, run) = (out.dtype.block_bytes(), tensor.ne[0] * out.dtype.block_bytes());
        Ok(kernel(node, None, move |inputs, output| {
            let bytes = inputs[a.position];
            for_each_row(
                &out,
                output,
                out.elements() * size / 16,
                #[inline(always)]
                |_, row, target| {
                    copy_run(&tensor, bytes, row.offset_repeated(&tensor), 0, &mut target[..run]);
                    repeat_run(target, run);
                    Ok(())
                },
            )
        }))
    }
}

/// Joins dimensions from the innermost on that are not repeated and have no gaps, so that rows are long.
fn folded(a: &Tensor, out: &Tensor) -> (Tensor, Tensor) {
    let (mut a, mut out) = (*a, *out);
    while out.dimensions() > 1
        && a.ne[0] == out.ne[0]
        && [a, out].iter().all(|t| t.nb[0] == t.dtype.block_bytes() && t.nb[1] == t.ne[0] * t.nb[0])
    {
        for tensor in [&mut a, &mut out] {
            let [n0, n1, n2, n3] = tensor.ne;
            let [size, _, third, fourth] = tensor.nb;
            tensor.ne = [n0 * n1, n2, n3, 1];
            tensor.nb = [size, third, fourth, fourth.saturating_mul(n3)];
        }
    }
    (a, out)
}

/// How often the source is read.
fn parts(a: &Tensor, out: &Tensor, arch: &Arch) -> usize {
    let repeats: [usize; 4] = std::array::from_fn(|d| out.ne[d] / a.ne[d].max(1));
    // What lies below the innermost repeated dimension is kept by a mem tile if it fits there, and sent again and again.
    let innermost = (0..4).find(|&d| repeats[d] > 1).unwrap_or(0);
    let kept = a.ne[..=innermost].iter().product::<usize>().saturating_mul(a.dtype.block_bytes());
    (0..4).fold(1_usize, |parts, d| {
        let sent_again = d == innermost && kept <= arch.mem_tile.data_bytes / 4;
        parts.saturating_mul(if sent_again { repeats[d].div_ceil(SENT_AGAIN) } else { repeats[d].max(1) })
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Data, Random, assert_close, find, indices, node, permuted, run};
    use super::*;
    use crate::node::OpParams;
    use rstest::rstest;

    fn compare(a: &Data, out: Tensor) {
        let values = a.values();
        let result = run(NAME, OpParams::default(), out, &[Some(a)]).unwrap();
        assert_close(&result.values(), indices(out.ne).map(|index| a.get(&values, index)), 0.0);
    }

    fn integers(tensor: Tensor) -> Data {
        let values: Vec<f32> = Random(8).floats(tensor.elements()).iter().map(|x| (x * 100.0).round()).collect();
        Data::new(tensor, &values)
    }

    #[rstest]
    #[case::once([10, 5, 4, 3], [1, 1, 1, 1])]
    #[case::rows([10, 5, 4, 3], [3, 1, 1, 1])]
    #[case::planes([10, 5, 4, 3], [1, 1, 2, 2])]
    #[case::all([7, 5, 4, 3], [3, 2, 2, 3])]
    #[case::scalar([1, 1, 1, 1], [1000, 90, 2, 1])]
    #[case::column([1, 50, 1, 1], [300, 1, 20, 1])]
    #[case::one_row([600, 1, 1, 1], [1, 400, 1, 1])]
    fn every_type_is_repeated(
        #[case] ne: [usize; 4],
        #[case] repeats: [usize; 4],
        #[values(DataType::F32, DataType::F16, DataType::BF16, DataType::I16, DataType::I32)] dtype: DataType,
    ) {
        let a = integers(Tensor::contiguous(dtype, ne));
        compare(&a, Tensor::contiguous(dtype, std::array::from_fn(|d| ne[d] * repeats[d])));
    }

    #[test]
    fn any_layout_is_read_and_gaps_are_left() {
        let a = integers(permuted(&Tensor::contiguous(DataType::F32, [6, 5, 4, 3]), [2, 0, 1, 3]));
        let ne = a.tensor.ne;
        compare(&a, Tensor::contiguous(DataType::F32, [ne[0] * 2, ne[1], ne[2] * 3, ne[3]]));
        let out = Tensor { dtype: DataType::F32, ne: [ne[0], ne[1] * 2, ne[2], ne[3]], nb: [4, 64, 1024, 8192] };
        compare(&a, out);
    }

    #[rstest]
    #[case::indivisible(DataType::F32, DataType::F32, [9, 5, 1, 1])]
    #[case::smaller(DataType::F32, DataType::F32, [4, 2, 1, 1])]
    #[case::other_type(DataType::F32, DataType::F16, [8, 5, 1, 1])]
    #[case::long_integers(DataType::I64, DataType::I64, [8, 5, 1, 1])]
    fn refuses(#[case] from: DataType, #[case] to: DataType, #[case] ne: [usize; 4]) {
        let (a, out) = (Tensor::contiguous(from, [4, 5, 1, 1]), Tensor::contiguous(to, ne));
        assert!(find(NAME).check(&node(NAME, OpParams::default(), out, &[Some(a)])).is_err());
    }

    #[rstest]
    #[case::a_row_to_many([576, 1, 1, 1], [576, 512, 1, 1], Some(2))]
    #[case::heads([64, 3, 1, 1], [64, 3, 3, 1], Some(1))]
    #[case::two_dimensions([64, 1, 4, 1], [64, 3, 4, 5], Some(5))]
    #[case::too_many([64, 1, 4, 1], [64, 2, 4, 5000], None)]
    fn the_plan_reads_the_source_as_often_as_needed(
        #[case] from: [usize; 4],
        #[case] to: [usize; 4],
        #[case] passes: Option<usize>,
    ) {
        let (a, out) = (Tensor::contiguous(DataType::F32, from), Tensor::contiguous(DataType::F32, to));
        let (node, arch) = (node(NAME, OpParams::default(), out, &[Some(a)]), crate::design::tests::arch("aie2p"));
        assert_eq!(find(NAME).design(&node, &arch).ok().map(|_| parts(&a, &out, &arch)), passes);
    }
}
