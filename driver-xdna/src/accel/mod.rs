//! The amdxdna kernel driver's interface, as far as the drivers above use it: every `ioctl` of this crate is made here.
//!
//! The direct route ([`crate::direct`]) uses it on an accel node of its own, the route through ROCR 7.0 to 7.2 (the crate
//! `aie-driver-rocr`) on the node that ROCR has opened; what is public here is for that one.
//!
//! - [`call_error`]: a call that failed.
//! - [`node`]: an open accel node, typed requests, mappings.
//! - [`bo`]: buffer objects and their three addresses.
//! - [`context`]: creating and destroying hardware contexts.
//! - [`command_buffer`]: how a chain and its commands are packed, and how a chain ended.
//! - [`device`]: what errors of the kernel driver mean.
//! - [`completion`]: waiting for a submission, by whichever method this kernel has.
//! - `holders`: which programs have contexts, when there is no further one.
//! - [`probe`]: finds that method with a dispatch that does nothing.
//! - `recorder`: takes down the calls of a node, for a bug report.

pub mod bo;
pub mod call_error;
pub mod command_buffer;
pub mod completion;
pub mod context;
pub mod device;
pub(crate) mod holders;
pub mod node;
pub mod probe;
pub(crate) mod recorder;
