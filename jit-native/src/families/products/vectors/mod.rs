//! Functions of elements and of rows for decoded tokens, by the machine that multiplies their columns.
//!
//! What a token computes between two products is small: sums, norms, gates. The families of [elements and rows](crate::families::elements)
//! have programs of their own for these, so that PDIs would alternate. The machine for decoded tokens therefore has their functions and does lists of
//! their steps ([`Step`](crate::families::elements::step::Step)), with the array of products:
//!
//! - *Elements* are cut into a slice for each core. Slices of both operands go the way of weights, one behind the other.
//! - *Rows* of norms are dealt over the columns. All cores of a column get the whole row, the way columns of products go, and
//!   each computes its sums, which takes as long as one core would need. Then each makes its slice of the result, for which a
//!   slice of the weights comes to it.
//!
//! ggml may give a result the memory of its source. A core reads its slices before it writes; a row goes to one column only,
//! whose cores begin when all of it has come.
//!
//! Larger nodes, other types, and operands that repeat within a row are left to those families.

mod build;
mod cases;
mod dispatch;
pub(super) mod program;
#[cfg(test)]
mod tests;

use super::machine::INSTRUCTION_SETS;
use crate::kit::Family;

/// The family.
pub static FAMILY: Family = Family {
    name: build::NAME,
    operations: build::OPERATIONS,
    instruction_sets: INSTRUCTION_SETS,
    cases: cases::cases,
    build: build::build,
};
