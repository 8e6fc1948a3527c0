//! Types of elements.
//!
//! Cores compute f32. A tile of bf16 comes into the first half of its buffer and is widened there; a result is narrowed in
//! its buffer before it leaves. DMAs move words of 32 bits, so that runs of bf16 and the distances between them have to be even.

use aie_ops::DataType;

/// How elements lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Words.
    #[default]
    F32,
    /// Two in a word.
    Bf16,
}

impl Format {
    /// The format of a type, if there is one.
    #[must_use]
    pub fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::F32 => Some(Self::F32),
            DataType::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// ggml's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The words that so many elements are, if those are whole.
    #[must_use]
    pub fn words(self, elements: u64) -> Option<u64> {
        let bytes = elements * self.bytes() as u64;
        bytes.is_multiple_of(4).then_some(bytes / 4)
    }
}
