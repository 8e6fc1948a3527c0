//! GET_ROWS and SET_ROWS: gather and scatter of rows by an index tensor, converting types on the way.

use super::prelude::*;
use crate::blocks;
use std::ops::Range;

pub static OPERATIONS: &[&dyn Operation] = &[&GetRows, &SetRows];

const GET: &str = "GET_ROWS";
const SET: &str = "SET_ROWS";
const REASON: &str = "which rows are moved is known only when the graph runs; the host does it in the same command list, \
                      unless machine code can do it as a dispatch";

struct GetRows;

struct SetRows;

fn check_indices(op: &'static str, indices: &Tensor) -> Result<(), Unsupported> {
    match indices.dtype {
        DataType::I32 | DataType::I64 => {
            require(op, indices.ne[3] == 1, || "indices have four dimensions, at most three are possible".into())
        }
        other => wrong_type(op, "the indices", other, "i32, i64"),
    }
}

impl Operation for GetRows {
    fn name(&self) -> &'static str {
        GET
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a, indices], out) = (sources(GET, node)?, &node.output);
        check_indices(GET, indices)?;
        dense_blocks(GET, "source 0", a)?;
        match (a.dtype, out.dtype) {
            (DataType::I32, DataType::I32) => {}
            (x, DataType::F32) if x.is_quantised() || FLOATS.contains(&x) => {}
            (DataType::I32, y) => return wrong_type(GET, "the result", y, "i32"),
            (x, y) if x.is_quantised() || FLOATS.contains(&x) => return wrong_type(GET, "the result", y, "f32"),
            (x, _) => return wrong_type(GET, "source 0", x, "f32, f16, bf16, i32, quantised"),
        }
        has_shape(GET, "the result", out, [a.ne[0], indices.ne[0], indices.ne[1], indices.ne[2]])?;
        let [_, _, second, third] = a.ne;
        require(GET, indices.ne[1] == second && indices.ne[2] == third, || {
            format!("indices with extents {:?} do not fit rows with outer extents {second} x {third}", indices.ne)
        })?;
        dense_rows(GET, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Host(REASON)
    }

    fn moves_data(&self) -> bool {
        true
    }

    fn array_type(&self, node: &Node, index: Option<usize>, _: DataType) -> DataType {
        own_type(node, index)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    /// Kernels do not see the indices: their streams are made for the rows.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        !matches!(index, Some(0 | 1))
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, indices] = arguments(node);
        let out = node.output;
        let work = out.elements() / if a.tensor.dtype.is_quantised() { 1 } else { 4 };
        Ok(kernel(node, None, move |inputs, output| {
            for_each_row(&out, output, work, |scratch, Row([i, second, third]), target| {
                let chosen = index(&indices.tensor, inputs[indices.position], [i, second, third]);
                let row = in_range(GET, "row", chosen, a.tensor.ne[1])?;
                let first = Row([row, second, third]).offset(&a.tensor);
                let bytes = &inputs[a.position][first..];
                move_row(GET, &a.tensor, bytes, out.dtype, target, &mut scratch.a)
            })
        }))
    }
}

