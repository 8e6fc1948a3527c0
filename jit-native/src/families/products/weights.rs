//! The types that weights can have: how their rows are cut, and how the mem tile lays them out for the core.

use super::arithmetic::Arithmetic;
use aie_ops::DataType;

/// A type of weights: all but the last are bf16 once decoded.
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
    /// Four bits above a minimum, 256 in eight parts whose scales and minimums have six bits.
    Q4_K,
    /// Six bits about zero, 256 in sixteen parts whose scales have eight bits.
    Q6_K,
    /// Whole numbers, multiplied as they are.
    I8,
}

/// Words of a row behind a unit in a core: of q4_K for scales and centres in bf16; of q6_K for scales, and for one word for
/// the second `d`, which shares one with the first quants where it comes from.
const ROOM_OF_Q4_K: usize = 9;
const ROOM_OF_Q6_K: usize = 17;

/// How consecutive `k` are ordered in a core, in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As in memory.
    Plain,
    /// Those that lie so far apart, a multiple of 16, in turn: `0, 16, 1, 17, ...`, as the low and high halves of the bytes of
    /// four-bit blocks follow each other.
    Interleaved(usize),
}

/// Where the parts of blocks are in a core once all quants begin at whole words, in words of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// First words of quants of the first and second block of a pair; the same twice if there are no pairs.
    pub words: [u8; 2],
    /// The word with scales: in the first half of the 16 rows' words those of the first block, in the second half those of the
    /// second, or minimums.
    pub scales: u8,
    /// From one pair, or block, to the next, and its elements.
    pub period: u8,
    pub elements: u16,
}

impl Layout {
    /// Whether blocks come in pairs that have one period.
    pub fn is_pair(&self) -> bool {
        self.words[0] != self.words[1]
    }
}

impl Weights {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 8] =
        [Self::Bf16, Self::F32, Self::Q4_0, Self::Q4_1, Self::Q8_0, Self::Q4_K, Self::Q6_K, Self::I8];

    /// Those that are multiplied with an arithmetic: the same numbers.
    pub fn of_arithmetic(arithmetic: Arithmetic) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |weights| weights.arithmetic() == arithmetic)
    }

    /// What they are multiplied as.
    pub fn arithmetic(self) -> Arithmetic {
        if self == Self::I8 { Arithmetic::Integers } else { Arithmetic::Floats }
    }

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
            Self::Q4_K => DataType::Q4_K,
            Self::Q6_K => DataType::Q6_K,
            Self::I8 => DataType::I8,
        }
    }

    /// By this number the core's program knows the type.
    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|weights| *weights == self).unwrap_or_default() as u32
    }

    /// The fewest elements that rows are cut at: whole words, whole blocks, and whole steps of the inner loops.
    pub fn unit(self) -> usize {
        match self {
            Self::Bf16 | Self::F32 | Self::Q4_1 | Self::I8 => 32,
            // Two blocks of 18 or 34 bytes.
            Self::Q4_0 | Self::Q8_0 => 64,
            Self::Q4_K => 256,
            // Two blocks of 210 bytes.
            Self::Q6_K => 512,
        }
    }

    /// Whether a unit is two blocks, of which the second begins in the middle of a word.
    pub fn comes_in_pairs(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q8_0 | Self::Q6_K)
    }

    /// Elements that are whole words, if zeros can fill up the rest of a unit: what is not in blocks.
    pub fn granule(self) -> Option<usize> {
        match self {
            Self::Bf16 => Some(2),
            Self::F32 => Some(1),
            Self::I8 => Some(4),
            _ => None,
        }
    }

    /// Words that a unit takes in a core: those of blocks of 256 leave room behind them for scales and centres in bf16.
    pub fn core_words(self) -> usize {
        let room = match self {
            Self::Q4_K => ROOM_OF_Q4_K,
            Self::Q6_K => ROOM_OF_Q6_K,
            _ => 0,
        };
        self.unit_words() + room
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
            Self::I8 => 2,
            Self::Bf16 => 4,
            Self::F32 => 8,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 | Self::Q4_K | Self::Q6_K => 1,
        }
    }

    /// The order of elements that decoding leaves.
    pub fn order(self) -> Order {
        match self {
            Self::Bf16 | Self::F32 | Self::Q8_0 | Self::I8 => Order::Plain,
            Self::Q4_0 | Self::Q4_1 => Order::Interleaved(16),
            Self::Q4_K => Order::Interleaved(32),
            Self::Q6_K => Order::Interleaved(64),
        }
    }

    /// The layout of blocks.
    pub fn layout(self) -> Option<Layout> {
        let layout = |words, scales, period, elements| Some(Layout { words, scales, period, elements });
        match self {
            Self::Bf16 | Self::F32 | Self::I8 => None,
            // Two blocks: see `decode/align.rs`.
            Self::Q4_0 => layout([0, 5], 4, 9, 64),
            Self::Q8_0 => layout([0, 9], 8, 17, 64),
            // A word with scale and minimum, four words of quants.
            Self::Q4_1 => layout([1, 1], 0, 5, 32),
            // A word with scale and minimum, three words of packed ones, 32 of quants, and the room behind.
            Self::Q4_K => layout([4, 4], 0, (36 + ROOM_OF_Q4_K) as u8, 256),
            // Each block in its half of a unit: see `decode/six_bits.rs`.
            Self::Q6_K => layout([0, 0], 52, 61, 256),
        }
    }

    /// Whether the program for prompts takes them: those whose units are half a chunk of its, or less, and that have `k` in order or 16 apart.
    pub fn is_prompt(self) -> bool {
        self.unit() <= 64 && self != Self::I8 && matches!(self.order(), Order::Plain | Order::Interleaved(16))
    }

    /// Whether the core multiplies what arrives, without a copy.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Bf16 | Self::I8)
    }

    /// Cycles, about, in which a core decodes 16 rows of 32 elements.
    pub fn decode_cycles(self) -> u64 {
        match self {
            Self::Bf16 | Self::I8 => 0,
            Self::F32 => 64,
            Self::Q4_0 => 62,
            Self::Q4_1 => 90,
            Self::Q8_0 => 108,
            // 84 for 64 elements, and about 260 for scales of 256.
            Self::Q4_K => 75,
            // 120 for 32 elements, and about 230 for 256 to move and for scales.
            Self::Q6_K => 149,
        }
    }
}
