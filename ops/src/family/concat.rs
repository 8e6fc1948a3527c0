//! CONCAT: two tensors joined along one dimension.
//!
//! Without gaps on any side, all dimensions up to the joined one are a single run, so that few long copies remain.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Concat];

const NAME: &str = "CONCAT";

struct Concat;

/// The dimension along which is joined.
fn dimension(node: &Node) -> Option<usize> {
    usize::try_from(node.params.int(0)).ok().filter(|d| *d < 4)
}

impl Operation for Concat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a, b], out) = (alike(NAME, node, DataType::ALL, "any type")?, &node.output);
        let Some(along) = dimension(node) else {
            return shape(NAME, format!("dimension {}; possible: 0 to 3", node.params.int(0)));
        };
        for d in 0..4 {
            // Extents are checked, so the sum is far from overflow.
            let fits =
                if d == along { out.ne[d] == a.ne[d] + b.ne[d] } else { out.ne[d] == a.ne[d] && a.ne[d] == b.ne[d] };
            require(NAME, fits, || {
                format!("extents {:?} and {:?} joined along {along} are not the result's {:?}", a.ne, b.ne, out.ne)
            })?;
        }
        dense_blocks(NAME, "source 0", a)?;
        dense_blocks(NAME, "source 1", b)?;
        dense_rows(NAME, out)
    }

    fn placement(&self, node: &Node) -> Placement {
        if folded(node).is_none_or(|parts| parts.iter().all(whole_words)) {
            Placement::Array
        } else {
            Placement::Host(NOT_WORDS)
        }
    }

    fn array_type(&self, node: &Node, index: Option<usize>, _: DataType) -> DataType {
        own_type(node, index)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        let params = words([1]);
        vec![Node::new(NAME, params, tensor(12), vec![Some(tensor(8)), Some(tensor(4))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [first, second] = arguments(node);
        let (Some([a, b, out]), Some(along)) = (folded(node), dimension(node)) else {
            unreachable!("check finds the dimension");
        };
        // Folded tensors are joined along their rows.
        let along = if out.ne == units(&node.output).ne { along } else { 0 };
        let size = out.dtype.block_bytes();
        Ok(kernel(node, None, move |inputs, output| {
            let (x, y) = (inputs[first.position], inputs[second.position]);
            for_each_piece(
                &out,
                output,
                out.elements() * size / 16,
                #[inline(always)]
                |_, row, start, target| {
                    if along == 0 {
                        // How much of the piece belongs to the first source.
                        let split = (a.ne[0].saturating_sub(start) * size).min(target.len());
                        let (left, right) = target.split_at_mut(split);
                        copy_run(&a, x, row.offset(&a), start.min(a.ne[0]), left);
                        copy_run(&b, y, row.offset(&b), start.saturating_sub(a.ne[0]), right);
                    } else if row.0[along - 1] < a.ne[along] {
                        copy_run(&a, x, row.offset(&a), start, target);
                    } else {
                        let mut moved = row;
                        moved.0[along - 1] -= a.ne[along];
                        copy_run(&b, y, moved.offset(&b), start, target);
                    }
                    Ok(())
                },
            )
        }))
    }
}

/// Sources and result in units. When none has gaps, the dimensions up to the joined one are folded into one, and the tensors
/// are joined along dimension 0.
fn folded(node: &Node) -> Option<[Tensor; 3]> {
    let tensors = [*node.source(0)?, *node.source(1)?, node.output];
    let along = dimension(node)?;
    let parts = tensors.map(|tensor| units(&tensor));
    if !tensors.iter().all(Tensor::is_contiguous) {
        return Some(parts);
    }
    Some(parts.map(|part| {
        let (inner, outer) = part.ne.split_at(along + 1);
        Tensor::contiguous(part.dtype, [inner.iter().product(), outer.iter().product(), 1, 1])
    }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// The definition, for any two layouts.
    fn compare(dimension: usize, a: &Data, b: &Data) {
        let mut ne = a.tensor.ne;
        ne[dimension] += b.tensor.ne[dimension];
        let out = Tensor::contiguous(a.tensor.dtype, ne);
        assert_formula(NAME, words([dimension as i32]), out, &[a, b], 0.0, |mut index, get| {
            if index[dimension] < a.tensor.ne[dimension] {
                return get(0, index);
            }
            index[dimension] -= a.tensor.ne[dimension];
            get(1, index)
        });
    }

    #[rstest]
    fn joins_every_type_along_every_dimension(
        #[values(DataType::F32, DataType::F16, DataType::BF16, DataType::I16, DataType::I32, DataType::Q8_0)]
        dtype: DataType,
        #[values(0, 1, 2, 3)] dimension: usize,
        #[values([32, 3, 4, 2], [64, 1, 1, 1], [96, 70, 30, 1])] ne: [usize; 4],
    ) {
        let mut random = Rng::with_seed(5);
        let mut other = ne;
        other[dimension] = if dimension == 0 { 32 } else { 5 };
        let a = integers(Tensor::contiguous(dtype, ne), &mut random);
        let b = integers(Tensor::contiguous(dtype, other), &mut random);
        compare(dimension, &a, &b);
    }

    #[rstest]
    fn reads_any_layout(
        #[values(0, 1, 2, 3)] dimension: usize,
        #[values(DataType::F32, DataType::F16)] dtype: DataType,
    ) {
        let mut random = Rng::with_seed(6);
        let a = integers(permuted(&Tensor::contiguous(dtype, [4, 5, 3, 2]), [1, 0, 3, 2]), &mut random);
        let mut ne = a.tensor.ne;
        ne[dimension] = 7;
        let mut gaps = Tensor::contiguous(dtype, ne);
        gaps.nb = gaps.nb.map(|stride| stride * 3);
        let b = integers(gaps, &mut random);
        compare(dimension, &a, &b);
        compare(dimension, &b, &a);
    }

    #[test]
    fn bytes_and_long_words_are_moved() {
        for dtype in [DataType::I8, DataType::I64, DataType::F64] {
            let size = dtype.block_bytes();
            let (a, b) = (Tensor::contiguous(dtype, [3, 2, 1, 1]), Tensor::contiguous(dtype, [2, 2, 1, 1]));
            let out = Tensor::contiguous(dtype, [5, 2, 1, 1]);
            let kernel = find(NAME).reference(&node(NAME, words([0]), out, &[Some(a), Some(b)])).unwrap();
            let bytes: Vec<u8> = (0..6 * size).map(|i| i as u8).collect();
            let more: Vec<u8> = (100..100 + 4 * size).map(|i| i as u8).collect();
            let mut result = vec![0; 10 * size];
            kernel.run(&[&bytes, &more], &mut result).unwrap();
            let expected = [&bytes[..3 * size], &more[..2 * size], &bytes[3 * size..], &more[2 * size..]].concat();
            assert_eq!(result, expected, "{dtype}");
        }
    }

    #[test]
    fn an_empty_source_adds_nothing() {
        let a = Data::contiguous(DataType::F32, [2, 0, 1, 1], &[]);
        let b = Data::contiguous(DataType::F32, [2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
        compare(1, &a, &b);
        compare(1, &b, &a);
    }

    #[rstest]
    #[case::dimension(4, [4, 2, 1, 1], [4, 2, 1, 1], [4, 4, 1, 1])]
    #[case::negative(-1, [4, 2, 1, 1], [4, 2, 1, 1], [4, 4, 1, 1])]
    #[case::other_extent(1, [4, 2, 1, 1], [5, 2, 1, 1], [4, 4, 1, 1])]
    #[case::result(1, [4, 2, 1, 1], [4, 2, 1, 1], [4, 5, 1, 1])]
    fn rejects(#[case] dimension: i32, #[case] a: [usize; 4], #[case] b: [usize; 4], #[case] out: [usize; 4]) {
        let node = node(NAME, words([dimension]), f32s(out), &[Some(f32s(a)), Some(f32s(b))]);
        assert!(find(NAME).check(&node).is_err());
        let _ = find(NAME).placement(&node);
    }

    #[test]
    fn odd_halves_stay_on_the_host() {
        let tensor = |ne| Tensor::contiguous(DataType::F16, ne);
        let node = |n| {
            node(NAME, words([0]), tensor([2 * n, 2, 1, 1]), &[Some(tensor([n, 2, 1, 1])), Some(tensor([n, 2, 1, 1]))])
        };
        assert_eq!(find(NAME).placement(&node(4)), Placement::Array);
        assert_eq!(find(NAME).placement(&node(3)), Placement::Host(NOT_WORDS));
    }
}
