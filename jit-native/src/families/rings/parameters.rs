//! The block of parameters that a dispatch gives both cores of a column, in the memory of the lower one: numbers of 16 bits, so that
//! writing them is one operation.

use crate::array::ArrayError;

/// Words of the block, at the beginning of the lower core's memory.
pub(super) const OFFSET: u32 = 0;
pub(super) const WORDS: u32 = 8;

macro_rules! parameters {
    ($($(#[$doc:meta])* $field:ident: $variant:ident;)*) => {
        /// A number of the block, by its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Parameter { $($variant,)* }

        /// What a core has to know of its part of a product.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Parameters { $($(#[$doc])* pub $field: u32,)* }

        impl Parameters {
            /// The words of the block.
            ///
            /// # Errors
            /// [`ArrayError::Range`]: a number has more than 16 bits.
            pub fn words(&self) -> Result<Vec<u32>, ArrayError> {
                let numbers = [$((concat!("`", stringify!($field), "` of a product"), self.$field)),*];
                let max = u64::from(u16::MAX);
                match numbers.into_iter().find(|(_, number)| u64::from(*number) > max) {
                    Some((what, value)) => Err(ArrayError::Range { what, value: value.into(), min: 0, max }),
                    None => Ok(numbers.chunks(2).map(|pair| pair.iter().rfold(0, |word, (_, number)| word << 16 | number)).collect()),
                }
            }
        }
    };
}

parameters! {
    /// Batches of 16 rows.
    batches: Batches;
    /// Number of the type of weights.
    weights: Weights;
    /// Groups of 16 units of a portion: what is decoded at once.
    groups: Groups;
    /// How many times neighbours among the sums of a portion's groups are added, and how many sums are left.
    halvings: Halvings;
    kept: Kept;
    /// Portions of a batch.
    portions: Portions;
    /// Groups, or eights of units, until one begins with the same row's unit again: how many arrangements of the columns there are.
    phases: Phases;
    /// Bytes in front of the first row, which are dropped.
    skip: Skip;
    /// Blocks of weights: at least those of all rows. All have to be taken before the last result is handed over.
    blocks: Blocks;
    /// Columns.
    columns: Columns;
    /// Pieces of a column that are arranged one after the other; blocks of 32 elements of one, and phases.
    pieces: Pieces;
    depth: Depth;
    piece_phases: PiecePhases;
    /// Vectors of 16 bf16 of a column that are repeated behind its end, and bytes of it between the first units of two phases.
    repeated: Repeated;
    step: Step;
    /// Phases that a portion moves on by, without whole turns of them.
    portion_phases: PortionPhases;
}

#[cfg(test)]
mod tests {
    use super::Parameter::{Batches, Blocks, Columns, Groups, Halvings, Kept, Phases, Portions, Skip, Weights};
    use super::*;

    #[test]
    fn each_has_its_place() {
        let places = [Batches, Weights, Groups, Halvings, Kept, Portions, Phases, Skip, Blocks, Columns];
        assert_eq!(places.map(|place| place as usize), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let parameters = Parameters { batches: 1, skip: 64, depth: 9, ..Parameters::default() };
        assert_eq!(parameters.words().unwrap(), [1, 0, 0, 64 << 16, 0, 9 << 16, 0, 0]);
        let last = Parameters { portion_phases: 3, step: 5, ..Parameters::default() };
        assert_eq!(last.words().unwrap(), [0, 0, 0, 0, 0, 0, 0, 5 | 3 << 16]);
        let error = Parameters { blocks: 0x1_0000, ..last }.words().unwrap_err();
        assert_eq!(error.to_string(), "`blocks` of a product is 65536: it has to be 0 to 65535");
    }
}
