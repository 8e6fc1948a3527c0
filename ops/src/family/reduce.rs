//! SUM, SUM_ROWS, MEAN, ARGMAX, COUNT_EQUAL: one element of a row or of a whole tensor; CUMSUM: the sums on the way.
//!
//! Sums are taken in double precision, as ggml's CPU backend does for f32, and rounded once.

use super::cpu::fold::{Unit, fold, sum};
use super::prelude::*;
use std::ops::Range;

pub static OPERATIONS: &[&dyn Operation] = &[
    &Reduction { name: "SUM", function: Function::Sum },
    &Reduction { name: "SUM_ROWS", function: Function::SumRows },
    &Reduction { name: "MEAN", function: Function::Mean },
    &Reduction { name: "CUMSUM", function: Function::CumulativeSum },
    &Reduction { name: "ARGMAX", function: Function::ArgMax },
    &Reduction { name: "COUNT_EQUAL", function: Function::CountEqual },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Sum,
    SumRows,
    Mean,
    CumulativeSum,
    ArgMax,
    CountEqual,
}

struct Reduction {
    name: &'static str,
    function: Function,
}

impl Reduction {
    /// The result's type and extents for source 0.
    fn result(&self, a: &Tensor) -> (DataType, [usize; 4]) {
        let [_, rows, b, c] = a.ne;
        match self.function {
            Function::Sum => (a.dtype, [1; 4]),
            Function::SumRows | Function::Mean => (DataType::F32, [1, rows, b, c]),
            Function::CumulativeSum => (DataType::F32, a.ne),
            Function::ArgMax => (DataType::I32, [rows, 1, 1, 1]),
            Function::CountEqual => (DataType::I64, [1; 4]),
        }
    }

    fn check_source(&self, node: &Node, a: &Tensor) -> Result<(), Unsupported> {
        let (possible, listed): (&[DataType], _) = match self.function {
            Function::Sum => (FLOATS, "f32, f16, bf16"),
            Function::CountEqual => (&[DataType::I32], "i32"),
            _ => (&[DataType::F32], "f32"),
        };
        if !possible.contains(&a.dtype) {
            return wrong_type(self.name, "source 0", a.dtype, listed);
        }
        // Here ggml's CPU backend takes rows without gaps, or a matrix, for granted.
        if matches!(self.function, Function::Sum | Function::Mean | Function::ArgMax) {
            require(self.name, a.has_contiguous_rows(), || {
                format!("rows of source 0 have gaps (stride {}); make it contiguous", a.nb[0])
            })?;
        }
        if matches!(self.function, Function::ArgMax | Function::CountEqual) {
            require(self.name, a.ne[2] == 1 && a.ne[3] == 1, || {
                format!("source 0 has extents {:?}; it must be a matrix", a.ne)
            })?;
        }
        match self.function {
            Function::ArgMax => require(self.name, i32::try_from(a.ne[0]).is_ok(), || {
                format!("positions in rows of {} elements do not fit the result's i32", a.ne[0])
            }),
            Function::CountEqual => {
                let b = source(self.name, node, 1)?;
                typed(self.name, "source 1", b, DataType::I32)?;
                require(self.name, a.same_shape(b), || {
                    format!("sources have extents {:?} and {:?}; they must be equal", a.ne, b.ne)
                })
            }
            _ => Ok(()),
        }
    }
}

impl Operation for Reduction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(self.name, node, if self.function == Function::CountEqual { 2 } else { 1 })?;
        let a = source(self.name, node, 0)?;
        self.check_source(node, a)?;
        let (dtype, ne) = self.result(a);
        typed(self.name, "the result", &node.output, dtype)?;
        same_shape(self.name, "what source 0 gives", &Tensor { ne, ..*a }, &node.output)?;
        dense_rows(self.name, &node.output)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let a = Tensor::contiguous(dtype, [512, 8, 1, 1]);
        let (result, ne) = self.result(&a);
        let sources = vec![Some(a); if self.function == Function::CountEqual { 2 } else { 1 }];
        vec![Node::new(self.name, OpParams::default(), Tensor::contiguous(result, ne), sources)]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a] = arguments(node);
        Ok(match self.function {
            Function::Sum => whole_sum(node, a),
            Function::SumRows => row_sums(node, a, 1.0),
            Function::Mean => row_sums(node, a, a.tensor.ne[0] as f64),
            Function::CumulativeSum => map_rows(
                node,
                node.output.elements() * 2,
                #[inline(always)]
                |_, [x], y| cumulate(y, x),
            ),
            Function::ArgMax => largest(node, a),
            Function::CountEqual => count_equal(node),
        })
    }
}