impl Operation for SetRows {
    fn name(&self) -> &'static str {
        SET
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        addressable(SET, node, 3)?;
        let (a, indices, out) = (source(SET, node, 0)?, source(SET, node, 1)?, &node.output);
        check_indices(SET, indices)?;
        match (a.dtype, out.dtype) {
            (DataType::F32 | DataType::F16, y) if FLOATS.contains(&y) => {}
            (DataType::F32 | DataType::F16, y) if blocks::can_encode(y) => {}
            (DataType::F32 | DataType::F16, y) => {
                return wrong_type(SET, "the result", y, "f32, f16, bf16 and the types ggml's CPU backend can encode");
            }
            (x, _) => return wrong_type(SET, "source 0", x, "f32, f16"),
        }
        require(SET, a.ne[0] == out.ne[0] && a.ne[2] == out.ne[2] && a.ne[3] == out.ne[3], || {
            format!("rows with extents {:?} do not fit a result with {:?}", a.ne, out.ne)
        })?;
        let repeats = |outer: usize, extent: usize| outer == 0 || extent > 0 && outer.is_multiple_of(extent);
        let fits = indices.ne[0] == a.ne[1] && repeats(a.ne[2], indices.ne[1]) && repeats(a.ne[3], indices.ne[2]);
        require(SET, fits, || format!("indices with extents {:?} do not fit rows with {:?}", indices.ne, a.ne))?;
        dense_rows(SET, out)
    }

    fn placement(&self, _: &Node) -> Placement {
        Placement::Host(REASON)
    }

    fn moves_data(&self) -> bool {
        true
    }

    fn array_type(&self, node: &Node, index: Option<usize>, _: DataType) -> DataType {
        own_type(node, index)
    }

    fn keeps_strides(&self, _: &Node, _: usize) -> bool {
        true
    }

    /// The rows that are not set stay as they are: the result lies in the memory of source 2. Kernels do not see the indices:
    /// their streams are made for the rows.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index == Some(0)
    }

    fn result_source(&self) -> Option<usize> {
        Some(2)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, indices] = arguments(node);
        let scatter = Scatter { rows: a, indices, out: node.output };
        let run = kernel(node, Some(2), move |inputs, output| {
            // In order and on one thread: of two equal indices the later row stays.
            vectorised(
                #[inline(always)]
                || {
                    let mut scratch = Vec::new();
                    scatter.each(inputs, |from, target| {
                        let (bytes, target) = (&inputs[a.position][from..], &mut output[target]);
                        move_row(SET, &a.tensor, bytes, scatter.out.dtype, target, &mut scratch)
                    })
                },
            )
        });
        Ok(Arc::new(SetRowsKernel { run, scatter }))
    }
}

/// Where the rows of a SET_ROWS go.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    rows: KernelInput,
    indices: KernelInput,
    out: Tensor,
}

impl Scatter {
    /// Calls `each` for every row in order: where it starts in its source, and where it goes in the output. In bytes.
    #[inline(always)]
    fn each(
        &self,
        inputs: &[&[u8]],
        mut each: impl FnMut(usize, Range<usize>) -> Result<(), HostFunctionError>,
    ) -> Result<(), HostFunctionError> {
        let Self { rows: KernelInput { tensor: rows, .. }, indices, out } = self;
        let span = out.dtype.row_bytes(out.ne[0]);
        for third in 0..rows.ne[3] {
            for second in 0..rows.ne[2] {
                let wrapped = [second % indices.tensor.ne[1], third % indices.tensor.ne[2]];
                for i in 0..rows.ne[1] {
                    let chosen = index(&indices.tensor, inputs[indices.position], [i, wrapped[0], wrapped[1]]);
                    let row = in_range(SET, "row", chosen, out.ne[1])?;
                    let first = Row([row, second, third]).offset(out);
                    each(Row([i, second, third]).offset(rows), first..first + span)?;
                }
            }
        }
        Ok(())
    }
}

/// SET_ROWS, which knows that it writes a few rows of a large object.
#[derive(Debug)]
struct SetRowsKernel {
    run: Arc<dyn HostFunction>,
    scatter: Scatter,
}

impl HostFunction for SetRowsKernel {
    fn name(&self) -> &str {
        self.run.name()
    }

    fn input_count(&self) -> usize {
        self.run.input_count()
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        self.run.run(inputs, output)
    }

    fn written(&self, inputs: &[&[u8]], each: &mut dyn FnMut(Range<usize>)) -> bool {
        let needed = [self.scatter.rows, self.scatter.indices];
        let fits = needed.iter().all(|argument| {
            inputs.get(argument.position).is_some_and(|input| input.len() >= argument.tensor.span_bytes())
        });
        // Indices out of range make the run fail; until then it may have written anywhere before them.
        fits && self
            .scatter
            .each(inputs, |_, target| {
                each(target);
                Ok(())
            })
            .is_ok()
    }
}

#[inline(always)]
fn index(indices: &Tensor, bytes: &[u8], [i, second, third]: [usize; 3]) -> i64 {
    let at = &bytes[i * indices.nb[0] + second * indices.nb[1] + third * indices.nb[2]..];
    if indices.dtype == DataType::I32 {
        i64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]]))
    } else {
        i64::from_le_bytes([at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]])
    }
}

