//! SUM, SUM_ROWS, MEAN, CUMSUM, ARGMAX and COUNT_EQUAL: many elements become few.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
