//! What a call of the kernel driver says when it fails.

use amdxdna_sys::{Request, amdxdna_drm_create_bo};
use std::io;

/// A kernel call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {cause}")]
pub struct CallError {
    /// Its name.
    pub call: &'static str,
    /// The kernel's error.
    #[source]
    pub cause: io::Error,
}

impl CallError {
    /// The error number; 0 when there is none.
    pub fn errno(&self) -> i32 {
        self.cause.raw_os_error().unwrap_or_default()
    }

    /// Whether there was no memory, or no part of the heap, for the request.
    pub fn is_no_memory(&self) -> bool {
        match self.errno() {
            libc::ENOMEM | libc::ENOSPC | libc::EPERM | libc::EMFILE | libc::ENFILE => true,
            // Since Linux 7.2 heaps can grow, and a full one asks for the next.
            libc::EAGAIN => self.call == amdxdna_drm_create_bo::NAME,
            _ => false,
        }
    }

    /// Whether the device behind the node is gone.
    pub fn is_lost(&self) -> bool {
        matches!(self.errno(), libc::ENODEV | libc::ENXIO | libc::EIO)
    }
}
