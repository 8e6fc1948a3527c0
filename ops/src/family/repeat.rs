//! REPEAT: a tensor repeated to larger extents.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
