//! SOLVE_TRI: systems of linear equations with a lower triangular matrix, solved row by row from the first.
//!
//! Every column of the right side is a system of its own, so a row of the solution is computed for a block of columns at a
//! time: the rows above it, each times an element of the matrix, are taken from the right side.

use super::prelude::*;
use rayon::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&SolveTri];

const NAME: &str = "SOLVE_TRI";

/// Columns that one thread solves together.
const BLOCK: usize = 64;

struct SolveTri;

impl Operation for SolveTri {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a, b], out) = (f32_sources(NAME, node)?, &node.output);
        let [_, rows, second, third] = b.ne;
        require(NAME, a.ne == [rows, rows, second, third], || {
            format!("a matrix with extents {:?} does not fit {:?}; it must be square with as many rows", a.ne, b.ne)
        })?;
        same_shape(NAME, "source 1", b, out)?;
        separate_rows(NAME, out)
    }

    /// Nothing above the diagonal of the matrix counts.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index != Some(0)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |columns| Tensor::contiguous(dtype, [columns, 64, 2, 1]);
        vec![Node::new(NAME, OpParams::default(), tensor(32), vec![Some(tensor(64)), Some(tensor(32))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [a, b] = arguments(node);
        let out = node.output;
        let blocks = out.ne[0].div_ceil(BLOCK);
        let batches = out.ne[2] * out.ne[3];
        Ok(kernel(node, None, move |inputs, output| {
            // A block's rows lie apart in the result, so each is solved aside and then put in its place.
            let solve = |task: usize| {
                vectorised(
                    #[inline(always)]
                    || solve(&a, &b, inputs, task / blocks, task % blocks),
                )
            };
            let tasks = 0..blocks * batches;
            let solved: Vec<Vec<f32>> = tasks.into_par_iter().map(solve).collect();
            for (task, block) in solved.iter().enumerate() {
                let [second, third] = [task / blocks % out.ne[2], task / blocks / out.ne[2]];
                let first = task % blocks * BLOCK;
                let columns = BLOCK.min(out.ne[0] - first);
                for (i, values) in block.chunks_exact(columns).enumerate() {
                    let start = Row([i, second, third]).offset(&out) + first * 4;
                    let target = &mut output[start..start + columns * 4];
                    for (target, value) in target.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                        *target = value.to_le_bytes();
                    }
                }
            }
            Ok(())
        }))
    }
}

/// The rows of the solution of one batch, for one block of columns.
#[inline(always)]
fn solve(a: &KernelInput, b: &KernelInput, inputs: &[&[u8]], batch: usize, block: usize) -> Vec<f32> {
    let [columns, rows, second, _] = b.tensor.ne;
    let first = block * BLOCK;
    let width = BLOCK.min(columns - first);
    let (second, third) = (batch % second, batch / second);
    let mut solution = vec![0.0_f32; rows * width];
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for i in 0..rows {
        let row = Row([i, second, third]);
        let factors = read(&a.tensor, inputs[a.position], row.offset(&a.tensor), 0, i + 1, &mut left);
        let given = read(&b.tensor, inputs[b.position], row.offset(&b.tensor), first, width, &mut right);
        let (above, rest) = solution.split_at_mut(i * width);
        let current = &mut rest[..width];
        for (factor, above) in factors.iter().zip(above.chunks_exact(width)) {
            for (sum, x) in current.iter_mut().zip(above) {
                *sum += factor * x;
            }
        }
        let diagonal = factors[i];
        for (x, given) in current.iter_mut().zip(given) {
            *x = (given - *x) / diagonal;
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// A lower triangle that is not near singular; what lies above it must not be read.
    fn triangle(tensor: Tensor) -> Data {
        let mut values = Rng::with_seed(24).floats(tensor.elements());
        for (value, [i, row, ..]) in values.iter_mut().zip(indices(tensor.ne)) {
            *value = match () {
                () if i > row => f32::NAN,
                () if i == row => 1.5 + *value,
                () => *value / tensor.ne[0] as f32,
            };
        }
        Data::new(tensor, &values)
    }

    #[rstest]
    fn is_the_solution(
        #[values(1, 11, 64, 100)] rows: usize,
        #[values(1, 5, 64, 150)] columns: usize,
        #[values(false, true)] transposed: bool,
    ) {
        let shape = layout(DataType::F32, [rows, rows, 3, 2], transposed);
        let (out, right) = (f32s([columns, rows, 3, 2]), layout(DataType::F32, [columns, rows, 3, 2], transposed));
        let (a, b) = (triangle(shape), Data::random(right, &mut Rng::with_seed(25)));
        let result = run(NAME, OpParams::default(), out, &[Some(&a), Some(&b)]).unwrap();
        // Putting the solution in gives the right side.
        let (matrix, x) = (a.values(), result.values());
        let found: Vec<f32> = indices(out.ne)
            .map(|[column, row, c, d]| {
                (0..=row).map(|t| a.get(&matrix, [t, row, c, d]) * result.get(&x, [column, t, c, d])).sum::<f64>()
                    as f32
            })
            .collect();
        assert_close(&found, b.values().into_iter().map(f64::from), 1e-5);
    }

    #[test]
    fn by_hand() {
        let a = Data::contiguous(DataType::F32, [2, 2, 1, 1], &[2.0, 9.0, 3.0, 4.0]);
        let b = Data::contiguous(DataType::F32, [1, 2, 1, 1], &[2.0, 11.0]);
        let result = run(NAME, OpParams::default(), b.tensor, &[Some(&a), Some(&b)]).unwrap();
        assert_eq!(result.values(), [1.0, 2.0]);
    }

    #[rstest]
    #[case([4, 3, 1, 1], [2, 3, 1, 1])]
    #[case([4, 4, 1, 1], [2, 3, 1, 1])]
    #[case([3, 3, 2, 1], [2, 3, 1, 1])]
    fn rejects(#[case] a: [usize; 4], #[case] b: [usize; 4]) {
        let [a, b] = [a, b].map(f32s);
        assert!(!accepts(NAME, OpParams::default(), b, &[a, b]));
    }
}
