//! Operations on elements and on rows, with three programs, and so three PDIs, for all of them.
//!
//! Each column has one core (see [`crate::array::Elements`] for the array). What it does with a tile is a list of [`step::Step`]s in its
//! parameters ([`program`]), each with one of the program's [`functions`]; where tiles come from and go to is a [`walk::Walk`]
//! through the tensors, which is dealt over the columns. [`elementwise`], [`rows`] and [`rope`] say for each operation what its steps
//! and its walk are.

mod blocks;
pub(super) mod cases;
mod compute;
pub mod dispatch;
pub mod elementwise;
pub mod format;
pub mod functions;
mod long_rows;
mod operands;
pub mod program;
mod repetition;
pub mod rope;
pub mod rotation;
pub mod rows;
pub(super) mod scores;
pub mod step;
mod tensors;
pub mod walk;

#[cfg(test)]
mod tests;

use crate::kit::Family;
use aie_isa::InstructionSet;

/// Functions of elements.
pub static ELEMENTWISE: Family = Family {
    name: elementwise::NAME,
    operations: elementwise::OPERATIONS,
    instruction_sets: &InstructionSet::ALL,
    cases: cases::elementwise,
    build: elementwise::build,
};

/// Norms and softmax.
pub static ROWS: Family = Family {
    name: rows::NAME,
    operations: rows::OPERATIONS,
    instruction_sets: &InstructionSet::ALL,
    cases: cases::rows,
    build: rows::build,
};

/// Rotations.
pub static ROPE: Family = Family {
    name: rope::NAME,
    operations: &["ROPE"],
    instruction_sets: &InstructionSet::ALL,
    cases: cases::rope,
    build: rope::build,
};
