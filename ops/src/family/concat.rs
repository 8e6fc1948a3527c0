//! CONCAT: two tensors joined along one dimension.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
