//! The commands, one file each.

pub mod backend_ops;
pub mod testbed;
