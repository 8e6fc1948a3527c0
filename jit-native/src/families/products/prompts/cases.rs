//! What products with many columns have to get right: each type of weights, columns of both types, and tiles that are not whole.

use crate::kit::{Case, Exactness};
use aie_hal::Arch;
use aie_ops::{DataType, Tensor};

/// Types of weights and columns, with rows, columns and elements of each.
const PRODUCTS: [([DataType; 2], [usize; 3]); 6] = [
    ([DataType::BF16, DataType::F32], [256, 256, 128]),
    ([DataType::BF16, DataType::BF16], [250, 250, 192]),
    ([DataType::Q4_0, DataType::F32], [256, 270, 128]),
    ([DataType::Q4_1, DataType::F32], [256, 256, 64]),
    ([DataType::Q8_0, DataType::F32], [256, 256, 192]),
    ([DataType::F32, DataType::F32], [128, 256, 64]),
];

pub(super) fn cases(_: &Arch) -> Vec<Case> {
    PRODUCTS.map(|([weights, columns], [m, n, k])| product(weights, columns, [m, n, k])).to_vec()
}

pub(super) fn product(weights: DataType, columns: DataType, [m, n, k]: [usize; 3]) -> Case {
    let sources = [Tensor::contiguous(weights, [k, m, 1, 1]), Tensor::contiguous(columns, [k, n, 1, 1])];
    Case::new("MUL_MAT", Tensor::contiguous(DataType::F32, [m, n, 1, 1]), &sources).exactly(Exactness::PRODUCTS)
}

#[cfg(test)]
mod tests {
    use super::super::FAMILY;
    use aie_hal::ArchRegistry;
    use rstest::rstest;

    #[rstest]
    fn all_are_taken(#[values("aie2", "aie2p")] generation: &str) {
        let arch = ArchRegistry::builtin().get(generation).unwrap();
        for case in FAMILY.cases_on(&arch) {
            FAMILY.kernel_of(&case, &arch).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
        }
    }
}
