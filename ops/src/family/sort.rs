//! ARGSORT and TOP_K: the order of the elements of a row.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
