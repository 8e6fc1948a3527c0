//! The accel node: what the amdxdna kernel driver does, on plain structures.
//!
//! A [`Device`] is one NPU; a [`File`] is one `open` of its node, with handles, a device heap and contexts of its own. Calls
//! are functions on these, with structures of [`amdxdna_sys`] as arguments, and so can be tested without any preloading.
//! [`ioctl`] is the layer that reads and writes the caller's memory.
//!
//! # Fidelity
//! The order of checks and the error codes are those of the kernel driver; what differs from kernel to kernel is in
//! [`kernel`](crate::kernel). Deliberate differences:
//! - SYNC_BO of older kernels rejects a range outside of its BO, which they would follow.
//! - Contexts are those that the hardware holds at one time, although `legacy` swaps more in and out on aie2p.
//!
//! As in the kernel, a submission is accepted before its commands are read. A chain that then turns out to be malformed, or too
//! long for the 4 KiB chain buffer, is dropped: EXEC_CMD and the wait report success, and its state stays NEW. The reason is
//! in the log and in the report.

mod bo;
mod chain;
mod completion;
mod create_bo;
mod descriptors;
mod device;
mod exec_cmd;
mod execution;
mod fence;
mod file;
mod get_info;
mod handles;
mod heap;
mod hwctx;
pub mod ioctl;
mod jobs;
mod mappings;
mod sync_bo;
mod syncobj;
mod syncobj_ioctl;
#[cfg(test)]
mod tests;
mod user_memory;
mod wakeup;
mod worker;

pub use bo::Kind;
pub use descriptors::{Descriptors, Open};
pub use device::Device;
pub use file::File;
pub use mappings::{MapRequest, Mappings};
