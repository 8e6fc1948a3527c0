//! GATED_DELTA_NET: the recurrent state of gated delta networks.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
