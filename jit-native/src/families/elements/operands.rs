//! What the functions of a step work on.

use super::functions::{Form, Function};
use crate::codegen::{Count, Reg};

/// What the functions of a step have: pointers that move by modifiers, the number of iterations, constants.
pub(super) struct Operands {
    pub first: (Reg, Reg),
    pub second: (Reg, Reg),
    pub target: (Reg, Reg),
    /// What the target has, for the function that leaves some of it.
    pub present: Reg,
    pub vectors: Reg,
    pub constants: [Reg; 4],
    /// The functions whose iterations overlap, if their form says so.
    pub overlapping: &'static [Function],
}

impl Operands {
    /// The count of the loop of a function.
    pub(super) fn count(&self, function: Function) -> Count {
        let count = Count::from(self.vectors).at_least(1);
        match function.form() {
            Form::Overlapped | Form::OverlappedTwins if self.overlapping.contains(&function) => count,
            _ => count.in_turn(),
        }
    }
}
