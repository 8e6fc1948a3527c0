//! PAD: a border around a tensor.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
