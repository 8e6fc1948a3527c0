//! ADD, SUB, MUL, DIV: the second source repeats to the shape of the first.
//!
//! Floats follow ggml's CPU backend. Whole numbers, which it does not combine, follow the C++ backend: all three tensors have one
//! type, and what it cannot hold wraps round. Quotients of them are left out, since a division by zero has no result.

use super::cpu::integers::WHOLE;
use super::cpu::integers::elements::{OfTwo, combine};
use super::cpu::map::combine_runs;
use super::prelude::*;
use crate::blocks;

pub static OPERATIONS: &[&dyn Operation] = &[
    &Binary { name: "ADD", whole: Some(OfTwo::Sum), kernel: |node| plain(node, |x, y| x + y) },
    &Binary { name: "SUB", whole: Some(OfTwo::Difference), kernel: |node| plain(node, |x, y| x - y) },
    &Binary { name: "MUL", whole: Some(OfTwo::Product), kernel: |node| plain(node, |x, y| x * y) },
    &Binary { name: "DIV", whole: None, kernel: |node| plain(node, |x, y| x / y) },
];

struct Binary {
    name: &'static str,
    /// What it does to whole numbers, if it takes them.
    whole: Option<OfTwo>,
    kernel: fn(&Node) -> Arc<dyn HostFunction>,
}

const COMBINATIONS: &str =
    "f32, f16 or bf16 alike, or f16/bf16 with f32 as source 1 and f32 or the type of source 0 as result";
const COMBINATIONS_AND_WHOLE: &str = "f32, f16, bf16, i8, i16 or i32 alike, or f16/bf16 with f32 as source 1 and f32 or the type \
                                      of source 0 as result";

impl Binary {
    fn check_types(&self, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32};
        match (a.dtype, b.dtype, out.dtype) {
            (F32, F32, F32) | (F16, F16, F16) | (BF16, BF16, BF16) => Ok(()),
            (F16 | BF16, F32, F32) | (F16, F32, F16) | (BF16, F32, BF16) => Ok(()),
            (x, F32, y) if self.name == "ADD" && x.is_quantised() && (y == x || y == F32) => {
                if y.is_quantised() && !blocks::can_encode(y) {
                    return wrong_type(
                        self.name,
                        "the result",
                        y,
                        "f32 for a type that ggml's CPU backend cannot encode",
                    );
                }
                same_shape(self.name, "quantised source 0", a, out)?;
                same_shape(self.name, "source 1 of a quantised sum", b, out)
            }
            (F32 | F16 | BF16, y, _) => wrong_type(self.name, "source 1 or the result", y, COMBINATIONS),
            (x, ..) if self.whole.is_some() && WHOLE.contains(&x) => {
                typed(self.name, "source 1", b, x)?;
                typed(self.name, "the result", out, x)
            }
            (x, _, _) if self.whole.is_none() => wrong_type(self.name, "source 0", x, COMBINATIONS),
            (x, _, _) => wrong_type(self.name, "source 0", x, COMBINATIONS_AND_WHOLE),
        }
    }
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a, b] = sources(self.name, node)?;
        self.check_types(a, b, &node.output)?;
        same_shape(self.name, "source 0", a, &node.output)?;
        require(self.name, b.repeats_to(a), || {
            format!("source 1 with extents {:?} does not repeat to {:?}; each extent must divide", b.ne, a.ne)
        })?;
        dense_rows(self.name, &node.output)
    }

    fn flatten(&self) -> Flatten {
        Flatten::SameShape
    }

    fn array_type(&self, _: &Node, _: Option<usize>, default: DataType) -> DataType {
        if default.is_quantised() { DataType::F32 } else { default }
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let dtype = source(self.name, node, 0)?.dtype;
        Ok(match self.whole {
            Some(function) if WHOLE.contains(&dtype) => combine(node, function),
            _ if dtype.is_quantised() => quantised_sum(node),
            _ => (self.kernel)(node),
        })
    }
}

fn plain<F>(node: &Node, function: F) -> Arc<dyn HostFunction>
where
    F: Fn(f32, f32) -> f32 + Copy + Send + Sync + 'static,
{
    let ([mut a, mut b], mut out) = (arguments(node), node.output);
    as_one_row(&mut [&mut a.tensor, &mut b.tensor, &mut out]);
    kernel(node, None, move |inputs, output| {
        for_each_piece(
            &out,
            output,
            out.elements(),
            #[inline(always)]
            |scratch, row, start, target| {
                let length = target.len() / out.dtype.block_bytes();
                let x = read(&a.tensor, inputs[a.position], row.offset(&a.tensor), start, length, &mut scratch.a);
                let period = b.tensor.ne[0];
                let (b_start, b_length) = if period == out.ne[0] { (start, length) } else { (0, period) };
                let y = row.offset_repeated(&b.tensor);
                let y = read(&b.tensor, inputs[b.position], y, b_start, b_length, &mut scratch.b);
                write(
                    out.dtype,
                    target,
                    &mut scratch.out,
                    #[inline(always)]
                    |z| combine_runs(z, x, y, start - b_start, function),
                );
                Ok(())
            },
        )
    })
}

