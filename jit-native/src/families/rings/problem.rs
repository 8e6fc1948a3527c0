//! What a node asks for, if the family takes it.

use super::memory::{BLOCK, LINEAR, OFFSET_BYTES, RING, SKIP, SPARE, TILES};
use super::weights::Weights;
use aie_ops::{DataType, Node, Tensor};

/// Columns that a core multiplies at once.
const MOST_COLUMNS: usize = 4;
/// Elements of a turn of the operand's chain.
const OPERAND_TURN: usize = 64;
/// Bytes of a portion at most, unless it is one group, as it always is of q4_K and q6_K. The ring holds one that begins anywhere in a block.
const PORTION_BYTES: usize = 5760;
const _: () = assert!(PORTION_BYTES + BLOCK as usize <= RING.1 as usize + SKIP && PORTION_BYTES <= SPARE.1 as usize);
/// Units of a row, and runs of a portion, that loops need at least.
const LEAST_UNITS: usize = 4;
const LEAST_RUNS: usize = 2;
/// Bytes of the sums of a group.
const SUM_BYTES: usize = 64;
/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 16;

/// A product of one matrix with few columns, all contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub weights: Weights,
    /// Elements of a row.
    pub depth: usize,
    pub rows: usize,
    /// Columns that are multiplied at once.
    pub columns: usize,
    /// How many times there are as many.
    pub turns: usize,
}

impl Problem {
    /// The problem of a node that follows the operation's rules; otherwise why the family does not take it.
    pub fn of(node: &Node) -> Result<Self, String> {
        let (Some(a), Some(b)) = (node.source(0), node.source(1)) else {
            return Err("a product needs sources 0 and 1".into());
        };
        let out = &node.output;
        let weights = Weights::of(a.dtype).ok_or_else(|| {
            let types: Vec<_> = Weights::ALL.iter().map(|weights| weights.dtype().name()).collect();
            format!("source 0 is {}; possible: {}", a.dtype, types.join(", "))
        })?;
        if (b.dtype, out.dtype) != (DataType::F32, DataType::F32) {
            return Err(format!("source 1 is {} and the result {}; possible: f32 and f32", b.dtype, out.dtype));
        }
        for (what, tensor) in [("source 0", a), ("source 1", b), ("the result", out)] {
            if tensor.ne[2..] != [1, 1] {
                return Err(format!("{:?} in dimensions 2 and 3 of {what}; possible: one matrix", &tensor.ne[2..]));
            }
            if !is_dense(tensor) {
                return Err(format!("gaps in {what}, whose strides are {:?}; possible: none", tensor.nb));
            }
        }
        Self::sized(weights, a.ne[0], a.ne[1], b.ne[1])
    }

    /// The problem of a node whose columns are multiplied some after the others, as many at once as a core has room for.
    pub fn in_turns(node: &Node) -> Result<Self, String> {
        let columns = node.source(1).map_or(0, |columns| columns.ne[1]);
        let has_gaps = [node.source(1), Some(&node.output)].into_iter().flatten().any(|tensor| !is_dense(tensor));
        if columns == 0 || has_gaps {
            return Self::of(node);
        }
        let turn = |at_once: usize| {
            let mut turn = node.clone();
            for tensor in [turn.sources.get_mut(1).and_then(Option::as_mut), Some(&mut turn.output)] {
                tensor.into_iter().for_each(|tensor| tensor.ne[1] = at_once);
            }
            Ok(Self { turns: columns / at_once, ..Self::of(&turn)? })
        };
        let at_once = (2..=MOST_COLUMNS).rev().filter(|at_once| columns.is_multiple_of(*at_once));
        let several = at_once.map(turn).find(Result::is_ok);
        several.unwrap_or_else(|| turn(1))
    }

    /// The problem with these extents, if the cores have room for it.
    pub fn sized(weights: Weights, depth: usize, rows: usize, columns: usize) -> Result<Self, String> {
        let problem = Self { weights, depth, rows, columns, turns: 1 };
        let dtype = weights.dtype();
        if !(1..=MOST_COLUMNS).contains(&columns) {
            return Err(format!("{columns} columns; possible: 1 to {MOST_COLUMNS}"));
        }
        let unit = weights.unit().max(OPERAND_TURN);
        if depth == 0 || !depth.is_multiple_of(unit) {
            return Err(format!("rows of {depth} elements of {dtype}; possible: multiples of {unit}"));
        }
        if problem.units() < LEAST_UNITS || problem.groups() * weights.runs() < LEAST_RUNS {
            return Err(format!(
                "rows of {depth} elements of {dtype}; possible: from {LEAST_UNITS} units of {unit} on"
            ));
        }
        if !problem.row_bytes().is_multiple_of(4) && !rows.is_multiple_of(2) {
            let bytes = problem.row_bytes();
            return Err(format!("{rows} rows of {bytes} bytes, no whole words; possible: an even number of them"));
        }
        let (phases, parts) = (problem.phases(), weights.parts());
        let rooms = [
            (columns * phases * weights.phase_bytes() as usize, TILES, "arranged columns"),
            (columns * phases * parts * OFFSET_BYTES as usize, weights.offsets(), "offsets"),
            (problem.sum_bytes(problem.groups()), weights.sums(), "sums of groups"),
            (problem.linear_bytes() / problem.pieces(), LINEAR, "a column"),
        ];
        for (bytes, most, what) in rooms {
            let most = most.1 as usize;
            if bytes > most {
                return Err(format!(
                    "{columns} columns of {depth} elements of {dtype} take {bytes} bytes of {what}; a core has room for {most}"
                ));
            }
        }
        Ok(problem)
    }

