//! Nothing of its own: the programs are `concurrent.rs`, `dispatch.rs` and `null_driver.rs`.
#![forbid(unsafe_code)]
