//! From bytes to bundles: the length, the format, and the instruction of each slot.

use crate::{Format, Instruction, InstructionSet, Isa, Kind, MOST_OPERANDS, Part, Register, Slot};
use arrayvec::ArrayVec;

/// The value of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A register.
    Register(Register),
    /// A number, scaled.
    Immediate(i64),
}

impl Value {
    /// The register, if it is one.
    pub fn register(self) -> Option<Register> {
        match self {
            Self::Register(register) => Some(register),
            Self::Immediate(_) => None,
        }
    }
}

/// The values of all operands of an instruction, tied and implied ones included, in the order of
/// [`Instruction::operands`].
pub type Values = ArrayVec<Value, MOST_OPERANDS>;

/// An instruction with its operands.
#[derive(Clone, Debug)]
pub struct Decoded<'a> {
    /// The instruction.
    pub instruction: &'a Instruction,
    /// Its operands.
    pub values: Values,
}

/// What issues in one cycle.
#[derive(Clone, Debug)]
pub struct Bundle<'a> {
    /// How it is written.
    pub format: &'a Format,
    /// The instructions, in the order of the format; `nop`s included.
    pub slots: ArrayVec<Decoded<'a>, 8>,
}

impl<'a> Bundle<'a> {
    /// The instructions that do something.
    pub fn instructions(&self) -> impl Iterator<Item = &Decoded<'a>> {
        self.slots.iter().filter(|decoded| !decoded.instruction.is_nop())
    }
}

/// Bytes that are no bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The program ends within the bundle.
    #[error("a bundle of {needed} bytes is cut off after {available}")]
    Truncated {
        /// The bundle's length.
        needed: usize,
        /// What is there.
        available: usize,
    },
    /// No format has these fixed bits.
    #[error("no bundle format of {isa} fits the {bytes} bytes {word:#x}")]
    Format {
        /// The instruction set.
        isa: &'static str,
        /// The bundle's length.
        bytes: usize,
        /// The bundle.
        word: u128,
    },
    /// No instruction of the slot fits.
    #[error("no {slot} instruction of {isa} fits the word {word:#x}")]
    Instruction {
        /// The instruction set.
        isa: &'static str,
        /// The slot.
        slot: Slot,
        /// Its word.
        word: u64,
    },
}

impl Isa {
    /// The length of a bundle in bytes, from its first byte.
    pub fn bundle_bytes(&self, first: u8) -> usize {
        // The generations number the sizes alike, but for the lowest bit.
        let low = match self.set() {
            InstructionSet::Aie2 => 0,
            InstructionSet::Aie2p => 1,
        };
        match (first & 0xf) ^ low {
            1 => 2,
            9 => 4,
            5 | 13 => 6,
            3 => 8,
            11 => 10,
            7 => 12,
            15 => 14,
            _ => 16,
        }
    }

    /// Decodes the bundle at the start of `code`, which may continue behind it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when there is no such bundle, or `code` ends within it.
    pub fn decode(&self, code: &[u8]) -> Result<Bundle<'_>, DecodeError> {
        let needed = code.first().map_or(1, |first| self.bundle_bytes(*first));
        let Some(bytes) = code.get(..needed) else {
            return Err(DecodeError::Truncated { needed, available: code.len() });
        };
        let word = bytes.iter().rev().fold(0u128, |word, byte| word << 8 | u128::from(*byte));
        let format = self.formats(needed as u32 * 8).iter().find(|format| word & format.mask == format.value);
        let format = format.ok_or(DecodeError::Format { isa: self.name(), bytes: needed, word })?;
        let mut slots = ArrayVec::new();
        for (slot, high, low) in &format.slots {
            let word = (word >> low) as u64 & ((1 << (high - low + 1)) - 1);
            slots.push(self.decode_slot(*slot, word)?);
        }
        Ok(Bundle { format, slots })
    }

    /// Decodes the word of one slot.
    ///
    /// A word fits an instruction if its fixed bits agree and every register field names a register of its class. Numbers that
    /// are only aliases, and filler bits that are not zero, count when nothing else fits.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Instruction`] when no row fits.
    pub fn decode_slot(&self, slot: Slot, word: u64) -> Result<Decoded<'_>, DecodeError> {
        for (aliases, filler) in [(false, false), (true, false), (true, true)] {
            for instruction in self.instructions_of(slot) {
                let fillers = if filler { 0 } else { instruction.zero | instruction.ignored };
                if word & instruction.mask == instruction.value
                    && word & fillers == 0
                    && let Some(values) = self.values(instruction, word, aliases)
                {
                    return Ok(Decoded { instruction, values });
                }
            }
        }
        Err(DecodeError::Instruction { isa: self.name(), slot, word })
    }

    fn values(&self, instruction: &Instruction, word: u64, aliases: bool) -> Option<Values> {
        let mut values = Values::new();
        for operand in &instruction.operands {
            values.push(match operand.kind {
                Kind::Class(class) => {
                    let (class, number) = (self.class(class), operand.field(word) as u32);
                    let alias = || class.alias(number).filter(|_| aliases);
                    Value::Register(class.register(number).or_else(alias)?)
                }
                Kind::Immediate(immediate) => Value::Immediate(immediate.value(operand.field(word))),
                Kind::Fixed(register) => Value::Register(register),
                // Its operand may stand behind it.
                Kind::Tied { .. } => Value::Immediate(0),
            });
        }
        self.tie(instruction, &mut values)?;
        Some(values)
    }

    /// Fills in the operands that others give.
    pub(crate) fn tie(&self, instruction: &Instruction, values: &mut Values) -> Option<()> {
        for (index, operand) in instruction.operands.iter().enumerate() {
            if let Kind::Tied { operand, part } = operand.kind {
                let register = values.get(usize::from(operand))?.register()?;
                values[index] = Value::Register(self.part(register, part)?);
            }
        }
        Some(())
    }

    /// The register that a part of another stands for.
    fn part(&self, register: Register, part: Part) -> Option<Register> {
        // A modifier is m, dn, dj, dc; a 3D modifier is two of them.
        const COUNTER: usize = 3;
        match part {
            Part::Whole => Some(register),
            Part::Counter(None) => self.register(register).parts.get(COUNTER).copied(),
            Part::Counter(Some(half)) => {
                let modifier = self.register(register).parts.get(usize::from(half))?;
                self.register(*modifier).parts.get(COUNTER).copied()
            }
            Part::LoadFifo => self.of_pointer(register, ["lf0", "lf1"]),
            Part::FifoPosition => self.of_pointer(register, ["r24", "r25"]),
        }
    }

    /// The register that belongs to one of the two pointers with a load fifo.
    fn of_pointer(&self, pointer: Register, names: [&str; 2]) -> Option<Register> {
        let number = ["p0", "p1"].iter().position(|name| *name == self.register(pointer).name)?;
        self.register_named(names[number])
    }
}
