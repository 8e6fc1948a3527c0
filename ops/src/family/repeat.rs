//! REPEAT: a tensor laid end to end until it fills the result. REPEAT_BACK: what REPEAT spread, added up again: each element is
//! the sum of its copies.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Repeat, &RepeatBack];

const REPEAT: &str = "REPEAT";
const REPEAT_BACK: &str = "REPEAT_BACK";

struct Repeat;

impl Operation for Repeat {
    fn name(&self) -> &'static str {
        REPEAT
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32, I16, I32};
        let [a] = alike(REPEAT, node, &[F32, F16, BF16, I32, I16], "f32, f16, bf16, i32, i16")?;
        let out = &node.output;
        require(REPEAT, a.repeats_to(out), || format!("extents {:?} do not divide the result's {:?}", a.ne, out.ne))?;
        dense_rows(REPEAT, out)
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

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
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

struct RepeatBack;

impl Operation for RepeatBack {
    fn name(&self) -> &'static str {
        REPEAT_BACK
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(REPEAT_BACK, node)?, &node.output);
        require(REPEAT_BACK, out.repeats_to(a), || {
            format!("the result's extents {:?} do not divide those of source 0, {:?}", out.ne, a.ne)
        })?;
        dense_rows(REPEAT_BACK, out)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        vec![Node::new(REPEAT_BACK, OpParams::default(), tensor(4), vec![Some(tensor(8))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        let (out, tensor) = (node.output, a.tensor);
        let repeats: [usize; 4] = std::array::from_fn(|d| tensor.ne[d] / out.ne[d].max(1));
        Ok(kernel(node, None, move |inputs, output| {
            fill_rows(
                &out,
                output,
                tensor.elements(),
                inputs,
                &[],
                #[inline(always)]
                |Row(place), [], y| {
                    let mut copies = Vec::new();
                    y.fill(0.0);
                    for outer in 0..repeats[1] * repeats[2] * repeats[3] {
                        let Row(copy) = Row::nth(&repeats, outer);
                        let row = Row(std::array::from_fn(|d| place[d] + copy[d] * out.ne[d + 1]));
                        let offset = row.offset(&tensor);
                        for inner in 0..repeats[0] {
                            let x = read(&tensor, inputs[0], offset, inner * out.ne[0], y.len(), &mut copies);
                            for (y, x) in y.iter_mut().zip(x) {
                                *y += x;
                            }
                        }
                    }
                },
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn compare(a: &Data, out: Tensor) {
        assert_formula(REPEAT, OpParams::default(), out, &[a], 0.0, |index, get| get(0, index));
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
        let a = integers(Tensor::contiguous(dtype, ne), &mut Rng::with_seed(8));
        compare(&a, Tensor::contiguous(dtype, std::array::from_fn(|d| ne[d] * repeats[d])));
    }

    #[test]
    fn any_layout_is_read_and_gaps_are_left() {
        let a = integers(permuted(&f32s([6, 5, 4, 3]), [2, 0, 1, 3]), &mut Rng::with_seed(8));
        let ne = a.tensor.ne;
        compare(&a, f32s([ne[0] * 2, ne[1], ne[2] * 3, ne[3]]));
        let out = Tensor { dtype: DataType::F32, ne: [ne[0], ne[1] * 2, ne[2], ne[3]], nb: [4, 64, 1024, 8192] };
        compare(&a, out);
    }

    #[rstest]
    #[case::indivisible(DataType::F32, DataType::F32, [9, 5, 1, 1])]
    #[case::smaller(DataType::F32, DataType::F32, [4, 2, 1, 1])]
    #[case::other_type(DataType::F32, DataType::F16, [8, 5, 1, 1])]
    #[case::long_integers(DataType::I64, DataType::I64, [8, 5, 1, 1])]
    fn rejects(#[case] from: DataType, #[case] to: DataType, #[case] ne: [usize; 4]) {
        let (a, out) = (Tensor::contiguous(from, [4, 5, 1, 1]), Tensor::contiguous(to, ne));
        assert!(!accepts(REPEAT, OpParams::default(), out, &[a]));
    }

    #[rstest]
    #[case::once([8, 6, 4, 2], [1, 1, 1, 1])]
    #[case::rows([8, 6, 4, 2], [3, 1, 1, 1])]
    #[case::all([8, 6, 4, 2], [2, 3, 2, 2])]
    #[case::scalar([1, 1, 1, 1], [50, 20, 2, 1])]
    fn copies_are_added_up(
        #[case] ne: [usize; 4],
        #[case] repeats: [usize; 4],
        #[values(false, true)] transposed: bool,
    ) {
        let layout = layout(DataType::F32, std::array::from_fn(|d| ne[d] * repeats[d]), transposed);
        let a = Data::random(layout, &mut Rng::with_seed(51));
        assert_formula(REPEAT_BACK, OpParams::default(), f32s(ne), &[&a], 1e-5, |index, get| {
            indices(repeats).map(|copy| get(0, std::array::from_fn(|d| index[d] + copy[d] * ne[d]))).sum()
        });
    }

    #[test]
    fn what_does_not_divide_is_rejected() {
        assert!(!accepts(REPEAT_BACK, OpParams::default(), f32s([3, 2, 1, 1]), &[f32s([4, 2, 1, 1])]));
    }
}
