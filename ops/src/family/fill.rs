//! FILL and ARANGE: results that depend on no tensor.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
