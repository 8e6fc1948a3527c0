//! CROSS_ENTROPY_LOSS.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
