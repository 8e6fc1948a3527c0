//! MUL_MAT: ggml's matrix product, `result[m, n] = sum over k of source0[k, m] * source1[k, n]`.
//!
//! Source 0 (the weights) repeats over the outer dimensions of source 1; all columns of source 1 that meet the same weights
//! are multiplied together, so that weights are read, and decoded, once.
//!
//! Products of whole numbers, i8 with i8 or i16 with i16, have a result of i32, of i16, for i8 also of i8, which wrap, or of f32;
//! that of i32 with i32 is i32. The result of `ggml_mul_mat` is always f32; the others are the C++ backend's, for nodes made by
//! hand and for kernels that are generated from a list. ggml's CPU backend multiplies none of them.

use super::cpu::dot::{COLUMNS, ROWS};
use super::cpu::integers::product::{self, FACTORS, Factor, WholeRows};
use super::cpu::weights::{WeightRows, columns};
use super::prelude::*;
use rayon::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&MulMat];

const NAME: &str = "MUL_MAT";

/// ggml's hint, in the second parameter, that source 0 is a Hadamard matrix.
const HINT_HADAMARD: i32 = 1;

struct MulMat;

impl Operation for MulMat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        use DataType::{BF16, F16, F32};
        let ([a, b], out) = (sources(NAME, node)?, &node.output);
        let hadamard = node.params.int(1) == HINT_HADAMARD;
        match (a.dtype, b.dtype) {
            (x, F32) if x.is_quantised() || FLOATS.contains(&x) => {}
            (F16, F16) | (BF16 | F32, BF16) => {}
            (x, y) if x == y && FACTORS.contains(&x) => {}
            (F32, F16) if hadamard => {}
            (x, y) if x.is_quantised() || FLOATS.contains(&x) => {
                return wrong_type(NAME, "source 1", y, "f32; f16 with f16; bf16 with bf16 or f32");
            }
            (x, y) if FACTORS.contains(&x) => {
                return wrong_type(NAME, "source 1", y, "i8 with i8; i16 with i16; i32 with i32");
            }
            (x, _) => return wrong_type(NAME, "source 0", x, "f32, f16, bf16, i8, i16, i32, quantised"),
        }
        match a.dtype {
            x if !FACTORS.contains(&x) => typed(NAME, "the result", out, F32)?,
            x if product::results(x).contains(&out.dtype) => {}
            _ => return wrong_type(NAME, "the result", out.dtype, "i32; f32 or i16 of i8 and i16; i8 of i8"),
        }
        has_shape(NAME, "the result", out, [a.ne[1], b.ne[1], b.ne[2], b.ne[3]])?;
        require(NAME, a.ne[0] == b.ne[0], || {
            format!("rows of {} and {} elements cannot be multiplied", a.ne[0], b.ne[0])
        })?;
        let repeats = (2..4).all(|d| b.ne[d] == 0 || a.ne[d] > 0 && b.ne[d].is_multiple_of(a.ne[d]));
        require(NAME, repeats, || format!("source 0 with extents {:?} does not repeat over {:?}", a.ne, b.ne))?;
        dense_blocks(NAME, "source 0", a)?;
        separate_rows(NAME, out)
    }

    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        let original = index.and_then(|slot| node.source(slot));
        original.map_or(default, |tensor| array_type(tensor.dtype, default))
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, b] = arguments(node);
        let out = node.output;
        let layouts = Layouts { weights: a.tensor, right: b.tensor, out };
        Ok(kernel(node, None, move |inputs, output| layouts.run(inputs[a.position], inputs[b.position], output)))
    }
}

/// The type on the array of an operand of a product. The matrix unit multiplies bf16, and cores decode blocks themselves. What
/// is f32 stays f32, because the caller asked for it.
pub(super) fn array_type(original: DataType, default: DataType) -> DataType {
    match original {
        DataType::F16 => DataType::BF16,
        blocks if blocks.is_quantised() => blocks,
        _ => default,
    }
}

/// The tensors of a product that passed the rules.
struct Layouts {
    weights: Tensor,
    right: Tensor,
    out: Tensor,
}

/// Consecutive rows of one matrix of weights times some of the columns that meet it.
struct Task<'o> {
    /// Index of the matrix in dimensions 2 and 3.
    matrix: [usize; 2],
    first_row: usize,
    rows: usize,
    /// Indices of the columns.
    columns: std::ops::Range<usize>,
    /// The piece of each column of the result.
    out: Vec<&'o mut [u8]>,
}

impl Layouts {
    fn run(&self, weights: &[u8], right: &[u8], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let length = self.weights.ne[0];
        if length == 0 {
            // Sums of nothing. Gaps between rows keep their bytes.
            for index in 0..self.out.rows() {
                let start = Row::nth(&self.out.ne, index).offset(&self.out);
                output[start..start + self.out.dtype.row_bytes(self.out.ne[0])].fill(0);
            }
            return Ok(());
        }
        let offset = |[a, b, c]: [usize; 3]| a * self.right.nb[1] + b * self.right.nb[2] + c * self.right.nb[3];
        let offsets = self.order().map(offset);
        match self.weights.dtype {
            DataType::I32 => return self.whole::<i32>(weights, right, offsets, output),
            dtype if FACTORS.contains(&dtype) => return self.whole::<i16>(weights, right, offsets, output),
            _ => {}
        }
        let mut scratch = Vec::new();
        let columns = columns(&self.right, right, offsets, &mut scratch);
        self.deal_out(output, |task| {
            let (tensor, bytes, count) = (&self.weights, self.task_weights(task, weights), task.rows);
            let rows = WeightRows { kernel: NAME, tensor, bytes, count };
            rows.multiply(&columns[task.columns.clone()], &mut task.out)
        })
    }

