//! Where a way to NPUs is plugged in that is not the kernel's own interface.
//!
//! AMD's ROCR is a large library with defects of its own, and most programs need none of it. So this crate knows no more of it than
//! this trait; what implements it depends on this crate, for devices, pools and the calls of the kernel driver.

use crate::npu::OpenNpu;
use aie_hal::{Arch, DriverError};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// A runtime library that stands between this driver and the kernel driver, for [`Route::Rocr`](crate::route::Route::Rocr).
/// Thread-safe.
pub trait Runtime: Debug + Send + Sync {
    /// The NPU with this ordinal, of generation `arch`; `None` if the runtime does not offer it. The runtime is started when it is
    /// not running, with `library` if the device URI names one (`libhsa=PATH`: a file, or a folder that has it). All who ask for an NPU
    /// that is open share it, and the runtime runs as long as one of its NPUs is open.
    ///
    /// # Errors
    /// [`DriverError::Runtime`] when the runtime cannot be found, started or used, with what was tried.
    fn npu(
        &self,
        library: Option<&Path>,
        ordinal: usize,
        arch: &Arc<Arch>,
    ) -> Result<Option<Arc<OpenNpu>>, DriverError>;
}
