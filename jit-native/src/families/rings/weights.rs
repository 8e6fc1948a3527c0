//! The types of weights, in units that are whole words.

use aie_ops::DataType;

/// A type of weights. Its number is what the program knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    Q4_1 = 0,
    /// In pairs of blocks, like q8_0 and q6_K: one is no number of whole words.
    Q4_0 = 1,
    Q8_0 = 2,
    Q4K = 3,
    Q6K = 4,
}

impl Weights {
    pub const ALL: [Self; 5] = [Self::Q4_1, Self::Q4_0, Self::Q8_0, Self::Q4K, Self::Q6K];

    pub fn of(dtype: DataType) -> Option<Self> {
        Self::ALL.into_iter().find(|weights| weights.dtype() == dtype)
    }

    pub fn dtype(self) -> DataType {
        match self {
            Self::Q4_1 => DataType::Q4_1,
            Self::Q4_0 => DataType::Q4_0,
            Self::Q8_0 => DataType::Q8_0,
            Self::Q4K => DataType::Q4_K,
            Self::Q6K => DataType::Q6_K,
        }
    }

    /// Elements of a unit.
    pub const fn unit(self) -> usize {
        match self {
            Self::Q4_1 => 32,
            Self::Q4_0 | Self::Q8_0 => 64,
            Self::Q4K => 256,
            Self::Q6K => 512,
        }
    }

    /// Words of a unit.
    pub const fn unit_words(self) -> usize {
        match self {
            Self::Q4_1 => 5,
            Self::Q4_0 => 9,
            Self::Q8_0 => 17,
            Self::Q4K => 36,
            Self::Q6K => 105,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_blocks_in_whole_words() {
        for (number, weights) in (0..).zip(Weights::ALL) {
            let (dtype, blocks) = (weights.dtype(), weights.unit() / weights.dtype().block_elements());
            assert_eq!(blocks * dtype.block_bytes(), 4 * weights.unit_words(), "{dtype}");
            assert_eq!((weights as u32, Weights::of(dtype)), (number, Some(weights)));
        }
        assert_eq!(Weights::of(DataType::F32), None);
    }
}
