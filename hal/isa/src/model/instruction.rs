//! Slot instructions: fixed bits, operands, effects.

use super::{Register, Slot};

/// Whether an operand is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Read.
    Read,
    /// Written.
    Write,
}

/// How a field of an instruction word becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The field times the step.
    Unsigned,
    /// The field in two's complement, times the step.
    Signed,
    /// (Field - 2^bits) times the step: always negative.
    Negative,
    /// An absolute byte address in program memory.
    Address,
}

/// A number in an instruction word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Immediate {
    /// Width of the field.
    pub bits: u32,
    /// How it is read.
    pub form: Form,
    /// What one step of the field is worth.
    pub step: i64,
}

impl Immediate {
    /// Smallest and largest value.
    pub fn range(&self) -> (i64, i64) {
        let size = 1i64 << self.bits;
        let (low, high) = match self.form {
            Form::Unsigned | Form::Address => (0, size - 1),
            Form::Signed => (-(size / 2), size / 2 - 1),
            Form::Negative => (-size, -1),
        };
        (low * self.step, high * self.step)
    }

    /// The value of a field.
    pub fn value(&self, field: u64) -> i64 {
        let (field, size) = (field.cast_signed(), 1i64 << self.bits);
        self.step
            * match self.form {
                Form::Signed if field >= size / 2 => field - size,
                Form::Negative => field - size,
                _ => field,
            }
    }

    /// The field of a value, if it is in range and a multiple of the step.
    pub fn field(&self, value: i64) -> Option<u64> {
        let (low, high) = self.range();
        let fits = (low..=high).contains(&value) && value % self.step == 0;
        fits.then(|| (value / self.step).cast_unsigned() & ((1 << self.bits) - 1))
    }
}

/// Which register a tied operand means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The same register.
    Whole,
    /// The counter of a 2D modifier, or of one half of a 3D modifier (0 low, 1 high).
    Counter(Option<u8>),
    /// The load fifo that belongs to a pointer.
    LoadFifo,
    /// The register with the position in that fifo.
    FifoPosition,
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A register that the word names; the index of its class.
    Class(u16),
    /// A register that the instruction implies.
    Fixed(Register),
    /// A number.
    Immediate(Immediate),
    /// Given by another operand.
    Tied {
        /// That operand.
        operand: u8,
        /// Which register of it.
        part: Part,
    },
}

/// An operand of an instruction.
#[derive(Debug)]
pub struct Operand {
    /// As in the syntax, without `$`.
    pub name: &'static str,
    /// Read or written.
    pub direction: Direction,
    /// What it is.
    pub kind: Kind,
    /// Where its field is: highest and lowest bits of the pieces, the piece with the field's highest bits first. Empty for
    /// operands without a field.
    pub pieces: Vec<(u32, u32)>,
}

impl Operand {
    /// Width of the field.
    pub fn bits(&self) -> u32 {
        self.pieces.iter().map(|(high, low)| high - low + 1).sum()
    }

    /// The field of a slot word.
    pub fn field(&self, word: u64) -> u64 {
        self.pieces.iter().fold(0, |field, (high, low)| {
            let width = high - low + 1;
            field << width | (word >> low) & ((1 << width) - 1)
        })
    }

    /// The bits of a slot word that hold a field.
    pub fn place(&self, field: u64) -> u64 {
        let mut left = self.bits();
        self.pieces.iter().fold(0, |word, (high, low)| {
            let width = high - low + 1;
            left -= width;
            word | ((field >> left) & ((1 << width) - 1)) << low
        })
    }
}

/// How a load of less than 32 bits fills the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// With the sign.
    Sign,
    /// With zeros.
    Zero,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads this many bytes of data memory.
    Load {
        /// How many.
        bytes: u32,
        /// For fewer than four of them.
        extension: Option<Extension>,
    },
    /// Writes this many bytes.
    Store {
        /// How many.
        bytes: u32,
    },
    /// Reads a word, replaces this many bytes of it and writes it back.
    PartWordStore {
        /// How many.
        bytes: u32,
    },
    /// Reads a register of the tile.
    LoadTileRegister,
    /// Writes a register of the tile.
    StoreTileRegister,
    /// Reads lanes from several addresses.
    Gather,
    /// Reads data memory through a compression stream or a load fifo.
    LoadStream,
    /// Writes data memory through the store fifo.
    StoreStream,
}

/// Properties of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Has delay slots.
    pub branch: bool,
    /// Uses the lock interface.
    pub lock: bool,
    /// Reads or writes a stream.
    pub stream: bool,
    /// Reads or writes the cascade.
    pub cascade: bool,
    /// Nothing has shown that it does what the emulator takes it to do (docs/emulator-evidence.md), and other rows can stand for it.
    pub unproven: bool,
}

/// A slot instruction: one row of the table.
#[derive(Debug)]
pub struct Instruction {
    /// Its place in [`Isa::instructions`](super::Isa::instructions).
    pub index: usize,
    /// Where it can stand.
    pub slot: Slot,
    /// Name of the row.
    pub key: &'static str,
    /// First word of its assembly text.
    pub mnemonic: &'static str,
    /// Its assembly text, with `$name` for operands.
    pub syntax: &'static str,
    /// Which bits are fixed.
    pub mask: u64,
    /// Those bits.
    pub value: u64,
    /// Bits that are 0 in every valid word.
    pub zero: u64,
    /// Bits that are written as 0 and not looked at.
    pub ignored: u64,
    /// Results first.
    pub operands: Vec<Operand>,
    /// Registers it writes that are no operands.
    pub writes: Vec<Register>,
    /// Registers it reads that are no operands.
    pub reads: Vec<Register>,
    /// Its properties.
    pub flags: Flags,
    /// What it does to memory.
    pub access: Option<Access>,
    /// Timing when no choice applies.
    pub(super) timing: u16,
    /// Timings by the registers of operands, the first that applies: pairs of operand and class.
    pub(super) choices: Vec<(Vec<(u8, u16)>, u16)>,
}

impl Instruction {
    /// Whether it does nothing.
    pub fn is_nop(&self) -> bool {
        self.key.starts_with("NOP")
    }

    /// The operand of this name.
    pub fn operand(&self, name: &str) -> Option<usize> {
        self.operands.iter().position(|operand| operand.name == name)
    }
}

/// Indices of the instructions of each slot.
pub(super) type InstructionsBySlot = [Vec<usize>; 8];