    /// Units of a row.
    pub fn units(&self) -> usize {
        self.depth / self.weights.unit()
    }

    /// Groups of 16 units, or eights of larger ones, until one begins with the first unit of a row again.
    pub fn phases(&self) -> usize {
        self.units() / greatest_common_divisor(self.units(), self.weights.phase_units())
    }

    /// Groups that are decoded at once: as many as divide a batch and fit, if possible with their sums.
    pub fn groups(&self) -> usize {
        let (units, bytes) = (self.units(), self.weights.group_bytes() as usize);
        let most = if self.weights.has_part_factors() { 1 } else { PORTION_BYTES / bytes };
        let all = || (1..=most.min(units)).rev().filter(|groups| units.is_multiple_of(*groups));
        let fits = |groups: &usize| self.sum_bytes(*groups) <= self.weights.sums().1 as usize;
        all().find(fits).or_else(|| all().next()).unwrap_or(1)
    }

    /// Bytes of the sums of a batch, where a portion has so many groups.
    fn sum_bytes(&self, groups: usize) -> usize {
        let halvings = self.halvings_of(groups);
        (self.columns * (self.units() >> halvings) + if halvings > 0 { groups } else { 0 }) * SUM_BYTES
    }

    /// How often neighbours among the sums of so many groups are added: never, where there is room for all sums of a batch, or groups belong
    /// to two rows.
    fn halvings_of(&self, groups: usize) -> u32 {
        let has_room = self.columns * self.units() * SUM_BYTES <= self.weights.sums().1 as usize;
        if has_room || !self.units().is_multiple_of(BATCH_ROWS) {
            return 0;
        }
        // Two are left, which is what a loop has at least.
        let of_one_row = (self.units() / BATCH_ROWS).trailing_zeros();
        groups.trailing_zeros().min(of_one_row).min(groups.ilog2().saturating_sub(1))
    }

    /// The same of a portion.
    pub fn halvings(&self) -> u32 {
        self.halvings_of(self.groups())
    }

    /// Sums of groups of a batch that are kept.
    pub fn sums(&self) -> usize {
        self.units() >> self.halvings()
    }

    /// Vectors of 16 elements of a column that a phase may reach beyond its end.
    pub fn repeated(&self) -> usize {
        let units = self.weights.phase_units();
        if self.units().is_multiple_of(units) { 0 } else { (units - 1) * self.weights.unit() / 16 }
    }

    /// Bytes of a column in bf16, with what is repeated.
    fn linear_bytes(&self) -> usize {
        2 * self.depth + 32 * self.repeated()
    }

    /// Pieces in which a column is arranged: one where there is room for it, or where phases reach beyond its end.
    pub fn pieces(&self) -> usize {
        let fits =
            |pieces: &usize| self.phases().is_multiple_of(*pieces) && self.linear_bytes() <= pieces * LINEAR.1 as usize;
        if self.repeated() > 0 { 1 } else { (1..=self.phases()).find(fits).unwrap_or(1) }
    }

    /// Bytes of a row of weights.
    pub fn row_bytes(&self) -> usize {
        self.units() * self.weights.bytes()
    }
}

