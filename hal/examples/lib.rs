//! Nothing of its own: the programs are `dispatch.rs` and `null_driver.rs`.
#![forbid(unsafe_code)]
