//! What products with few columns have to get right: each type of weights, with a column and with several.

use crate::kit::{Case, Exactness};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// Types of weights, with a length of rows, and several columns of which a core has room for.
const WEIGHTS: [(DataType, usize, usize); 8] = [
    (DataType::Q4_0, 256, 4),
    (DataType::Q4_1, 576, 2),
    (DataType::Q8_0, 320, 1),
    (DataType::Q4_K, 1024, 3),
    (DataType::Q6_K, 1536, 1),
    (DataType::Q5_0, 320, 2),
    (DataType::Q5_1, 256, 3),
    (DataType::Q5_K, 1024, 1),
];

/// Rows that are no whole batch, of which cores have some in common.
const ROWS: usize = 150;

pub(super) fn cases(_: &Arch) -> Vec<Case> {
    let several = WEIGHTS.into_iter().filter(|(_, _, columns)| *columns > 1);
    let one = WEIGHTS.into_iter().map(|(dtype, depth, _)| (dtype, depth, 1));
    one.chain(several).map(|(dtype, depth, columns)| product(dtype, depth, columns)).collect()
}

/// The same, and more columns than are multiplied at once.
pub(super) fn in_turns(arch: &Arch) -> Vec<Case> {
    let several = [product(DataType::Q4_0, 256, 8), product(DataType::Q8_0, 320, 3)];
    cases(arch).into_iter().chain(several).collect()
}

fn product(weights: DataType, depth: usize, columns: usize) -> Case {
    let sources =
        [Tensor::contiguous(weights, [depth, ROWS, 1, 1]), Tensor::contiguous(DataType::F32, [depth, columns, 1, 1])];
    let output = Tensor::contiguous(DataType::F32, [ROWS, columns, 1, 1]);
    Case::new("MUL_MAT", output, &sources).exactly(Exactness::PRODUCTS)
}

#[cfg(test)]
mod tests {
    use super::super::plan::plan;
    use super::super::problem::Problem;
    use super::*;
    use crate::array::testing::aie2;

    #[test]
    fn all_are_taken() {
        for case in cases(&aie2()) {
            let problem = Problem::of(&case.node).unwrap();
            assert_eq!(Problem::in_turns(&case.node), Ok(problem));
            let plan = plan(&problem, 4, 0).unwrap();
            assert_eq!((plan.batches, plan.jobs.len()), (2, 1), "{}", case.name());
        }
    }
}