/// Whether there are no gaps between its elements. Strides of dimensions with one element do not count.
fn is_dense(tensor: &Tensor) -> bool {
    let packed = Tensor::contiguous(tensor.dtype, tensor.ne);
    (0..2).all(|dimension| tensor.ne[dimension] == 1 || tensor.nb[dimension] == packed.nb[dimension])
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::testing::{f32s, node};
    use aie_ops::OpParams;
    use rstest::rstest;

    fn problem(weights: Weights, depth: usize, columns: usize) -> Result<Problem, String> {
        Problem::sized(weights, depth, 1024, columns)
    }

    #[rstest]
    #[case(Weights::Q4_0, 2048, [32, 2, 8, 4])]
    #[case(Weights::Q4_0, 576, [9, 9, 9, 1])]
    #[case(Weights::Q4_1, 576, [18, 9, 18, 1])]
    #[case(Weights::Q8_0, 2048, [32, 2, 4, 8])]
    #[case(Weights::Q4K, 2048, [8, 1, 1, 8])]
    fn rows_are_units_in_portions(#[case] weights: Weights, #[case] depth: usize, #[case] expected: [usize; 4]) {
        let problem = problem(weights, depth, 1).unwrap();
        let portions = problem.units() / problem.groups();
        assert_eq!([problem.units(), problem.phases(), problem.groups(), portions], expected);
        assert_eq!(problem.row_bytes(), depth / weights.dtype().block_elements() * weights.dtype().block_bytes());
    }

    #[rstest]
    #[case::long(Weights::Q4K, 8192, 1, None)]
    #[case::of_8b(Weights::Q4_0, 14_336, 1, None)]
    #[case::of_8b_small_units(Weights::Q5_1, 14_336, 1, None)]
    #[case::of_8b_large_units(Weights::Q6K, 14_336, 1, None)]
    #[case::too_long(Weights::Q4K, 16_384, 1, Some("take 32768 bytes of arranged columns; a core has room for 28672"))]
    #[case::odd(Weights::Q4K, 1792, 1, None)]
    #[case::sums(Weights::Q4_1, 4352, 1, Some("take 8704 bytes of sums of groups; a core has room for 8192"))]
    #[case::four(Weights::Q4_0, 2048, 4, None)]
    #[case::five(Weights::Q4_0, 2048, 5, Some("5 columns; possible: 1 to 4"))]
    #[case::none(Weights::Q4_0, 2048, 0, Some("0 columns; possible: 1 to 4"))]
    #[case::four_too_long(Weights::Q4_0, 2112, 4, Some("arranged columns"))]
    #[case::turn(Weights::Q4_1, 96, 1, Some("rows of 96 elements of q4_1; possible: multiples of 64"))]
    #[case::empty(Weights::Q4_1, 0, 1, Some("rows of 0 elements"))]
    fn cores_have_limits(
        #[case] weights: Weights,
        #[case] depth: usize,
        #[case] columns: usize,
        #[case] message: Option<&str>,
    ) {
        match (problem(weights, depth, columns), message) {
            (Ok(_), None) => {}
            (Err(error), Some(message)) => assert!(error.contains(message), "{error}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    /// Groups that are in one row are added where not all have room, and columns without room in bf16 are arranged in pieces of whole phases.
    #[rstest]
    #[case(Weights::Q4_0, 8192, 1, [8, 128, 1])]
    #[case(Weights::Q4_0, 14_336, 1, [8, 112, 2])]
    #[case(Weights::Q4_1, 14_336, 1, [16, 112, 2])]
    #[case(Weights::Q5_1, 14_336, 1, [8, 112, 2])]
    #[case(Weights::Q8_0, 14_336, 1, [4, 112, 2])]
    #[case(Weights::Q4_1, 6144, 2, [16, 48, 1])]
    #[case(Weights::Q4K, 14_336, 1, [1, 56, 7])]
    #[case(Weights::Q6K, 1792, 1, [1, 7, 1])]
    fn long_rows_fit(
        #[case] weights: Weights,
        #[case] depth: usize,
        #[case] columns: usize,
        #[case] expected: [usize; 3],
    ) {
        let problem = problem(weights, depth, columns).unwrap();
        assert_eq!([problem.groups(), problem.sums(), problem.pieces()], expected);
    }

    #[test]
    fn one_dense_matrix_is_taken() {
        let q4_0 = |ne| Tensor::contiguous(DataType::Q4_0, ne);
        let of = |a, b, out| Problem::of(&node("MUL_MAT", OpParams::default(), out, &[a, b]));
        let (a, b, out) = (q4_0([256, 100, 1, 1]), f32s([256, 2, 1, 1]), f32s([100, 2, 1, 1]));
        assert_eq!(of(a, b, out), Ok(Problem { weights: Weights::Q4_0, depth: 256, rows: 100, columns: 2, turns: 1 }));
        let refused = |a, b, out, message: &str| {
            let error = of(a, b, out).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        let turns = |columns| {
            let node =
                node("MUL_MAT", OpParams::default(), f32s([100, columns, 1, 1]), &[a, f32s([256, columns, 1, 1])]);
            Problem::in_turns(&node).map(|problem| (problem.columns, problem.turns))
        };
        assert_eq!([3, 6, 7, 64].map(turns), [Ok((3, 1)), Ok((3, 2)), Ok((1, 7)), Ok((4, 16))]);
        assert!(turns(0).is_err());
        let mut apart = a;
        apart.nb[1] += 72;
        refused(apart, b, out, "gaps in source 0");
        let mut apart = b;
        apart.nb[1] += 4;
        refused(a, apart, out, "gaps in source 1");
        // One column has no distance to the next.
        let (b, out) = (f32s([256, 1, 1, 1]), f32s([100, 1, 1, 1]));
        let mut alone = b;
        alone.nb[1] = 4;
        assert!(of(a, alone, out).is_ok());
        let (heads, result) = (f32s([256, 1, 2, 1]), f32s([100, 1, 2, 1]));
        refused(a, heads, result, "[2, 1] in dimensions 2 and 3 of source 1; possible: one matrix");
        refused(f32s([256, 100, 1, 1]), b, out, "source 0 is f32; possible: q4_1, q5_1, q4_0, q5_0, q8_0");
        let bf16 = Tensor::contiguous(DataType::BF16, [256, 1, 1, 1]);
        refused(a, bf16, out, "source 1 is bf16 and the result f32; possible: f32 and f32");
    }
}
