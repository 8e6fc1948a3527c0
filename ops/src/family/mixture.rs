//! MUL_MAT_ID and ADD_ID: mixtures of experts.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
