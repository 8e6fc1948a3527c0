//! FILL and ARANGE: results that depend on no element of any tensor.
//!
//! FILL has a source for its shape alone. ARANGE has none: its kernel's only argument is the result.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Fill, &Arange];

const FILL: &str = "FILL";
const ARANGE: &str = "ARANGE";

struct Fill;

struct Arange;

impl Operation for Fill {
    fn name(&self) -> &'static str {
        FILL
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a] = alike(FILL, node, &[DataType::F32, DataType::F16], "f32, f16")?;
        same_shape(FILL, "source 0", a, &node.output)?;
        dense_rows(FILL, &node.output)
    }

    /// The source is there for its shape.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index.is_none()
    }

    fn flatten(&self) -> Flatten {
        Flatten::Always
    }

    /// A constant needs no arithmetic, so f16 can stay.
    fn array_type(&self, node: &Node, _: Option<usize>, _: DataType) -> DataType {
        node.output.dtype
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (out, value) = (node.output, node.params.float(0));
        let size = out.dtype.block_bytes();
        let mut pattern = [0; 4];
        store(out.dtype, &[value], &mut pattern[..size]);
        Ok(kernel(node, None, move |_, output| {
            for_each_piece(
                &out,
                output,
                out.elements() / 8,
                #[inline(always)]
                |_, _, _, target| {
                    match size {
                        2 => target.as_chunks_mut::<2>().0.fill([pattern[0], pattern[1]]),
                        _ => target.as_chunks_mut::<4>().0.fill(pattern),
                    }
                    Ok(())
                },
            )
        }))
    }
}

impl Operation for Arange {
    fn name(&self) -> &'static str {
        ARANGE
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([], out) = (sources(ARANGE, node)?, &node.output);
        typed(ARANGE, "the result", out, DataType::F32)?;
        let [start, stop, step] = std::array::from_fn(|word| node.params.float(word));
        let count = ((stop - start) / step).ceil();
        require(ARANGE, count >= 0.0 && count as usize == out.elements(), || {
            format!("from {start} to {stop} by {step} are {count} elements, the result has {}", out.elements())
        })?;
        require(ARANGE, out.ne[0] == out.elements(), || format!("the result has extents {:?}, not one row", out.ne))?;
        dense_rows(ARANGE, out)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let params = OpParams(std::array::from_fn(|word| {
            [0.0_f32, 512.0, 1.0].get(word).map_or(0, |x| x.to_bits().cast_signed())
        }));
        vec![Node::new(ARANGE, params, Tensor::contiguous(dtype, [512, 1, 1, 1]), vec![])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (start, step) = (node.params.float(0), node.params.float(2));
        Ok(map_pieces(
            node,
            [],
            1,
            #[inline(always)]
            move |first, [], y| {
                for (y, i) in y.iter_mut().zip(first..) {
                    *y = start + step * i as f32;
                }
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn everything_becomes_the_constant(
        #[values(DataType::F32, DataType::F16)] dtype: DataType,
        #[values([1, 1, 1, 1], [10, 10, 4, 3], [303, 207, 3, 1], [100_000, 2, 1, 1])] ne: [usize; 4],
        #[values(0.0, -152.0, 3.5, f32::INFINITY)] value: f32,
    ) {
        let a = Data::random(Tensor::contiguous(dtype, ne), &mut Rng::with_seed(17));
        let result = run(FILL, params(&[(0, value)]), a.tensor, &[Some(&a)]).unwrap();
        assert!(result.values().iter().all(|x| *x == value));
    }

    #[test]
    fn gaps_of_the_result_stay() {
        let out = Tensor { dtype: DataType::F16, ne: [3, 2, 1, 1], nb: [2, 10, 20, 20] };
        let a = Data::random(Tensor::contiguous(DataType::F16, out.ne), &mut Rng::with_seed(18));
        let result = run(FILL, params(&[(0, 1.0)]), out, &[Some(&a)]).unwrap();
        assert_eq!(result.bytes[..10], [0, 0x3c, 0, 0x3c, 0, 0x3c, 0xAA, 0xAA, 0xAA, 0xAA]);
    }

    fn arange(start: f32, stop: f32, step: f32, out: Tensor) -> Node {
        node(ARANGE, params(&[(0, start), (1, stop), (2, step)]), out, &[])
    }

    #[rstest]
    #[case(0.0, 10.0, 1.0, 10)]
    #[case(0.0, 100_000.0, 1.0, 100_000)]
    #[case(-2.5, 3.0, 0.75, 8)]
    #[case(5.0, 0.0, -2.0, 3)]
    fn steps(#[case] start: f32, #[case] stop: f32, #[case] step: f32, #[case] count: usize) {
        let node = arange(start, stop, step, f32s([count, 1, 1, 1]));
        let kernel = find(ARANGE).reference(&node).unwrap();
        assert_eq!(kernel.input_count(), 0);
        let mut output = vec![0xAA; count * 4 + 1];
        for shift in [0, 1] {
            kernel.run(&[], &mut output[shift..]).unwrap();
            for (i, value) in output[shift..].as_chunks::<4>().0.iter().enumerate() {
                let exact = f64::from(start) + f64::from(step) * i as f64;
                let found = f64::from(f32::from_le_bytes(*value));
                assert!((found - exact).abs() <= 1e-6 * exact.abs().max(1.0), "{i}: {found} {exact}");
            }
        }
        assert!(kernel.run(&[], &mut output[..count * 4 - 1]).is_err());
        assert!(kernel.run(&[&[]], &mut output).is_err());
    }

    #[rstest]
    #[case::count(0.0, 10.0, 1.0, [11, 1, 1, 1])]
    #[case::rows(0.0, 10.0, 1.0, [5, 2, 1, 1])]
    #[case::no_step(0.0, 10.0, 0.0, [10, 1, 1, 1])]
    #[case::backwards(10.0, 0.0, 1.0, [10, 1, 1, 1])]
    #[case::nan(f32::NAN, 0.0, 1.0, [1, 1, 1, 1])]
    fn rejects(#[case] start: f32, #[case] stop: f32, #[case] step: f32, #[case] ne: [usize; 4]) {
        assert!(find(ARANGE).check(&arange(start, stop, step, f32s(ne))).is_err());
    }
}
