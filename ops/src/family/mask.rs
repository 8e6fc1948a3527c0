//! DIAG_MASK_INF and TRI: matrices that keep one side of a diagonal.

use super::prelude::*;
use std::ops::Range;

pub static OPERATIONS: &[&dyn Operation] = &[&Mask { name: "DIAG_MASK_INF" }, &Mask { name: "TRI" }];

/// Which elements of a row stay.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// Those up to and including the diagonal, which begins after so many columns. The others become minus infinity.
    Past(usize),
    /// Those on one side of the diagonal (`enum ggml_tri_type`). The others become 0.
    Triangle { upper: bool, diagonal: bool },
}

impl Kept {
    fn of(node: &Node) -> Result<Self, Unsupported> {
        let word = node.params.int(0);
        if node.op == "TRI" {
            require("TRI", (0..4).contains(&word), || {
                format!("type {word}; possible: 0 (upper with diagonal), 1 (upper), 2 (lower with diagonal), 3 (lower)")
            })?;
            return Ok(Self::Triangle { upper: word < 2, diagonal: word % 2 == 0 });
        }
        match usize::try_from(word) {
            Ok(past) => Ok(Self::Past(past)),
            Err(_) => shape("DIAG_MASK_INF", format!("{word} columns before the diagonal; at least 0")),
        }
    }

    /// The part of row `row` of `length` elements that stays.
    #[inline(always)]
    fn range(self, row: usize, length: usize) -> Range<usize> {
        match self {
            Self::Past(past) => 0..past.saturating_add(row).saturating_add(1).min(length),
            Self::Triangle { upper: true, diagonal } => (row + usize::from(!diagonal)).min(length)..length,
            Self::Triangle { upper: false, diagonal } => 0..(row + usize::from(diagonal)).min(length),
        }
    }

    fn value(self) -> f32 {
        if matches!(self, Self::Past(_)) { f32::NEG_INFINITY } else { 0.0 }
    }
}

struct Mask {
    name: &'static str,
}

impl Operation for Mask {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a] = f32_sources(self.name, node)?;
        same_shape(self.name, "source 0", a, &node.output)?;
        Kept::of(node)?;
        dense_rows(self.name, &node.output)
    }

    /// What is masked need not be read.
    fn needs_all(&self, _: &Node, index: Option<usize>) -> bool {
        index.is_none()
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        let square = Tensor::contiguous(dtype, [512, 512, 2, 1]);
        vec![Node::new(self.name, OpParams::default(), square, vec![Some(square)])]
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let kept = Kept::of(node)?;
        Ok(map_rows(
            node,
            node.output.elements() / 4,
            #[inline(always)]
            move |row, [x], y| {
                let range = kept.range(row.0[0], x.len());
                y[..range.start].fill(kept.value());
                y[range.end..].fill(kept.value());
                y[range.clone()].copy_from_slice(&x[range]);
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[rstest]
    fn triangles(
        #[values(0, 1, 2, 3)] kind: i32,
        #[values([1, 1, 1, 1], [10, 10, 4, 3], [9, 5, 1, 1], [5, 9, 2, 1], [300, 300, 2, 1])] ne: [usize; 4],
    ) {
        let a = Data::random(f32s(ne), &mut Rng::with_seed(15));
        assert_formula("TRI", words([kind]), a.tensor, &[&a], 0.0, |index, get| {
            let [i, row, ..] = index;
            let kept = [i >= row, i > row, i <= row, i < row][kind as usize];
            if kept { get(0, index) } else { 0.0 }
        });
    }

    #[rstest]
    fn the_future_is_masked(
        #[values(0, 1, 5, 100, i32::MAX)] past: i32,
        #[values([10, 10, 1, 1], [10, 10, 3, 2], [20, 7, 1, 1], [300, 300, 2, 1])] ne: [usize; 4],
        #[values(false, true)] transposed: bool,
    ) {
        let a = Data::random(layout(DataType::F32, ne, transposed), &mut Rng::with_seed(16));
        assert_formula("DIAG_MASK_INF", words([past]), f32s(ne), &[&a], 0.0, |index, get| {
            let [i, row, ..] = index;
            if i as i64 > i64::from(past) + row as i64 { f64::NEG_INFINITY } else { get(0, index) }
        });
    }

    #[rstest]
    #[case("TRI", 4, DataType::F32)]
    #[case("TRI", -1, DataType::F32)]
    #[case("TRI", 0, DataType::F16)]
    #[case("DIAG_MASK_INF", -1, DataType::F32)]
    #[case("DIAG_MASK_INF", 0, DataType::BF16)]
    fn rejects(#[case] op: &str, #[case] value: i32, #[case] dtype: DataType) {
        let tensor = Tensor::contiguous(dtype, [4, 4, 1, 1]);
        assert!(!accepts(op, words([value]), tensor, &[tensor]));
    }
}
