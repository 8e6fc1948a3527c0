//! The commands, one file each.

pub mod backend_ops;
pub mod demo;
pub mod kld;
pub mod testbed;
