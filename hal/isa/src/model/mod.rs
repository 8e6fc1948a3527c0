//! What an instruction set is made of, and the reader of its tables.
//!
//! The build script includes this module to check the tables; nothing in it may name the crate.

mod format;
mod instruction;
mod instruction_set;
mod load;
mod register;
mod timing;

pub use format::{Format, Slot};
pub use instruction::{Access, Direction, Extension, Flags, Form, Immediate, Instruction, Kind, Operand, Part};
pub use instruction_set::{Errata, InstructionSet};
pub use load::{AIE2, AIE2P, TableError, Tables};
pub use register::{Register, RegisterClass, RegisterInfo};
pub use timing::{Bypass, Port, Timing, Unit, UnitUse};

use format::FormatsBySize;
use instruction::InstructionsBySlot;
use std::collections::HashMap;

/// The most operands that an instruction has, tied ones included.
pub const MOST_OPERANDS: usize = 10;

/// One instruction set: bundle formats, instructions, registers and timing.
///
/// Made once from the tables and never changed; it can be shared between threads.
#[derive(Debug)]
pub struct Isa {
    set: InstructionSet,
    formats: FormatsBySize,
    instructions: Vec<Instruction>,
    by_slot: InstructionsBySlot,
    by_mnemonic: HashMap<&'static str, Vec<usize>>,
    registers: Vec<RegisterInfo>,
    register_names: HashMap<&'static str, Register>,
    classes: Vec<RegisterClass>,
    units: Vec<Unit>,
    timings: Vec<Timing>,
}

impl Isa {
    /// Its name, as `instruction_set` in `hal`'s arch files: `aie2`, `aie2p`.
    pub fn name(&self) -> &'static str {
        self.set.name()
    }

    /// Which instruction set it is.
    pub fn set(&self) -> InstructionSet {
        self.set
    }

    /// The same instruction set with other timings: for tests which show that programs depend on them. Widths, encodings and
    /// the order of ports stay.
    #[must_use]
    pub fn with_timings(mut self, change: impl FnMut(&mut Timing)) -> Self {
        self.timings.iter_mut().for_each(change);
        self
    }

    /// All instructions, one for each row of the table.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The instructions of one slot, in the order of the table.
    pub fn instructions_of(&self, slot: Slot) -> impl Iterator<Item = &Instruction> {
        self.by_slot[slot as usize].iter().map(|index| &self.instructions[*index])
    }

    /// The instructions that a mnemonic of assembly text may mean.
    pub fn instructions_named(&self, mnemonic: &str) -> impl Iterator<Item = &Instruction> {
        self.by_mnemonic.get(mnemonic).into_iter().flatten().map(|index| &self.instructions[*index])
    }

    /// The instruction with this key, the name of its row.
    pub fn instruction(&self, key: &str) -> Option<&Instruction> {
        self.instructions.iter().find(|instruction| instruction.key == key)
    }

    /// The bundle formats of one size.
    ///
    /// `bits`: 16 to 128.
    pub fn formats(&self, bits: u32) -> &[Format] {
        self.formats.get(bits as usize / 16).map_or(&[], Vec::as_slice)
    }

    /// All bundle formats, short ones first.
    pub fn all_formats(&self) -> impl Iterator<Item = &Format> {
        self.formats.iter().flatten()
    }

    /// All registers; a [`Register`] is an index into them.
    pub fn registers(&self) -> &[RegisterInfo] {
        &self.registers
    }

    /// What a register of this instruction set is.
    pub fn register(&self, register: Register) -> &RegisterInfo {
        &self.registers[register.index()]
    }

    /// The register of this name, as the tables spell it.
    pub fn register_named(&self, name: &str) -> Option<Register> {
        self.register_names.get(name).copied()
    }

    /// The class of this index, as a [`Kind::Class`] holds it.
    pub fn class(&self, index: u16) -> &RegisterClass {
        &self.classes[usize::from(index)]
    }

    /// Hardware that an instruction occupies alone for some cycles; [`UnitUse::unit`] is an index into them.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The timing of an instruction with these registers: that of the first choice whose classes have them, or else its own.
    pub(crate) fn timing_with(
        &self,
        instruction: &Instruction,
        register: impl Fn(usize) -> Option<Register>,
    ) -> &Timing {
        let fits = |(operand, class): &(u8, u16)| {
            register(usize::from(*operand)).is_some_and(|register| self.class(*class).contains(register))
        };
        let choice = instruction.choices.iter().find(|(conditions, _)| conditions.iter().all(fits));
        &self.timings[usize::from(choice.map_or(instruction.timing, |(_, timing)| *timing))]
    }
}
