//! What a row does in which cycle, on variables instead of registers.

use super::operation::{Op, Row, Val};
use super::register::{Reg, Variable, part_of};
use aie_isa::{Bypass, Decoded, Direction, Isa, Register, Slot, UnitUse, Value};
use std::collections::HashSet;

/// A leaf of a variable or a register without variable, numbered through.
pub(super) type Leaf = u32;

/// A read or a write of one leaf. Cycle 1 is the cycle of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub leaf: Leaf,
    pub write: bool,
    pub cycle: u8,
    pub bypass: Option<Bypass>,
    /// An unused result.
    pub dead: bool,
}

/// What a row does in which cycle.
#[derive(Clone, Debug)]
pub(super) struct RowTiming {
    pub slot: Slot,
    pub accesses: Vec<Access>,
    pub units: Vec<UnitUse>,
    pub memory_read: Option<u8>,
    pub memory_write: Option<u8>,
    /// The last cycle in which it does anything.
    pub last: u8,
}

/// The variables of a program with the numbers of their leaves.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub isa: &'static Isa,
    pub variables: &'a [Variable],
    /// The first leaf of each variable.
    pub first_leaf: Vec<Leaf>,
    /// Where leaves of registers begin, that are no variables.
    pub registers_from: Leaf,
    /// Registers that instructions write without naming them, and that nothing reads: flags.
    unread: &'a HashSet<Register>,
}

/// Registers that instructions write without naming them, and that nothing reads: flags. Their order does not matter.
pub(super) fn unread<'o>(variables: &[Variable], rows: impl Iterator<Item = &'o Row>) -> HashSet<Register> {
    let (mut written, mut read) = (HashSet::new(), HashSet::new());
    for row in rows {
        written.extend(row.instruction.writes.iter().copied());
        read.extend(row.instruction.reads.iter().copied());
        for (direction, reg) in row.registers() {
            let variable = &variables[reg.variable as usize];
            if direction == Direction::Read && variable.candidates.len() == 1 {
                read.insert(variable.candidates[0]);
            }
        }
    }
    written.difference(&read).copied().collect()
}

impl<'a> Context<'a> {
    pub fn new(isa: &'static Isa, variables: &'a [Variable], unread: &'a HashSet<Register>) -> Self {
        let mut next = 0;
        let first_leaf = variables.iter().map(|variable| {
            let first = next;
            next += Leaf::from(variable.leaves);
            first
        });
        let first_leaf: Vec<Leaf> = first_leaf.collect();
        Self { isa, variables, first_leaf, registers_from: next, unread }
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.registers_from as usize + self.isa.registers().len()
    }

    fn leaves_of(&self, reg: Reg) -> impl Iterator<Item = Leaf> + use<'_, 'a> {
        let variable = &self.variables[reg.variable as usize];
        // A special register may be written by name and read by implication.
        let special = (variable.class == super::Class::Special).then(|| self.leaf_of(variable.candidates[0]));
        let first = self.first_leaf[reg.variable as usize] + Leaf::from(reg.first);
        let range = if special.is_some() { 0..0 } else { first..first + Leaf::from(reg.leaves) };
        special.into_iter().chain(range)
    }

    fn leaf_of(&self, register: Register) -> Leaf {
        self.registers_from + register.index() as Leaf
    }

    /// A row with registers: those that `register` gives for its variables.
    pub fn decoded(&self, row: &Row, register: impl Fn(Reg) -> Option<Register>) -> Option<Decoded<'static>> {
        let values = row.values.iter().map(|value| {
            Some(match value {
                Val::Reg(reg) => Value::Register(register(*reg)?),
                Val::Imm(number) => Value::Immediate(*number),
                Val::Label(_) => Value::Immediate(0),
            })
        });
        Some(Decoded { instruction: row.instruction, values: values.collect::<Option<_>>()? })
    }

    /// The register that stands for a variable until it has one: timing depends on classes only.
    fn example(&self, reg: Reg) -> Option<Register> {
        let variable = &self.variables[reg.variable as usize];
        part_of(self.isa, *variable.candidates.first()?, reg.first, reg.leaves)
    }

    /// What a row does when. None for a variable that has no register at all.
    pub fn timing(&self, row: &Row) -> Option<RowTiming> {
        let decoded = self.decoded(row, |reg| self.example(reg))?;
        let timed = self.isa.timing(&decoded);
        let mut accesses = Vec::new();
        for port in timed.registers() {
            let (write, cycle, bypass) = (port.direction == Direction::Write, port.cycle, port.bypass);
            match port.operand.map(|operand| row.values[operand]) {
                Some(Val::Reg(reg)) => {
                    accesses.extend(self.leaves_of(reg).map(|leaf| Access { leaf, write, cycle, bypass, dead: false }));
                }
                Some(_) => {}
                None if self.unread.contains(&port.register) => {}
                None => accesses.push(Access { leaf: self.leaf_of(port.register), write, cycle, bypass, dead: false }),
            }
        }
        let timing = timed.timing();
        let (units, memory_read, memory_write) = (timing.units.clone(), timing.memory_read, timing.memory_write);
        let cycles = accesses.iter().map(|access| access.cycle).chain(units.iter().map(|unit| unit.last));
        let last = cycles.chain(memory_read).chain(memory_write).max().unwrap_or(1).max(1);
        Some(RowTiming { slot: row.instruction.slot, accesses, units, memory_read, memory_write, last })
    }

    /// The timings of all rows of an operation.
    pub fn timings(&self, op: &Op) -> Option<Vec<RowTiming>> {
        let dead: Vec<Leaf> =
            op.dead.iter().map(|(variable, leaf)| self.first_leaf[*variable as usize] + Leaf::from(*leaf)).collect();
        let mut timings: Vec<RowTiming> = op.rows.iter().map(|row| self.timing(row)).collect::<Option<_>>()?;
        for access in timings.iter_mut().flat_map(|timing| &mut timing.accesses) {
            access.dead = access.write && dead.contains(&access.leaf);
        }
        Some(timings)
    }
}
