//! The dataflow that a program was made for, as its author records it, and whether the program has it.
//!
//! A scheduler moves instructions, copies those of a loop in front of it and behind it, and lets reads come before writes on
//! purpose. The finished program alone cannot say whether an old value is meant. So a scheduler may record, for each instruction
//! that it has placed, which instruction of its source it is, in which iteration, and which instructions of the source give
//! each operand its value. The checker then shows, on all paths, that every recorded read gets the value of such an instruction,
//! and of the right iteration.
//!
//! Iterations are counted relative to the pass of the loop's body that is being executed: in a body of `n` stages, an instruction
//! of stage `s` belongs to iteration `n - 1 - s`; a copy in front of the loop belongs to the iteration as seen from the first
//! pass, one behind the loop as seen from the last.

use super::code::{Code, Port};
use super::history::{History, Source};
use aie_isa::{Register, Slot};
use std::collections::BTreeMap;

/// The iteration of what an earlier run of the loop has left behind.
pub(super) const STALE: i8 = i8::MIN;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// By the address of the bundle, and the slot.
    pub instructions: BTreeMap<(u32, Slot), Intended>,
    /// Loops in which iterations are counted.
    pub loops: Vec<IntendedLoop>,
}

/// A loop whose instructions belong to iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntendedLoop {
    /// The first bundle with an instruction of the loop: that of the copies in front of it, if there are any.
    pub start: u32,
    /// The first bundle of the body.
    pub body: u32,
    /// The last bundle of the body: control goes from there to `body` for the next pass.
    pub last: u32,
}

/// What a placed instruction is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intended {
    /// The instruction of the source that it is; any numbering.
    pub source: u32,
    /// The loop in [`Intent::loops`] that it belongs to, and the iteration.
    pub iteration: Option<(u16, i8)>,
    /// Where operands get their values. Operands that are not here are not checked.
    pub reads: Vec<IntendedRead>,
}

/// Where an operand gets its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntendedRead {
    /// The operand.
    pub operand: ReadOperand,
    /// All instructions that may give it. Several where paths meet, and where they give parts of a register.
    pub from: Vec<Origin>,
}

/// An operand that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOperand {
    /// By its place in [`aie_isa::Instruction::operands`].
    Operand(u8),
    /// A register that the instruction implies.
    Implied(Register),
}

/// An instruction that gives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The instruction of the source.
    pub source: u32,
    /// How many iterations earlier, if both belong to the same loop; None if any will do.
    pub distance: Option<i8>,
}

/// What an edge does to iterations of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// The next pass begins.
    Next(u16),
    /// The loop is entered.
    Enter(u16),
}

impl Intent {
    /// What going from one bundle to another does to the iterations of loops.
    pub(super) fn edge(&self, from: u32, to: u32) -> Vec<Shift> {
        let shift = |(index, this): (usize, &IntendedLoop)| {
            if (from, to) == (this.last, this.body) {
                Some(Shift::Next(index as u16))
            } else {
                (to == this.start).then_some(Shift::Enter(index as u16))
            }
        };
        self.loops.iter().enumerate().filter_map(shift).collect()
    }

    pub(super) fn intended(&self, code: &Code<'_>, port: &Port) -> Option<&Intended> {
        let slot = code.instruction(port).instruction.slot;
        self.instructions.get(&(code.bundles[port.bundle as usize].address, slot))
    }

    /// The iteration of the instruction with a port.
    pub(super) fn iteration(&self, code: &Code<'_>, port: &Port) -> i8 {
        self.intended(code, port).and_then(|intended| intended.iteration).map_or(0, |(_, iteration)| iteration)
    }

    /// The loop of the instruction with a port.
    pub(super) fn loop_of(&self, code: &Code<'_>, port: u32) -> Option<u16> {
        let intended = self.intended(code, &code.ports[port as usize])?;
        intended.iteration.map(|(index, _)| index)
    }
}

impl History {
    /// The same after an edge that changes the iterations of loops.
    pub(super) fn shifted(&self, shifts: &[Shift], loop_of: impl Fn(u32) -> Option<u16>) -> Self {
        let iteration = |port: u32, iteration: i8| {
            let index = loop_of(port);
            shifts.iter().fold(iteration, |iteration, shift| match shift {
                Shift::Next(this) if Some(*this) == index && iteration != STALE => {
                    iteration.saturating_sub(1).max(STALE + 1)
                }
                Shift::Enter(this) if Some(*this) == index => STALE,
                _ => iteration,
            })
        };
        let source = |source: Source| match source {
            Source::Port(port, of) => Source::Port(port, iteration(port, of)),
            other => other,
        };
        let mut shifted = self.clone();
        shifted.holds = source(shifted.holds);
        for write in &mut shifted.writes {
            write.source = source(write.source);
        }
        for read in &mut shifted.reads {
            read.iteration = iteration(read.port, read.iteration);
            read.missed = read.missed.map(source);
        }
        shifted
    }
}
