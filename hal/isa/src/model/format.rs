//! Bundle formats: how many bytes, and where the words of the slots are.

use std::fmt;

/// A place of a bundle that can hold one instruction. All slots of a bundle issue in one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Slot {
    /// Loads through the first unit, part-word stores, `mova`, pointer updates.
    Lda,
    /// Loads through the second unit, pointer updates.
    Ldb,
    /// Stores, pointer updates.
    St,
    /// Scalar arithmetic, locks, streams, indirect branches.
    Alu,
    /// Moves and vector operations other than multiplication.
    Mv,
    /// Multiply-accumulate.
    Vec,
    /// Stands for `Alu` and `Mv`: 32-bit immediates and direct branches.
    Lng,
    /// The slot of the 16-bit bundle that does nothing.
    Nop,
}

impl Slot {
    /// All slots.
    pub const ALL: [Self; 8] = [Self::Lda, Self::Ldb, Self::St, Self::Alu, Self::Mv, Self::Vec, Self::Lng, Self::Nop];

    /// Its name in the tables and in listings.
    pub fn name(self) -> &'static str {
        ["lda", "ldb", "st", "alu", "mv", "vec", "lng", "nop"][self as usize]
    }

    /// The slot of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slot| slot.name() == name)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A bundle format. A bundle is a little-endian number of `bits` bits.
#[derive(Debug)]
pub struct Format {
    /// As in the tables: `I48_LDA_LDB`.
    pub name: &'static str,
    /// Size: 16 to 128 in steps of 16.
    pub bits: u32,
    /// Which bits are the same in all bundles of the format.
    pub mask: u128,
    /// Those bits.
    pub value: u128,
    /// Bits that are written as 0 and not looked at.
    pub ignored: u128,
    /// The slots, each with its highest and lowest bit.
    pub slots: Vec<(Slot, u32, u32)>,
}

impl Format {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bits as usize / 8
    }

    /// Whether the bundle has a place for this slot.
    pub fn has(&self, slot: Slot) -> bool {
        self.slots.iter().any(|(other, ..)| *other == slot)
    }
}

/// The formats, by their size in units of 16 bits.
pub(super) type FormatsBySize = [Vec<Format>; 9];