    /// [`Layouts::run`] for whole numbers, with columns at these offsets.
    fn whole<F: Factor>(
        &self,
        weights: &[u8],
        right: &[u8],
        offsets: impl Iterator<Item = usize>,
        output: &mut [u8],
    ) -> Result<(), HostFunctionError> {
        let columns = product::columns::<F>(&self.right, right, offsets);
        let columns: Vec<&[F]> = columns.chunks_exact(self.right.ne[0]).collect();
        self.deal_out(output, |task| {
            let (tensor, bytes, count) = (&self.weights, self.task_weights(task, weights), task.rows);
            let rows = WholeRows { tensor, bytes, count };
            rows.multiply(&columns[task.columns.clone()], self.out.dtype, &mut task.out);
            Ok(())
        })
    }

    /// Runs all tasks, on as many threads as they are worth.
    fn deal_out(
        &self,
        output: &mut [u8],
        run: impl Fn(&mut Task) -> Result<(), HostFunctionError> + Send + Sync,
    ) -> Result<(), HostFunctionError> {
        let work = self.out.elements().saturating_mul(self.weights.ne[0]) / 4;
        let threads = if work < PARALLEL_WORK { 1 } else { rayon::current_num_threads() };
        let Some(mut tasks) = self.tasks(output, threads) else {
            let reason = "rows of the result overlap".to_owned();
            return Err(HostFunctionError::Arguments { kernel: NAME.to_owned(), reason });
        };
        if threads == 1 { tasks.iter_mut().try_for_each(run) } else { tasks.par_iter_mut().try_for_each(run) }
    }

    /// The weights from the first row of a task on.
    fn task_weights<'w>(&self, task: &Task, weights: &'w [u8]) -> &'w [u8] {
        &weights[Row([task.first_row, task.matrix[0], task.matrix[1]]).offset(&self.weights)..]
    }

    /// Columns per matrix of weights.
    fn columns_per_matrix(&self) -> usize {
        let [_, columns, second, third] = self.right.ne;
        columns * (second / self.weights.ne[2]) * (third / self.weights.ne[3])
    }

    /// The indices (1, 2, 3) of all columns, those that meet the same weights next to each other.
    fn order(&self) -> impl Iterator<Item = [usize; 3]> + Clone + use<> {
        let [_, columns, second, third] = self.right.ne;
        let [_, _, matrices, outer] = self.weights.ne;
        let (repeat, repeat_outer) = (second / matrices, third / outer);
        let groups = (0..outer).flat_map(move |c| (0..matrices).map(move |b| (b, c)));
        groups.flat_map(move |(b, c)| {
            let members = (0..repeat_outer).flat_map(move |y| (0..repeat).map(move |x| (x, y)));
            members.flat_map(move |(x, y)| (0..columns).map(move |i| [i, b * repeat + x, c * repeat_outer + y]))
        })
    }

    /// Cuts the result into tasks, a few for each thread, without splitting rows of weights finer than a tile needs. Rows are
    /// split first: then each weight is read by one thread only.
    fn tasks<'o>(&self, output: &'o mut [u8], threads: usize) -> Option<Vec<Task<'o>>> {
        let per_matrix = self.columns_per_matrix();
        let matrices = self.weights.ne[2] * self.weights.ne[3];
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(matrices) };
        let row_blocks = wanted.min(self.out.ne[0].div_ceil(16)).max(1);
        let rows = self.out.ne[0].div_ceil(row_blocks).next_multiple_of(ROWS);
        let column_blocks = wanted.div_ceil(row_blocks).min(per_matrix.div_ceil(8)).max(1);
        let columns = per_matrix.div_ceil(column_blocks).next_multiple_of(COLUMNS);

        // Columns of the result come as they lie in memory; `place` says where each belongs.
        let mut place = vec![0; self.out.rows()];
        let [_, n, second, _] = self.right.ne;
        for (position, [a, b, c]) in self.order().enumerate() {
            place[a + n * (b + second * c)] = position;
        }
        let row_blocks = self.out.ne[0].div_ceil(rows);
        let column_blocks = per_matrix.div_ceil(columns);
        let mut tasks = Vec::with_capacity(matrices * row_blocks * column_blocks);
        for matrix in 0..matrices {
            for column_block in 0..column_blocks {
                let first = column_block * columns;
                let members = matrix * per_matrix + first..matrix * per_matrix + (first + columns).min(per_matrix);
                for row_block in 0..row_blocks {
                    let first_row = row_block * rows;
                    tasks.push(Task {
                        matrix: [matrix % self.weights.ne[2], matrix / self.weights.ne[2]],
                        first_row,
                        rows: rows.min(self.out.ne[0] - first_row),
                        columns: members.clone(),
                        out: members.clone().map(|_| Default::default()).collect(),
                    });
                }
            }
        }
        for (Row([a, b, c]), column) in disjoint_rows(&self.out, output)? {
            let position = place[a + n * (b + second * c)];
            let (matrix, within) = (position / per_matrix, position % per_matrix);
            let (column_block, slot) = (within / columns, within % columns);
            for (row_block, piece) in column.chunks_mut(rows * self.out.dtype.block_bytes()).enumerate() {
                tasks[(matrix * column_blocks + column_block) * row_blocks + row_block].out[slot] = piece;
            }
        }
        Some(tasks)
    }
}

#[cfg(test)]
#[path = "mul_mat_tests.rs"]
mod tests;
