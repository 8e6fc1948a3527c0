//! FLASH_ATTN_EXT: attention in one operation.

use crate::operation::Operation;

/// The operations of this family.
pub static OPERATIONS: &[&dyn Operation] = &[];
