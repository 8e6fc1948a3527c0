//! Loops and conditions, as the author wrote them: what [`CoreBuilder`](super::CoreBuilder) collects.

use super::operation::{Op, RegOrImm};
use super::register::Reg;
use aie_hal::Arch;
use std::borrow::Cow;

/// What repeats innermost loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoopForm {
    /// The core's loop registers (LS, LE, LC): no instruction of the body repeats it.
    #[default]
    Hardware,
    /// A counter in a scalar register, and JNZ in the body, whose last five bundles are its delay slots. An iteration of the schedule
    /// takes at least six cycles; nothing uses the loop registers.
    Jnz,
}

impl LoopForm {
    /// The form for programs of a generation.
    #[must_use]
    pub fn of(arch: &Arch) -> Self {
        if arch.hardware_loops { Self::Hardware } else { Self::Jnz }
    }

    /// A generation whose programs have this form.
    #[must_use]
    pub fn on(self, arch: &Arch) -> Cow<'_, Arch> {
        match self {
            Self::Jnz if arch.hardware_loops => Cow::Owned(Arch { hardware_loops: false, ..arch.clone() }),
            _ => Cow::Borrowed(arch),
        }
    }
}

/// How often a loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub(super) value: RegOrImm,
    pub(super) at_least: u32,
    pub(super) multiple_of: u32,
    pub(super) in_turn: bool,
}

impl Count {
    /// The author guarantees that the count is never below this. A loop that may run zero times is guarded by a branch; one
    /// that may run fewer times than its iterations overlap is there twice.
    #[must_use]
    pub fn at_least(self, count: u32) -> Self {
        Self { at_least: self.at_least.max(count), ..self }
    }

    /// The author guarantees that the count is a multiple of this, so that the scheduler may unroll.
    #[must_use]
    pub fn multiple_of(self, factor: u32) -> Self {
        Self { multiple_of: factor.max(1), ..self }
    }

    /// Iterations run one after the other, whatever the scheduling of the program: for bodies of so many operations that they
    /// fill the slots by themselves, while looking for an overlap would take long.
    #[must_use]
    pub fn in_turn(self) -> Self {
        Self { in_turn: true, ..self }
    }
}

impl From<u32> for Count {
    fn from(count: u32) -> Self {
        Self { value: count.into(), at_least: count, multiple_of: count.max(1), in_turn: false }
    }
}

impl From<Reg> for Count {
    /// A count in a scalar register, taken as unsigned below 2^31. It is read once, before the first iteration.
    fn from(count: Reg) -> Self {
        Self { value: count.into(), at_least: 0, multiple_of: 1, in_turn: false }
    }
}

/// A program as the author wrote it.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Op(Op),
    /// Runs its body a number of times.
    Repeat {
        name: Option<String>,
        count: Count,
        body: Vec<Node>,
    },
    /// Runs its body and again as long as the register is not zero.
    While {
        condition: Reg,
        body: Vec<Node>,
    },
    If {
        condition: Reg,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Forever(Vec<Node>),
}
