//! The device heap as a descriptor, for a process that is served by this one.
//!
//! A part of the heap cannot be exported: the kernel driver gives it no pages of its own. The heap as a whole can, and ROCR makes it
//! when it opens the node, so the gate has to be in place before `hsa_init` to learn its handle. ROCR exports data memory
//! itself (`hsa_amd_portable_export_dmabuf`).

use super::{Gate, uapi};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

impl Gate {
    /// Remembers the heap that ROCR made.
    pub(super) fn heap_made(&self, handle: u32) {
        self.heap.store(handle, Ordering::Relaxed);
    }

    /// A descriptor of the whole device heap, writable and closed on exec. `None` when the gate has not seen it being made.
    ///
    /// # Errors
    /// The kernel driver's.
    pub fn export_heap(&self) -> Option<io::Result<OwnedFd>> {
        let handle = self.heap.load(Ordering::Relaxed);
        (handle != 0).then(|| {
            let flags = (libc::O_CLOEXEC | libc::O_RDWR) as u32;
            let mut export = uapi::PrimeHandle { handle, flags, descriptor: -1 };
            self.request(&mut export)?;
            if export.descriptor < 0 {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            // SAFETY: the kernel driver has just made this descriptor for the caller.
            Ok(unsafe { OwnedFd::from_raw_fd(export.descriptor) })
        })
    }
}
