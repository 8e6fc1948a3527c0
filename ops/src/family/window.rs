//! SET and ACC: a tensor with a part of it replaced by another one, or increased by it.
//!
//! The part is described by the parameters: words 0 to 2 are its strides in bytes beyond its rows, word 3 is its offset in
//! bytes; its extents are those of source 1 (ggml.h). Word 4 says that source 0 already lies in the memory of the result,
//! which makes no difference to the values.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Window { name: "SET", adds: false }, &Window { name: "ACC", adds: true }];

/// Types of SET; ACC adds the first only.
const WORDS: &[DataType] = &[DataType::F32, DataType::I32];

struct Window {
    name: &'static str,
    /// Whether source 1 is added to what is there.
    adds: bool,
}

impl Window {
    /// The part of the result that source 1 goes to, and its offset.
    fn part(&self, node: &Node) -> Result<(Tensor, usize), Unsupported> {
        let (b, out) = (source(self.name, node, 1)?, &node.output);
        let [second, third, fourth, offset] = std::array::from_fn(|word| usize::try_from(node.params.int(word)));
        let (Ok(second), Ok(third), Ok(fourth), Ok(offset)) = (second, third, fourth, offset) else {
            return shape(self.name, "a stride or the offset is negative");
        };
        let part = Tensor { dtype: out.dtype, ne: b.ne, nb: [out.dtype.block_bytes(), second, third, fourth] };
        // Both have been found to be addressable; strides are below 2^31, so the span can be computed.
        let fits = part.elements() == 0 || part.span_bytes().saturating_add(offset) <= out.span_bytes();
        require(self.name, fits, || {
            let (ne, bytes) = (b.ne, out.span_bytes());
            format!("{ne:?} with strides {:?} from byte {offset} exceed the {bytes} bytes of the result", part.nb)
        })?;
        separate_rows(self.name, &part)?;
        let aligned = (1..4).all(|d| part.ne[d] <= 1 || part.nb[d].is_multiple_of(4)) && offset.is_multiple_of(4);
        require(self.name, aligned, || format!("strides {:?} or offset {offset} are not whole elements", part.nb))?;
        Ok((part, offset))
    }
}

impl Operation for Window {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let (types, possible) = if self.adds { (&WORDS[..1], "f32") } else { (WORDS, "f32, i32") };
        let ([a, _], out) = (alike(self.name, node, types, possible)?, &node.output);
        same_shape(self.name, "source 0", a, out)?;
        require(self.name, out.is_contiguous(), || {
            format!("the result has strides {:?}; it must be contiguous", out.nb)
        })?;
        self.part(node).map(|_| ())
    }

    /// What is replaced need not be read, and in place nothing of source 0.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(0)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        !self.adds && node.source(index).is_some_and(whole_words)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        let whole = tensor(8);
        let mut params = OpParams::default();
        for (word, stride) in params.0.iter_mut().zip(&whole.nb[1..]) {
            *word = i32::try_from(*stride).unwrap_or(i32::MAX);
        }
        vec![Node::new(self.name, params, whole, vec![Some(whole), Some(tensor(4))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, b] = arguments(node);
        let (out, adds, (part, offset)) = (node.output, self.adds, self.part(node)?);
        let row_bytes = part.dtype.row_bytes(part.ne[0]);
        Ok(kernel(node, None, move |inputs, output| {
            for_each_piece(
                &out,
                output,
                out.elements() / 4,
                #[inline(always)]
                |_, row, start, target| {
                    copy_run(&a.tensor, inputs[a.position], row.offset(&a.tensor), start, target);
                    Ok(())
                },
            )?;
            if part.elements() == 0 {
                return Ok(());
            }
            vectorised(
                #[inline(always)]
                || {
                    let mut scratch = Vec::new();
                    for index in 0..part.rows() {
                        let row = Row::nth(&part.ne, index);
                        let first = offset + row.offset(&part);
                        let target = &mut output[first..first + row_bytes];
                        let from = row.offset(&b.tensor);
                        if !adds {
                            copy_run(&b.tensor, inputs[b.position], from, 0, target);
                            continue;
                        }
                        let x = read_row(&b, inputs, from, &mut scratch);
                        for (sum, x) in target.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                            *sum = (f32::from_le_bytes(*sum) + x).to_le_bytes();
                        }
                    }
                },
            );
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn window(strides: [usize; 3], offset: usize, inplace: bool) -> OpParams {
        let [second, third, fourth] = strides;
        let words = [second, third, fourth, offset, usize::from(inplace)];
        OpParams(std::array::from_fn(|word| words.get(word).map_or(0, |word| *word as i32)))
    }

    #[rstest]
    fn a_part_is_replaced_or_increased(
        #[values(("SET", DataType::F32), ("SET", DataType::I32), ("ACC", DataType::F32))] op: (&str, DataType),
        #[values(([6, 5, 4, 3], [6, 2, 4, 3]), ([6, 5, 4, 3], [3, 5, 1, 2]), ([300, 300, 2, 1], [100, 7, 2, 1]))]
        shapes: ([usize; 4], [usize; 4]),
        #[values(0, 4)] offset: usize,
        #[values(false, true)] transposed: bool,
    ) {
        let (name, dtype) = op;
        let (whole, [n0, n1, n2, _]) = (Tensor::contiguous(dtype, shapes.0), shapes.1);
        let a = integers(whole, &mut Rng::with_seed(22));
        let part = layout(dtype, shapes.1, transposed);
        let b = integers(part, &mut Rng::with_seed(23));
        let [_, second, third, fourth] = whole.nb;
        let params = window([second, third, fourth], offset, transposed);
        let result = run(name, params, whole, &[Some(&a), Some(&b)]).unwrap();
        let mut exact: Vec<f64> = a.values().into_iter().map(f64::from).collect();
        for (index, value) in b.values().into_iter().enumerate() {
            let [i, j, k, l] = [index % n0, index / n0 % n1, index / (n0 * n1) % n2, index / (n0 * n1 * n2)];
            let at = &mut exact[offset / 4 + i + (j * second + k * third + l * fourth) / 4];
            *at = f64::from(value) + if name == "ACC" { *at } else { 0.0 };
        }
        assert_close(&result.values(), exact, 1e-6);
    }

    #[rstest]
    #[case::behind_the_end("SET", DataType::F32, [16, 64, 64], 20)]
    #[case::far_behind("SET", DataType::F32, [1 << 30, 64, 64], 0)]
    #[case::overlapping_rows("ACC", DataType::F32, [8, 64, 64], 0)]
    #[case::between_elements("SET", DataType::F32, [18, 64, 64], 0)]
    #[case::sums_of_integers("ACC", DataType::I32, [16, 64, 64], 0)]
    #[case::halves("SET", DataType::F16, [8, 32, 32], 0)]
    fn rejects(#[case] op: &str, #[case] dtype: DataType, #[case] strides: [usize; 3], #[case] offset: usize) {
        let (tensor, part) = (Tensor::contiguous(dtype, [4, 4, 1, 1]), Tensor::contiguous(dtype, [4, 3, 1, 1]));
        for params in [window(strides, offset, false), OpParams([-16; 16])] {
            assert!(!accepts(op, params, tensor, &[tensor, part]));
        }
    }
}
