//! SSM_CONV and SSM_SCAN: the two steps of state-space models.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
