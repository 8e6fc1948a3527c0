//! The types that weights can have: how their rows are cut, and how the mem tile lays them out for the core.

use aie_ops::DataType;

/// A type of weights that the cores turn into bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the variants carry ggml's own spelling")]
pub(super) enum Weights {
    /// Multiplied as they are.
    Bf16,
    /// Rounded to bf16.
    F32,
    /// Four bits about zero, 32 with a scale.
    Q4_0,
    /// Four bits above a minimum, 32 with a scale and a minimum.
    Q4_1,
    /// Bytes, 32 with a scale.
    Q8_0,
}

/// How the elements of 32 consecutive `k` are ordered in a core, in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As in memory.
    Plain,
    /// `0, 16, 1, 17, ...`: as the low and high halves of the bytes of four-bit blocks follow each other.
    Halves,
}

impl Weights {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Bf16, Self::F32, Self::Q4_0, Self::Q4_1, Self::Q8_0];

    /// The weights of a tensor's type.
    pub fn of(dtype: DataType) -> Option<Self> {
        Self::ALL.into_iter().find(|weights| weights.dtype() == dtype)
    }

    /// The type of the tensor.
    pub fn dtype(self) -> DataType {
        match self {
            Self::Bf16 => DataType::BF16,
            Self::F32 => DataType::F32,
            Self::Q4_0 => DataType::Q4_0,
            Self::Q4_1 => DataType::Q4_1,
            Self::Q8_0 => DataType::Q8_0,
        }
    }

    /// By this number the core's program knows the type.
    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|weights| *weights == self).unwrap_or_default() as u32
    }

    /// The fewest elements that rows are cut at: whole words, whole blocks, and whole steps of the inner loops.
    pub fn unit(self) -> usize {
        match self {
            Self::Bf16 | Self::F32 | Self::Q4_1 => 32,
            // Two blocks of 18 or 34 bytes.
            Self::Q4_0 | Self::Q8_0 => 64,
        }
    }

    /// 32-bit words of a unit.
    pub fn unit_words(self) -> usize {
        let dtype = self.dtype();
        self.unit() / dtype.block_elements() * dtype.block_bytes() / 4
    }

    /// Words of one row that lie next to each other in the core, before those of the next row follow.
    pub fn words_together(self) -> usize {
        match self {
            // Eight elements of a row are a row of the 4x8 matrix.
            Self::Bf16 => 4,
            Self::F32 => 8,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 1,
        }
    }

    /// The order of elements that decoding leaves.
    pub fn order(self) -> Order {
        match self {
            Self::Bf16 | Self::F32 | Self::Q8_0 => Order::Plain,
            Self::Q4_0 | Self::Q4_1 => Order::Halves,
        }
    }

    /// Whether the core multiplies what arrives, without a copy.
    pub fn is_direct(self) -> bool {
        self == Self::Bf16
    }

    /// Cycles, about, in which a core decodes 16 rows of 32 elements.
    pub fn decode_cycles(self) -> u64 {
        match self {
            Self::Bf16 => 0,
            Self::F32 => 64,
            Self::Q4_0 => 62,
            Self::Q4_1 => 90,
            Self::Q8_0 => 108,
        }
    }
}