/// ggml adds f32 to quantised blocks by decoding, adding and encoding row by row.
fn quantised_sum(node: &Node) -> Arc<dyn HostFunction> {
    let ([a, b], out) = (arguments(node), node.output);
    kernel(node, None, move |inputs, output| {
        for_each_row(&out, output, out.elements() * 8, |scratch, row, target| {
            let length = out.ne[0];
            scratch.a.resize(length, 0.0);
            let blocks = &inputs[a.position][row.offset(&a.tensor)..];
            let failed = |what: &str| HostFunctionError::Data {
                kernel: "ADD".into(),
                reason: format!("a row could not be {what}"),
            };
            if !load(a.tensor.dtype, blocks, &mut scratch.a) {
                return Err(failed("decoded"));
            }
            let y = read(&b.tensor, inputs[b.position], row.offset(&b.tensor), 0, length, &mut scratch.b);
            for (x, y) in scratch.a.iter_mut().zip(y) {
                *x += y;
            }
            if store(out.dtype, &scratch.a, target) { Ok(()) } else { Err(failed("encoded")) }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn expected(op: &str, x: f64, y: f64) -> f64 {
        match op {
            "ADD" => x + y,
            "SUB" => x - y,
            "MUL" => x * y,
            _ => x / y,
        }
    }

    fn compare(op: &str, a: Data, b: Data, output: Tensor) {
        let tolerance = match output.dtype {
            DataType::F32 => 1e-6,
            DataType::F16 => 1.0 / 2048.0,
            DataType::BF16 => 1.0 / 256.0,
            _ => 0.03,
        };
        assert_formula(op, OpParams::default(), output, &[&a, &b], tolerance, |index, get| {
            expected(op, get(0, index), get(1, index))
        });
    }

    /// Away from zero, for DIV.
    fn divisor(tensor: Tensor, random: &mut Rng) -> Data {
        let values: Vec<f32> =
            random.floats(tensor.elements()).iter().map(|x| x + if *x < 0.0 { -1.0 } else { 1.0 }).collect();
        Data::new(tensor, &values)
    }

    #[rstest]
    #[case::same([7, 5, 3, 2], [7, 5, 3, 2])]
    #[case::row([64, 5, 3, 2], [64, 1, 1, 1])]
    #[case::column([6, 5, 3, 2], [1, 5, 1, 2])]
    #[case::scalar([33, 5, 1, 1], [1, 1, 1, 1])]
    #[case::period([12, 6, 4, 2], [4, 3, 2, 1])]
    #[case::single([1, 1, 1, 1], [1, 1, 1, 1])]
    #[case::long([40_000, 3, 1, 1], [8, 1, 1, 1])]
    #[case::many_rows([40, 3000, 1, 1], [40, 1, 1, 1])]
    fn repeats_the_second_source(
        #[values("ADD", "SUB", "MUL", "DIV")] op: &str,
        #[case] a: [usize; 4],
        #[case] b: [usize; 4],
    ) {
        let mut random = Rng::with_seed(11);
        let output = f32s(a);
        let b = divisor(f32s(b), &mut random);
        compare(op, Data::random(output, &mut random), b, output);
    }

    #[rstest]
    #[case(DataType::F16, DataType::F16, DataType::F16)]
    #[case(DataType::BF16, DataType::BF16, DataType::BF16)]
    #[case(DataType::F16, DataType::F32, DataType::F16)]
    #[case(DataType::F16, DataType::F32, DataType::F32)]
    #[case(DataType::BF16, DataType::F32, DataType::BF16)]
    #[case(DataType::BF16, DataType::F32, DataType::F32)]
    #[case(DataType::Q8_0, DataType::F32, DataType::Q8_0)]
    fn mixes_types(#[case] a: DataType, #[case] b: DataType, #[case] out: DataType) {
        let mut random = Rng::with_seed(12);
        let ne = [64, 3, 2, 1];
        let a = Data::random(Tensor::contiguous(a, ne), &mut random);
        let b = Data::random(Tensor::contiguous(b, ne), &mut random);
        compare("ADD", a, b, Tensor::contiguous(out, ne));
    }

    #[test]
    fn reads_and_writes_any_layout() {
        let mut random = Rng::with_seed(13);
        let a = permuted(&f32s([5, 4, 3, 2]), [1, 0, 2, 3]);
        let b = permuted(&f32s([5, 4, 1, 1]), [1, 0, 2, 3]);
        let mut output = f32s(a.ne);
        output.nb = [4, 32, 160, 480];
        compare("SUB", Data::random(a, &mut random), Data::random(b, &mut random), output);
    }

    #[rstest]
    #[case::does_not_repeat([6, 5, 1, 1], [4, 1, 1, 1], DataType::F32)]
    #[case::larger([6, 5, 1, 1], [6, 5, 2, 1], DataType::F32)]
    #[case::type_mix([6, 5, 1, 1], [6, 5, 1, 1], DataType::F16)]
    #[case::integers([6, 5, 1, 1], [6, 5, 1, 1], DataType::I32)]
    fn rejects(#[case] a: [usize; 4], #[case] b: [usize; 4], #[case] dtype: DataType) {
        let a = f32s(a);
        assert!(!accepts("MUL", OpParams::default(), a, &[a, Tensor::contiguous(dtype, b)]));
    }

    #[rstest]
    #[case(DataType::Q4_K, DataType::Q4_K, true)]
    #[case(DataType::IQ2_XXS, DataType::F32, true)]
    #[case(DataType::IQ2_XXS, DataType::IQ2_XXS, false)]
    fn sums_are_written_in_types_that_can_be(#[case] a: DataType, #[case] out: DataType, #[case] possible: bool) {
        let [a, b, out] = [a, DataType::F32, out].map(|dtype| Tensor::contiguous(dtype, [256, 2, 1, 1]));
        assert_eq!(accepts("ADD", OpParams::default(), out, &[a, b]), possible);
    }
}
