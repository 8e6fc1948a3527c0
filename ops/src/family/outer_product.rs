//! OUT_PROD: the sum of outer products, a matrix times a transposed one: `y[i, j] = sum of a[i, k] * b[j, k]` over `k`.
//!
//! A row of the result is a sum of rows of source 0, each times one number, so rows are added up in place. Source 0 is
//! decoded first, all of it: each of its rows goes into many rows of the result.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&OuterProduct];

const NAME: &str = "OUT_PROD";

struct OuterProduct;

impl Operation for OuterProduct {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a, b], out) = (sources(NAME, node)?, &node.output);
        if !(a.dtype == DataType::F32 || a.dtype == DataType::F16 || a.dtype.is_quantised()) {
            return wrong_type(NAME, "source 0", a.dtype, "f32, f16, quantised");
        }
        typed(NAME, "source 1", b, DataType::F32)?;
        typed(NAME, "the result", out, DataType::F32)?;
        let repeats = |d: usize| a.ne[d] > 0 && out.ne[d].is_multiple_of(a.ne[d]);
        let batches = if a.dtype == DataType::F32 {
            repeats(2) && repeats(3) || out.elements() == 0
        } else {
            a.ne[2..] == b.ne[2..]
        };
        let expected = [a.ne[0], b.ne[0], b.ne[2], b.ne[3]];
        require(NAME, a.ne[1] == b.ne[1] && batches && out.ne == expected, || {
            format!("extents {:?} and {:?} do not make {:?}; only f32 is repeated over batches", a.ne, b.ne, out.ne)
        })?;
        // Source 0 is decoded to f32.
        let decoded = a.ne.iter().try_fold(4_usize, |bytes, extent| bytes.checked_mul((*extent).max(1)));
        require(NAME, decoded.is_some_and(|bytes| isize::try_from(bytes).is_ok()), || {
            format!("source 0 with extents {:?} cannot be decoded: it exceeds any memory as f32", a.ne)
        })?;
        dense_blocks(NAME, "source 0", a)?;
        dense_rows(NAME, out)
    }

    /// Quantised rows are decoded by the host; what remains is a product of floats.
    fn array_type(&self, _: &Node, _: Option<usize>, _: DataType) -> DataType {
        DataType::F32
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |dtype, ne| Tensor::contiguous(dtype, ne);
        let sources = vec![Some(tensor(dtype, [256, 16, 2, 1])), Some(tensor(DataType::F32, [8, 16, 2, 1]))];
        vec![Node::new(NAME, OpParams::default(), tensor(DataType::F32, [256, 8, 2, 1]), sources)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, b] = arguments(node);
        let out = node.output;
        let decoded = Tensor::contiguous(DataType::F32, a.tensor.ne);
        let terms = a.tensor.ne[1];
        let repeats = [out.ne[2] / a.tensor.ne[2].max(1), out.ne[3] / a.tensor.ne[3].max(1)];
        Ok(kernel(node, None, move |inputs, output| {
            let mut rows = vec![0_u8; decoded.span_bytes()];
            if decoded.elements() > 0 {
                for_each_row(&decoded, &mut rows, decoded.elements() * 4, |scratch, row, target| {
                    let bytes = &inputs[a.position][row.offset(&a.tensor)..];
                    let mut known = true;
                    write(DataType::F32, target, &mut scratch.out, |values| {
                        known = load_row(&a.tensor, bytes, values);
                    });
                    if known {
                        return Ok(());
                    }
                    let reason = format!("a row of {} could not be decoded", a.tensor.dtype);
                    Err(HostFunctionError::Data { kernel: NAME.to_owned(), reason })
                })?;
            }
            fill_rows(
                &out,
                output,
                out.elements().saturating_mul(terms),
                inputs,
                &[],
                #[inline(always)]
                |Row([j, second, third]), [], y| {
                    let batch = [second / repeats[0].max(1), third / repeats[1].max(1)];
                    y.fill(0.0);
                    for k in 0..terms {
                        let at = j * b.tensor.nb[0] + Row([k, second, third]).offset(&b.tensor);
                        let factor = load_one(DataType::F32, &inputs[b.position][at..]);
                        let row = &rows[Row([k, batch[0], batch[1]]).offset(&decoded)..];
                        for (y, x) in y.iter_mut().zip(row.as_chunks::<4>().0) {
                            *y += f32::from_le_bytes(*x) * factor;
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

    #[rstest]
    fn is_the_definition(
        #[values(DataType::F32, DataType::F16, DataType::Q8_0)] dtype: DataType,
        #[values([32, 1, 1], [96, 17, 9], [256, 40, 33])] shape: [usize; 3],
        #[values(1, 3)] repeat: usize,
        #[values(false, true)] transposed: bool,
    ) {
        let [rows, columns, terms] = shape;
        // Only f32 is repeated over batches.
        let repeat = if dtype == DataType::F32 { repeat } else { 1 };
        let outer = if dtype == DataType::F32 { 1 } else { 2 };
        let a = Data::random(Tensor::contiguous(dtype, [rows, terms, 2, outer]), &mut Rng::with_seed(41));
        let b =
            Data::random(layout(DataType::F32, [columns, terms, 2 * repeat, 2], transposed), &mut Rng::with_seed(42));
        let out = f32s([rows, columns, 2 * repeat, 2]);
        assert_formula(NAME, OpParams::default(), out, &[&a, &b], 1e-4, |[i, j, c, d], get| {
            (0..terms).map(|k| get(0, [i, k, c / repeat, d * outer / 2]) * get(1, [j, k, c, d])).sum()
        });
    }

    #[rstest]
    #[case::terms(DataType::F32, [32, 4, 1, 1], [8, 5, 1, 1], [32, 8, 1, 1])]
    #[case::result(DataType::F32, [32, 4, 1, 1], [8, 4, 1, 1], [32, 9, 1, 1])]
    #[case::repeated_halves(DataType::F16, [32, 4, 1, 1], [8, 4, 2, 1], [32, 8, 2, 1])]
    #[case::other_type(DataType::BF16, [32, 4, 1, 1], [8, 4, 1, 1], [32, 8, 1, 1])]
    fn rejects(#[case] dtype: DataType, #[case] a: [usize; 4], #[case] b: [usize; 4], #[case] out: [usize; 4]) {
        assert!(!accepts(NAME, OpParams::default(), f32s(out), &[Tensor::contiguous(dtype, a), f32s(b)]));
    }
}
