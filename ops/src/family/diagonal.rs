//! DIAG: a row becomes the diagonal of a square matrix of zeros.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&Diag];

const NAME: &str = "DIAG";

struct Diag;

impl Operation for Diag {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (f32_sources(NAME, node)?, &node.output);
        let [length, rows, second, third] = a.ne;
        require(NAME, rows == 1 && out.ne == [length, length, second, third], || {
            format!("extents {:?} and {:?}; single rows make squares of their length", a.ne, out.ne)
        })?;
        dense_rows(NAME, out)
    }

    fn keeps_strides(&self, node: &Node, index: usize) -> bool {
        node.source(index).is_some_and(whole_words)
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let tensor = |rows| Tensor::contiguous(dtype, [512, rows, 2, 1]);
        vec![Node::new(NAME, OpParams::default(), tensor(512), vec![Some(tensor(1))])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        Ok(map_rows(
            node,
            node.output.elements() / 4,
            #[inline(always)]
            |Row([i, ..]), [x], y| {
                y.fill(0.0);
                y[i] = x[i];
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    #[case::single(f32s([1, 1, 1, 1]))]
    #[case::batches(f32s([10, 1, 4, 3]))]
    #[case::column(permuted(&f32s([3, 9, 1, 2]), [2, 0, 1, 3]))]
    fn rows_become_diagonals(#[case] tensor: Tensor) {
        let a = Data::random(tensor, &mut Rng::with_seed(21));
        let out = f32s([tensor.ne[0], tensor.ne[0], tensor.ne[2], tensor.ne[3]]);
        assert_formula(
            NAME,
            OpParams::default(),
            out,
            &[&a],
            0.0,
            |[i, j, c, d], get| {
                if i == j { get(0, [i, 0, c, d]) } else { 0.0 }
            },
        );
    }

    #[rstest]
    #[case([4, 2, 1, 1], [4, 4, 1, 1], DataType::F32)]
    #[case([4, 1, 1, 1], [4, 3, 1, 1], DataType::F32)]
    #[case([4, 1, 1, 1], [4, 4, 1, 1], DataType::F16)]
    fn rejects(#[case] from: [usize; 4], #[case] to: [usize; 4], #[case] dtype: DataType) {
        let [a, out] = [from, to].map(|ne| Tensor::contiguous(dtype, ne));
        assert!(!accepts(NAME, OpParams::default(), out, &[a]));
    }
}
