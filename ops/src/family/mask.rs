//! DIAG_MASK_INF and TRI: triangles of matrices.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
