//! A look at `/dev/kfd` before ROCR takes one.
//!
//! ROCR opens KFD first, asks for its version, and ends the process when either fails: without a CPU agent from KFD it has no
//! memory for its own signals. The discovery has checked that the node is there and may be opened; this does what ROCR is about
//! to do, so that what fails for another reason is an error too.

use crate::discovery::Machine;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

/// `AMDKFD_IOC_GET_VERSION` of kfd_ioctl.h: reads two 32-bit numbers, major and minor.
const GET_VERSION: u32 = 0x8008_4b01;

/// Opens KFD and asks for its version.
///
/// # Errors
/// What failed, and what to do.
pub(crate) fn probe() -> Result<(), String> {
    let path = Machine::this().kfd();
    let failed = |what: &str, cause: io::Error| {
        format!(
            "{}: {what}: {cause}; ROCR needs KFD even for an NPU and would end the process; check the amdgpu kernel module and \
             the kernel's log",
            path.display()
        )
    };
    let node =
        OpenOptions::new().read(true).write(true).open(&path).map_err(|cause| failed("cannot be opened", cause))?;
    let mut version = [0_u32; 2];
    // SAFETY: the request writes two 32-bit numbers.
    match unsafe { libc::ioctl(node.as_raw_fd(), GET_VERSION as _, version.as_mut_ptr()) } {
        0.. => Ok(()),
        _ => Err(failed("its version cannot be asked for", io::Error::last_os_error())),
    }
}
