//! The functions of the C interface. A library gets its symbols from [`library!`](crate::library), which forwards to them.
//!
//! Each takes what `hsa.h` and `hsa_ext_amd.h` say. Handles that name nothing give an error, or do nothing where a function
//! has no status.

mod memory;
mod queue;
mod signal;
mod system;

pub use memory::*;
pub use queue::*;
pub use signal::*;
pub use system::*;

use hsa_sys::*;
use std::ffi::c_void;

/// Writes an answer where the program wants it.
///
/// # Safety
/// `target` is null or has room for a `T`, at any alignment.
unsafe fn answer<T>(target: *mut c_void, value: T) -> hsa_status_t {
    if target.is_null() {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: Not null, and with room for a `T`, as the caller promises.
    unsafe { target.cast::<T>().write_unaligned(value) };
    HSA_STATUS_SUCCESS
}

/// A zero-terminated text in an array of `N` bytes; cut if it is longer.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (target, byte) in bytes.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *target = byte;
    }
    bytes
}
