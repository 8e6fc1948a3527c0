//! The types of weights, in units that are whole words, or a block of q6_K.

use super::memory::{LARGE_OFFSETS, LARGE_PARTS, OFFSETS, PARTS, Place};
use super::types::Types;
use crate::array::OWN_MEMORY;
use aie_ops::DataType;

/// A type of weights. Its number is the same for all programs, whatever other types they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Weights {
    Q4_1 = 0,
    Q5_1 = 1,
    /// In pairs of blocks, like q5_0 and q8_0: one is no number of whole words.
    Q4_0 = 2,
    Q5_0 = 3,
    Q8_0 = 4,
    Q4K = 5,
    Q5K = 6,
    Q6K = 7,
}

impl Weights {
    pub const ALL: [Self; 8] =
        [Self::Q4_1, Self::Q5_1, Self::Q4_0, Self::Q5_0, Self::Q8_0, Self::Q4K, Self::Q5K, Self::Q6K];

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
            Self::Q5_0 => DataType::Q5_0,
            Self::Q5_1 => DataType::Q5_1,
            Self::Q5K => DataType::Q5_K,
        }
    }

    /// Elements of a unit.
    pub const fn unit(self) -> usize {
        match self {
            Self::Q4_1 | Self::Q5_1 => 32,
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => 64,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a unit.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_1 => 20,
            Self::Q4_0 => 36,
            Self::Q8_0 => 68,
            Self::Q4K => 144,
            Self::Q6K => 210,
            Self::Q5_0 => 44,
            Self::Q5_1 => 24,
            Self::Q5K => 176,
        }
    }

    /// Words of a unit, all but those of q6_K, which is put in order by [`super::six_bits`].
    pub const fn unit_words(self) -> usize {
        self.bytes() / 4
    }

    /// Parts of 32 of a unit.
    pub fn parts(self) -> usize {
        self.unit() / 32
    }

    /// Bytes of a unit of a column in bf16.
    pub fn unit_bytes(self) -> i64 {
        2 * self.unit() as i64
    }

    /// The orders of its parts, which repeat.
    pub fn orders(self) -> &'static [Order] {
        match self {
            Self::Q4_1 => &[Order::Halves],
            Self::Q4_0 => &[Order::TurnedHalves, Order::Halves],
            Self::Q8_0 => &[Order::Turned, Order::Plain],
            Self::Q4K | Self::Q5K | Self::Q6K => &[Order::Plain, Order::Plain],
            Self::Q5_0 => &[Order::TurnedEights, Order::Eights],
            Self::Q5_1 => &[Order::Eights],
        }
    }

    /// Units whose tiles are next to each other: those of a group, or eight of a larger type, so that they are there once in more rows.
    pub const fn phase_units(self) -> usize {
        if self.has_part_factors() { 8 } else { 16 }
    }

    /// Bytes of their tiles.
    pub const fn phase_bytes(self) -> i64 {
        2 * (self.phase_units() * self.unit()) as i64
    }

    /// Bytes between what is multiplied with units of both parities: of two fours, or of one where two parts that are summed at once take
    /// turns.
    pub const PAIR: i64 = 128;

    /// Bytes between the tiles of the two fours of a group of one parity, unless the second one is in front.
    pub fn across(self) -> i64 {
        if self.has_part_factors() { self.phase_bytes() } else { 64 }
    }

    /// Where its offsets are.
    pub fn offsets(self) -> Place {
        if self.has_part_factors() { LARGE_OFFSETS } else { OFFSETS }
    }

    /// Where sums of its units are.
    pub fn sums(self) -> Place {
        if self.has_part_factors() { LARGE_PARTS } else { PARTS }
    }

    /// Elements from a part to the next one in tiles.
    pub fn part_step(self) -> i64 {
        if self == Self::Q6K { 64 } else { 32 }
    }

    /// Eights of `k` that have an offset of their own, as they have a scale.
    fn steps(self) -> u32 {
        if self == Self::Q6K { 2 } else { 4 }
    }

    /// Offsets of a part.
    pub fn part_offsets(self) -> usize {
        4 / self.steps() as usize
    }

    /// What is taken off a number, as bf16 twice.
    pub fn offset(self) -> u32 {
        match self {
            // 136: quants of q4_0 have their zero at 8.
            Self::Q4_0 => 0x4308_4308,
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => 0x4300_4300,
            // 144: those of q5_0 at 16.
            Self::Q5_0 => 0x4310_4310,
            Self::Q8_0 => 0,
            // 160: those of q6_K at 32.
            Self::Q6K => 0x4320_4320,
        }
    }

    /// Bytes of what the program knows of a type.
    pub const ENTRY: u32 = 64;

    /// What the program knows of its types.
    pub fn table(types: Types) -> Vec<u8> {
        let combinations = Self::combinations(types);
        let entry = |(place, of): (u32, Self)| {
            let number = combinations.iter().position(|other| *other == of.combined()).unwrap_or_default();
            // The scales of q6_K are put in front of its words.
            let (group, middle) = match of {
                Self::Q6K => (64, 0),
                _ => (of.group_bytes() as u32, 32 * (of.unit_words() as u32 / 2)),
            };
            let known = [
                of.unit_bytes() as u32,
                of.offset(),
                of.across() as u32,
                group,
                middle,
                of.exchanged(),
                number as u32,
                place,
                of.steps(),
                of.group_bytes() as u32,
                of.phase_bytes() as u32,
                OWN_MEMORY + of.offsets().0,
            ];
            let mut entry = [0; Self::ENTRY as usize / 4];
            entry[..known.len()].copy_from_slice(&known);
            entry
        };
        (0..).zip(types.iter()).flat_map(entry).flat_map(u32::to_le_bytes).collect()
    }

    /// The type whose sums of parts are put together in the same way: of pairs of blocks that of q4_0.
    pub fn combined(self) -> Self {
        match self {
            Self::Q8_0 | Self::Q5_0 => Self::Q4_0,
            Self::Q5_1 => Self::Q4_1,
            Self::Q5K => Self::Q4K,
            _ => self,
        }
    }

    /// The ways in which sums of parts are put together in a program.
    pub fn combinations(types: Types) -> Vec<Self> {
        let all: Vec<Self> = types.iter().map(Self::combined).collect();
        Self::ALL.into_iter().filter(|weights| all.contains(weights)).collect()
    }

    /// The lanes of 16 bits that a scale and the word in the middle of a unit exchange: of two blocks, the second scale is in the middle, and
    /// the first quants of the first one are beside its scale.
    fn exchanged(self) -> u32 {
        if matches!(self, Self::Q4_0 | Self::Q5_0 | Self::Q8_0) { 0xAAAA_AAAA } else { 0 }
    }

    /// Bytes of a group.
    pub const fn group_bytes(self) -> i64 {
        16 * self.bytes() as i64
    }

    /// Words in front of the highest bits of q5_K.
    pub const BITS_OF_Q5K: usize = 4;

    /// Words in front of the quants of a unit, or of the highest bits of its first part.
    pub fn header_words(self) -> usize {
        match self {
            Self::Q4K => 4,
            Self::Q5K => Self::BITS_OF_Q5K + 8,
            _ => 1,
        }
    }

    /// Words of quants that are multiplied at once, and parts that they are.
    pub fn run(self) -> (usize, usize) {
        match self {
            Self::Q4_1 | Self::Q4_0 => (4, 1),
            Self::Q8_0 => (8, 1),
            Self::Q5_0 | Self::Q5_1 => (5, 1),
            Self::Q4K | Self::Q5K | Self::Q6K => (8, 2),
        }
    }

    /// Runs of a unit.
    pub fn runs(self) -> usize {
        self.parts() / self.run().1
    }

    /// Whether its parts have factors besides those of the unit.
    pub const fn has_part_factors(self) -> bool {
        matches!(self, Self::Q4K | Self::Q5K | Self::Q6K)
    }
}

/// How the 32 `k` of a part are ordered in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As they are.
    Plain,
    /// Beginning at the third, the first two behind the last: the quants of a block that begins half a word late.
    Turned,
    /// Those 16 apart in turn, as the low and high halves of bytes follow each other.
    Halves,
    /// The same, each sixteen beginning at its third.
    TurnedHalves,
    /// Eight and the eight 16 further on, then the others.
    Eights,
    /// The same, each sixteen beginning at its third.
    TurnedEights,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_blocks_in_whole_words() {
        for (number, weights) in (0..).zip(Weights::ALL) {
            let (dtype, blocks) = (weights.dtype(), weights.unit() / weights.dtype().block_elements());
            assert_eq!(blocks * dtype.block_bytes(), weights.bytes(), "{dtype}");
            assert_eq!((weights as u32, Weights::of(dtype)), (number, Some(weights)));
        }
        assert_eq!(Weights::of(DataType::F32), None);
    }
}