/// The sum of a tensor of floats.
fn total(a: &Tensor, bytes: &[u8]) -> f64 {
    let ne = if a.is_contiguous() { [a.elements(), 1, 1, 1] } else { a.ne };
    let whole = Tensor { ne, ..*a };
    let body = |scratch: &mut Scratch, row: Row, range: Range<usize>| {
        sum(read(&whole, bytes, row.offset(&whole), range.start, range.len(), &mut scratch.a), |x| x)
    };
    fold(&ne, 1, Unit::Piece, body, |a, b| a + b).unwrap_or(0.0)
}

fn whole_sum(node: &Node, a: KernelInput) -> Arc<dyn HostFunction> {
    let out = node.output;
    kernel(node, None, move |inputs, output| {
        let total = total(&a.tensor, inputs[a.position]) as f32;
        write(out.dtype, output, &mut Vec::new(), |y| y.fill(total));
        Ok(())
    })
}

/// The sums of the rows, divided.
fn row_sums(node: &Node, a: KernelInput, divisor: f64) -> Arc<dyn HostFunction> {
    let out = node.output;
    // Few rows leave cores without work, unless each is shared.
    let shared = out.rows() < 8;
    kernel(node, None, move |inputs, output| {
        let work = if shared { 0 } else { a.tensor.elements() };
        for_each_row(
            &out,
            output,
            work,
            #[inline(always)]
            |scratch, row, target| {
                let total = if shared {
                    let bytes = inputs[a.position].get(row.offset(&a.tensor)..).unwrap_or_default();
                    total(&Tensor { ne: [a.tensor.ne[0], 1, 1, 1], ..a.tensor }, bytes)
                } else {
                    sum(read_row(&a, inputs, row.offset(&a.tensor), &mut scratch.a), |x| x)
                };
                target.copy_from_slice(&((total / divisor) as f32).to_le_bytes());
                Ok(())
            },
        )
    })
}

/// Sums of all elements so far: within 16 by doubling distances, which vectorises, with what was before them added.
#[inline(always)]
fn cumulate(y: &mut [f32], x: &[f32]) {
    let mut before = 0.0_f64;
    let (chunks, tail) = x.as_chunks::<16>();
    let (results, rest) = y.split_at_mut(chunks.len() * 16);
    for (result, chunk) in results.as_chunks_mut::<16>().0.iter_mut().zip(chunks) {
        let mut sums = chunk.map(f64::from);
        for distance in [1, 2, 4, 8] {
            let earlier = sums;
            for (sum, earlier) in sums[distance..].iter_mut().zip(earlier) {
                *sum += earlier;
            }
        }
        for (result, sum) in result.iter_mut().zip(sums) {
            *result = (before + sum) as f32;
        }
        before += sums[15];
    }
    for (result, x) in rest.iter_mut().zip(tail) {
        before += f64::from(*x);
        *result = before as f32;
    }
}

fn largest(node: &Node, a: KernelInput) -> Arc<dyn HostFunction> {
    // The elements of the result belong to the rows of the source, one to each.
    let (size, stride) = (node.output.dtype.block_bytes(), node.output.nb[0]);
    let out = Tensor { dtype: node.output.dtype, ne: [1, node.output.ne[0], 1, 1], nb: [size, stride, stride, stride] };
    map_row_bytes(
        node,
        out,
        a.tensor.elements(),
        #[inline(always)]
        // Rows are no longer than an i32 can tell.
        |x, target| target.copy_from_slice(&(position_of_largest(x) as i32).to_le_bytes()),
    )
}

/// The last position of the largest element; 0 in an empty row. As in ggml a NaN is not a candidate and ends the comparison: what
/// follows it starts again.
#[inline(always)]
fn position_of_largest(x: &[f32]) -> usize {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut unordered = false;
    let (chunks, tail) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            unordered |= x.is_nan();
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    if unordered || tail.iter().any(|x| x.is_nan()) {
        let start = |(found, largest): (usize, f32), (i, x): (usize, &f32)| {
            if x.is_nan() {
                (found, f32::NEG_INFINITY)
            } else if *x >= largest {
                (i, *x)
            } else {
                (found, largest)
            }
        };
        return x.iter().enumerate().fold((0, f32::NEG_INFINITY), start).0;
    }
    let largest = lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    x.iter().rposition(|x| *x == largest).unwrap_or(0)
}

