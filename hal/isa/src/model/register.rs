//! Registers, what they are parts of, and the classes that give them numbers in instruction words.

use std::collections::HashMap;

/// A register, by its place in [`Isa::registers`](super::Isa::registers). Only valid with the instruction set it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub(super) u16);

impl Register {
    /// Its place in the instruction set's list.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What a register is.
#[derive(Debug)]
pub struct RegisterInfo {
    /// As in the tables: `r0`, `wl3`, `crSat`.
    pub name: &'static str,
    /// Its size.
    pub bits: u32,
    /// The registers it consists of, the one with the lowest bits first. Empty for one that consists of no others.
    pub parts: Vec<Register>,
    /// The registers without parts it consists of, lowest bits first; itself if it has none.
    pub leaves: Vec<Register>,
}

/// A set of registers, and the numbers they have in a field of an instruction word.
#[derive(Debug)]
pub struct RegisterClass {
    /// As in the tables: `eR`, `mLdaScl`.
    pub name: &'static str,
    /// Width of the field; 0 for a class that only chooses timings.
    pub bits: u32,
    /// By number; a number without a register makes the word another instruction, or none.
    pub(super) registers: Vec<Option<Register>>,
    /// Further numbers that the hardware is believed to read as these registers; never written.
    pub(super) aliases: HashMap<u32, Register>,
    pub(super) numbers: HashMap<Register, u32>,
}

impl RegisterClass {
    /// The register with this number.
    pub fn register(&self, number: u32) -> Option<Register> {
        self.registers.get(number as usize).copied().flatten()
    }

    /// The register that an alias of its number stands for.
    pub fn alias(&self, number: u32) -> Option<Register> {
        self.aliases.get(&number).copied()
    }

    /// The number with which a register is written.
    pub fn number(&self, register: Register) -> Option<u32> {
        self.numbers.get(&register).copied()
    }

    /// Whether the class has this register.
    pub fn contains(&self, register: Register) -> bool {
        self.numbers.contains_key(&register)
    }

    /// All registers of the class, by number.
    pub fn members(&self) -> impl Iterator<Item = Register> + '_ {
        self.registers.iter().filter_map(|register| *register)
    }
}
