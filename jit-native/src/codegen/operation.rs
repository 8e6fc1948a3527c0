//! One instruction of a program with variables, before it has registers, a slot and a cycle.

use super::register::{AliasRegion, Reg};
use aie_isa::{Direction, Instruction, Kind};

/// An operand as an author gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegOrImm {
    /// A variable.
    Reg(Reg),
    /// A number.
    Imm(i64),
}

impl From<Reg> for RegOrImm {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

macro_rules! number {
    ($($type:ty)*) => {
        $(impl From<$type> for RegOrImm {
            fn from(number: $type) -> Self {
                Self::Imm(number.into())
            }
        })*
    };
}
number!(i32 u32 i64 u8);

/// A place of the program: the start of a block, or the last bundle of a loop's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Label {
    Block(usize),
    LastBundleOf(usize),
}

/// The value of an operand of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Val {
    Reg(Reg),
    Imm(i64),
    Label(Label),
}

/// A row of the instruction table with its operands.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub instruction: &'static Instruction,
    pub values: Vec<Val>,
}

/// How an operation is ordered with memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Not at all.
    None,
    /// Reads memory of a region; None: of any.
    Load(Option<AliasRegion>),
    /// Writes memory of a region.
    Store(Option<AliasRegion>),
    /// Acquires a lock: what follows comes after it.
    Acquire,
    /// Releases a lock: what comes before is finished.
    Release,
    /// Streams, cascade, events: ordered among themselves and with locks.
    Ordered,
    /// The end.
    Done,
}

/// An operation: one of several rows that do the same in different slots.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub rows: Vec<Row>,
    pub effect: Effect,
    /// Leaves of variables that it writes and that are not read.
    pub dead: Vec<(u32, u8)>,
}

impl Op {
    /// The variables' parts it reads or writes, operand by operand. Registers that no operand names are not among them.
    pub fn registers(&self) -> impl Iterator<Item = (Direction, Reg)> + '_ {
        self.rows[0].registers()
    }
}

impl Row {
    /// The variables' parts it reads or writes.
    pub fn registers(&self) -> impl Iterator<Item = (Direction, Reg)> + '_ {
        self.instruction.operands.iter().zip(&self.values).filter_map(|(operand, value)| match value {
            Val::Reg(reg) => Some((operand.direction, *reg)),
            _ => None,
        })
    }
}

/// The operands of a row that an author gives: those that the syntax names, in its order, then implied ones it does not name.
pub(super) fn given(instruction: &Instruction) -> Vec<usize> {
    let mut order = Vec::new();
    let mut rest = instruction.syntax;
    while let Some((_, after)) = rest.split_once('$') {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        if let Some(index) = instruction.operand(&after[..end]) {
            order.push(index);
        }
        rest = &after[end..];
    }
    for (index, operand) in instruction.operands.iter().enumerate() {
        if matches!(operand.kind, Kind::Fixed(_)) && !order.contains(&index) {
            order.push(index);
        }
    }
    order
}
