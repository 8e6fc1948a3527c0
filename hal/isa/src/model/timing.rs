//! When operands are read and written, and which hardware an instruction occupies.
//!
//! Cycle 1 is the cycle of issue; one bundle issues per cycle unless the core stalls. Nothing interlocks: a value written in
//! cycle W of an instruction is seen by a read in cycle R of a later one if that issues at least W - R + 1 cycles later (one
//! less over a bypass that both ends share); an earlier reader gets the old value, and compiled code relies on it.

use super::Direction;

/// A forwarding network that shortens the distance between two operands that take part in it by one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// Results of the mv slot into its operands.
    Move,
    /// Integer accumulators from one multiply-accumulate into the next.
    Vector,
}

/// When one operand, or one register that no operand names, is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// Read or written.
    pub direction: Direction,
    /// The cycle.
    pub cycle: u8,
    /// The network it takes part in.
    pub bypass: Option<Bypass>,
}

/// Hardware that only one instruction can use in a cycle.
#[derive(Debug)]
pub struct Unit {
    /// As in the tables.
    pub name: &'static str,
    /// What is known of it.
    pub about: &'static str,
}

/// A unit that an instruction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitUse {
    /// Index into [`Isa::units`](super::Isa::units).
    pub unit: u16,
    /// First cycle.
    pub first: u8,
    /// Last cycle.
    pub last: u8,
    /// Only keeps others from using the unit: two weak holds do not exclude each other.
    pub weak: bool,
}

/// The timing of an instruction with its registers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// For each operand of the instruction, then for the registers it writes, then for those it reads.
    pub ports: Vec<Port>,
    /// What it occupies.
    pub units: Vec<UnitUse>,
    /// The cycle in which data memory is read.
    pub memory_read: Option<u8>,
    /// The cycle in which data memory is written.
    pub memory_write: Option<u8>,
}