fn count_equal(node: &Node) -> Arc<dyn HostFunction> {
    let [a, b] = arguments(node);
    kernel(node, None, move |inputs, output| {
        let (mut x, mut y) = (a.tensor, b.tensor);
        if x.is_contiguous() && y.is_contiguous() {
            (x.ne, y.ne) = ([x.elements(), 1, 1, 1], [x.elements(), 1, 1, 1]);
        }
        let (first, second) = (inputs[a.position], inputs[b.position]);
        let body = |_: &mut Scratch, row: Row, range: Range<usize>| {
            let at = |tensor: &Tensor| row.offset(tensor) + range.start * tensor.nb[0];
            let (first, second) = (&first[at(&x)..], &second[at(&y)..]);
            if x.nb[0] == 4 && y.nb[0] == 4 {
                let (first, second) = (&first[..range.len() * 4], &second[..range.len() * 4]);
                let pairs = first.as_chunks::<4>().0.iter().zip(second.as_chunks::<4>().0);
                return pairs.map(|(a, b)| u64::from(u32::from_le_bytes(*a) == u32::from_le_bytes(*b))).sum();
            }
            (0..range.len()).map(|i| u64::from(first[i * x.nb[0]..][..4] == second[i * y.nb[0]..][..4])).sum::<u64>()
        };
        let count = fold(&x.ne, 1, Unit::Piece, body, |a, b| a + b).unwrap_or(0);
        output.copy_from_slice(&count.to_le_bytes());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn tensors() -> Vec<Tensor> {
        vec![
            f32s([10, 5, 4, 3]),
            f32s([1, 1, 1, 1]),
            f32s([33, 1, 1, 1]),
            f32s([100_003, 2, 1, 1]),
            f32s([40, 3000, 1, 1]),
            permuted(&f32s([7, 6, 5, 2]), [0, 2, 1, 3]),
            permuted(&f32s([7, 6, 5, 2]), [1, 0, 2, 3]),
            Tensor { dtype: DataType::F32, ne: [20, 3, 2, 1], nb: [4, 200, 800, 1600] },
        ]
    }

    fn rows(source: &Data) -> Vec<Vec<f64>> {
        source.values().chunks(source.tensor.ne[0]).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
    }

    #[test]
    fn sums_of_rows_and_of_everything() {
        let mut random = Rng::with_seed(91);
        for tensor in tensors() {
            let source = Data::random(tensor, &mut random);
            let sums: Vec<f64> = rows(&source).iter().map(|row| row.iter().sum()).collect();
            let result = |op: &str, ne| run(op, OpParams::default(), f32s(ne), &[Some(&source)]).unwrap().values();
            let [length, a, b, c] = tensor.ne;
            assert_close(&result("SUM_ROWS", [1, a, b, c]), sums.iter().copied(), 1e-6);
            if tensor.has_contiguous_rows() {
                assert_close(&result("MEAN", [1, a, b, c]), sums.iter().map(|x| x / length as f64), 1e-6);
                assert_close(&result("SUM", [1; 4]), [sums.iter().sum()], 1e-6);
            }
            let cumulative = rows(&source).into_iter().flat_map(|row| {
                let add = |sum: &mut f64, x: f64| {
                    *sum += x;
                    Some(*sum)
                };
                row.into_iter().scan(0.0, add)
            });
            assert_close(&result("CUMSUM", tensor.ne), cumulative, 1e-6);
        }
    }

    #[rstest]
    fn short_types_are_summed_wide(#[values(DataType::F16, DataType::BF16)] dtype: DataType) {
        let source = Data::contiguous(dtype, [3000, 2, 1, 1], &[0.25; 6000]);
        let result = run("SUM", OpParams::default(), Tensor::contiguous(dtype, [1; 4]), &[Some(&source)]).unwrap();
        // bf16 has eight digits.
        let expected = if dtype == DataType::F16 { 1500.0 } else { 1504.0 };
        assert_eq!(result.values(), [expected]);
    }

    #[test]
    fn the_largest_is_found_in_every_row() {
        let mut random = Rng::with_seed(92);
        for tensor in tensors().into_iter().filter(|tensor| tensor.ne[2] * tensor.ne[3] == 1) {
            let source = Data::random(tensor, &mut random);
            let out = Tensor::contiguous(DataType::I32, [tensor.ne[1], 1, 1, 1]);
            let result = run("ARGMAX", OpParams::default(), out, &[Some(&source)]).unwrap();
            let last_largest = |row: &Vec<f64>| {
                let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                row.iter().rposition(|x| *x == largest).unwrap() as f64
            };
            assert_close(&result.values(), rows(&source).iter().map(last_largest), 0.0);
        }
    }

    /// By hand from ggml's loop: the maximum so far, then `if (max == x) position = i`.
    #[rstest]
    #[case::last_of_equals(&[1.0, 3.0, 3.0, 2.0], 2)]
    #[case::nothing_but_infinity(&[f32::NEG_INFINITY; 3], 2)]
    #[case::after_a_nan_it_starts_anew(&[5.0, f32::NAN, 1.0, 0.5], 2)]
    #[case::a_nan_is_no_candidate(&[1.0, 2.0, f32::NAN], 1)]
    #[case::nothing_but_nan(&[f32::NAN; 2], 0)]
    #[case::empty(&[], 0)]
    fn ties_and_nan(#[case] row: &[f32], #[case] expected: usize) {
        assert_eq!(position_of_largest(row), expected);
        let long: Vec<f32> = [&[f32::NEG_INFINITY; 40], row].concat();
        let shifted = if row.iter().all(|x| x.is_nan()) { 39 } else { expected + 40 };
        assert_eq!(position_of_largest(&long), shifted);
    }

    #[rstest]
    #[case([500, 4, 1, 1], [0, 1, 2, 3])]
    #[case([9, 4, 1, 1], [1, 0, 2, 3])]
    #[case([70_000, 3, 1, 1], [0, 1, 2, 3])]
    #[case([1, 1, 1, 1], [0, 1, 2, 3])]
    fn equals_are_counted(#[case] ne: [usize; 4], #[case] order: [usize; 4]) {
        let mut random = Rng::with_seed(93);
        let tensor = Tensor::contiguous(DataType::I32, ne);
        let mut integers = |tensor: Tensor| {
            let values: Vec<f32> = random.floats(tensor.elements()).iter().map(|x| (x * 3.0).floor()).collect();
            Data::new(tensor, &values)
        };
        let (a, b) = (
            integers(permuted(&tensor, order)),
            integers(Tensor::contiguous(DataType::I32, permuted(&tensor, order).ne)),
        );
        let out = Tensor::contiguous(DataType::I64, [1; 4]);
        let result = run("COUNT_EQUAL", OpParams::default(), out, &[Some(&a), Some(&b)]).unwrap();
        let expected = a.values().iter().zip(b.values()).filter(|(a, b)| **a == *b).count();
        assert_eq!(result.bytes, (expected as i64).to_le_bytes());
    }

    #[rstest]
    #[case("SUM", [1; 4], DataType::F32)]
    #[case("MEAN", [1, 4, 1, 1], DataType::F32)]
    #[case("ARGMAX", [4, 1, 1, 1], DataType::I32)]
    fn gaps_in_rows_are_rejected(#[case] op: &str, #[case] ne: [usize; 4], #[case] result: DataType) {
        for (nb, accepted) in [([4, 32, 128, 128], true), ([4, 40, 160, 160], true), ([8, 64, 256, 256], false)] {
            let a = Tensor { dtype: DataType::F32, ne: [8, 4, 1, 1], nb };
            let out = Tensor::contiguous(result, ne);
            assert_eq!(accepts(op, OpParams::default(), out, &[a]), accepted, "strides {nb:?}");
        }
    }

    #[test]
    fn integers_are_compared_exactly() {
        // As floats these were equal.
        let tensor = Tensor::contiguous(DataType::I32, [1, 1, 1, 1]);
        let [a, b] = [16_777_216_i32, 16_777_217].map(|value| Data { tensor, bytes: value.to_le_bytes().to_vec() });
        let out = Tensor::contiguous(DataType::I64, [1; 4]);
        let result = run("COUNT_EQUAL", OpParams::default(), out, &[Some(&a), Some(&b)]).unwrap();
        assert_eq!(result.bytes, [0; 8]);
    }

    #[rstest]
    #[case::wrong_source("SUM_ROWS", DataType::F16, [8, 4, 1, 1], DataType::F16, [1, 4, 1, 1])]
    #[case::wrong_result("SUM", DataType::F16, [8, 4, 1, 1], DataType::F32, [1, 1, 1, 1])]
    #[case::wrong_extents("MEAN", DataType::F32, [8, 4, 1, 1], DataType::F32, [1, 1, 1, 1])]
    #[case::no_matrix("ARGMAX", DataType::F32, [8, 4, 2, 1], DataType::I32, [4, 1, 1, 1])]
    #[case::long_rows("ARGMAX", DataType::F32, [1 << 31, 1, 1, 1], DataType::I32, [1, 1, 1, 1])]
    #[case::cube("COUNT_EQUAL", DataType::I32, [8, 4, 2, 1], DataType::I64, [1, 1, 1, 1])]
    #[case::one_source("COUNT_EQUAL", DataType::I32, [8, 4, 1, 1], DataType::I64, [1, 1, 1, 1])]
    fn rejects(
        #[case] op: &str,
        #[case] dtype: DataType,
        #[case] ne: [usize; 4],
        #[case] result: DataType,
        #[case] extents: [usize; 4],
    ) {
        let (a, out) = (Tensor::contiguous(dtype, ne), Tensor::contiguous(result, extents));
        assert!(!accepts(op, OpParams::default(), out, &[a]));
    }
}