/// Copies one row that starts at `bytes` to `target`, which has no gaps, converting it when the types differ.
#[inline(always)]
fn move_row(
    name: &'static str,
    from: &Tensor,
    bytes: &[u8],
    to: DataType,
    target: &mut [u8],
    scratch: &mut Vec<f32>,
) -> Result<(), HostFunctionError> {
    let length = from.ne[0];
    if length == 1 && is_plain(from.dtype) && is_plain(to) && from.dtype != to {
        // A transposed cache is written element by element; the general way would cost more than the element.
        store(to, &[load_one(from.dtype, bytes)], target);
        return Ok(());
    }
    if from.dtype == to {
        copy_strided(from.dtype.block_bytes(), from.nb[0], bytes, target);
        return Ok(());
    }
    scratch.resize(length, 0.0);
    if load_row(from, bytes, scratch) && store(to, scratch, target) {
        return Ok(());
    }
    let reason = format!("a row of {length} elements of {} could not be converted to {to}", from.dtype);
    Err(HostFunctionError::Data { kernel: name.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    #[case(DataType::F32, DataType::F32)]
    #[case(DataType::F16, DataType::F32)]
    #[case(DataType::BF16, DataType::F32)]
    #[case(DataType::Q8_0, DataType::F32)]
    #[case(DataType::I32, DataType::I32)]
    fn gathers(
        #[case] from: DataType,
        #[case] to: DataType,
        #[values(DataType::I32, DataType::I64)] index_type: DataType,
        #[values((64, 6, 4, 1, 1), (32, 5, 3, 2, 3), (256, 90, 300, 2, 1))] shape: (usize, usize, usize, usize, usize),
        #[values(false, true)] strided_indices: bool,
    ) {
        let (n, rows, count, second, third) = shape;
        let mut random = Rng::with_seed(91);
        let values: Vec<f32> = random.floats(n * rows * second * third).iter().map(|x| (x * 100.0).round()).collect();
        let a = Data::contiguous(from, [n, rows, second, third], &values);
        let chosen: Vec<f32> = (0..count * second * third).map(|_| random.usize(..rows) as f32).collect();
        let mut layout = Tensor::contiguous(index_type, [count, second, third, 1]);
        if strided_indices {
            layout.nb = layout.nb.map(|stride| stride * 2);
        }
        let places = Data::new(layout, &chosen);
        let output = Tensor::contiguous(to, [n, count, second, third]);
        assert_formula(GET, OpParams::default(), output, &[&a, &places], 0.0, |[i, j, b, c], get| {
            get(0, [i, chosen[j + count * (b + second * c)] as usize, b, c])
        });
    }

    #[rstest]
    #[case(DataType::F32, DataType::F32, 0.0)]
    #[case(DataType::F32, DataType::F16, 1.0 / 2048.0)]
    #[case(DataType::F32, DataType::BF16, 1.0 / 256.0)]
    #[case(DataType::F32, DataType::Q8_0, 0.01)]
    #[case(DataType::F16, DataType::F16, 0.0)]
    #[case(DataType::F16, DataType::F32, 0.0)]
    fn scatters_and_leaves_the_rest(
        #[case] from: DataType,
        #[case] to: DataType,
        #[case] tolerance: f64,
        #[values(DataType::I32, DataType::I64)] index_type: DataType,
        #[values(32, 96)] n: usize,
    ) {
        let mut random = Rng::with_seed(92);
        // Indices repeat over the outer dimensions.
        let a = Data::random(Tensor::contiguous(from, [n, 3, 4, 2]), &mut random);
        let places = Data::contiguous(index_type, [3, 2, 1, 1], &[4.0, 0.0, 2.0, 1.0, 3.0, 5.0]);
        let before = Data::random(Tensor::contiguous(to, [n, 6, 4, 2]), &mut random);
        let unread = Data { tensor: before.tensor, bytes: Vec::new() };
        let result =
            run_into(SET, OpParams::default(), before.clone(), &[Some(&a), Some(&places), Some(&unread)]).unwrap();
        let (old, new) = (before.values(), a.values());
        let rows = [[4, 0, 2], [1, 3, 5]];
        let exact = indices(before.tensor.ne).map(|[i, row, b, c]| match rows[b % 2].iter().position(|r| *r == row) {
            Some(j) => a.get(&new, [i, j, b, c]),
            None => before.get(&old, [i, row, b, c]),
        });
        assert_close(&result.values(), exact, tolerance);
    }

    #[test]
    fn single_elements_and_strided_rows() {
        let mut random = Rng::with_seed(93);
        let a = Data::random(permuted(&f32s([5, 1, 1, 1]), [1, 0, 2, 3]), &mut random);
        let places = Data::contiguous(DataType::I64, [5, 1, 1, 1], &[9.0, 7.0, 5.0, 3.0, 1.0]);
        let before = Data::contiguous(DataType::F16, [1, 10, 1, 1], &[0.5; 10]);
        let result = run_into(SET, OpParams::default(), before, &[Some(&a), Some(&places)]).unwrap().values();
        for (i, value) in a.values().iter().enumerate() {
            assert_eq!(result[9 - 2 * i], half::f16::from_f32(*value).to_f32());
            assert_eq!(result[8 - 2 * i], 0.5);
        }
        let a = Data::random(permuted(&f32s([4, 6, 1, 1]), [1, 0, 2, 3]), &mut random);
        let places = Data::contiguous(DataType::I32, [4, 1, 1, 1], &[3.0, 2.0, 1.0, 0.0]);
        let before = Data::contiguous(DataType::F32, [6, 4, 1, 1], &[0.0; 24]);
        let result = run_into(SET, OpParams::default(), before, &[Some(&a), Some(&places)]).unwrap().values();
        let values = a.values();
        assert_close(&result, indices([6, 4, 1, 1]).map(|[i, row, _, _]| a.get(&values, [i, 3 - row, 0, 0])), 0.0);
    }

    #[test]
    fn the_rows_that_are_written_are_reported() {
        let rows = f32s([4, 2, 1, 1]);
        let places = Data::contiguous(DataType::I64, [2, 1, 1, 1], &[5.0, 1.0]);
        let out = Tensor::contiguous(DataType::F16, [4, 6, 1, 1]);
        let sources = vec![Some(rows), Some(places.tensor), Some(out)];
        let kernel = SetRows.reference(&Node::new(SET, OpParams::default(), out, sources)).unwrap();
        let bytes = vec![0; rows.span_bytes()];
        let mut parts = Vec::new();
        assert!(kernel.written(&[&bytes, &places.bytes, &[]], &mut |part| parts.push(part)));
        assert_eq!(parts, [40..48, 8..16]);
        let wild = Data::contiguous(DataType::I64, [2, 1, 1, 1], &[5.0, 6.0]);
        assert!(!kernel.written(&[&bytes, &wild.bytes, &[]], &mut |_| ()));
        assert!(!kernel.written(&[&bytes[1..], &places.bytes, &[]], &mut |_| ()));
    }

    #[test]
    fn the_later_of_two_equal_indices_stays() {
        let a = Data::contiguous(DataType::F32, [2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
        let places = Data::contiguous(DataType::I32, [2, 1, 1, 1], &[1.0, 1.0]);
        let before = Data::contiguous(DataType::F32, [2, 2, 1, 1], &[0.0; 4]);
        let result = run_into(SET, OpParams::default(), before, &[Some(&a), Some(&places)]).unwrap();
        assert_eq!(result.values(), [0.0, 0.0, 3.0, 4.0]);
    }

    #[rstest]
    fn wild_indices_are_errors(
        #[values(-1.0, 4.0, 2e9, -2e9)] index: f32,
        #[values(DataType::I32, DataType::I64)] dtype: DataType,
    ) {
        let places = Data::contiguous(dtype, [1, 1, 1, 1], &[index]);
        let a = Data::contiguous(DataType::F32, [2, 4, 1, 1], &[0.0; 8]);
        let row = f32s([2, 1, 1, 1]);
        let error = run(GET, OpParams::default(), row, &[Some(&a), Some(&places)]).unwrap_err();
        assert!(matches!(error, HostFunctionError::Data { .. }), "{error}");
        assert!(error.to_string().contains("out of range"));
        let source = Data::new(row, &[1.0, 2.0]);
        let error = run_into(SET, OpParams::default(), a, &[Some(&source), Some(&places)]).unwrap_err();
        assert!(matches!(error, HostFunctionError::Data { .. }), "{error}");
    }

    #[test]
    fn types_the_cpu_backend_does_not_write_are_rejected() {
        let (a, places) = (f32s([256, 1, 1, 1]), Tensor::contiguous(DataType::I64, [1, 1, 1, 1]));
        for (dtype, possible) in
            [(DataType::Q4_K, true), (DataType::IQ4_NL, true), (DataType::IQ1_S, false), (DataType::I32, false)]
        {
            let out = Tensor::contiguous(dtype, [256, 4, 1, 1]);
            assert_eq!(accepts(SET, OpParams::default(), out, &[a, places, out]), possible, "{dtype}");
        }
    }
}
