//! The second way to an NPU: through AMD's HSA runtime, ROCR, as it is installed. A program that wants it adds it to the driver for
//! real NPUs; device URIs choose it with `runtime=rocr`.
//!
//! ```no_run
//! use aie_driver_rocr::Rocr;
//! use aie_driver_xdna::XdnaDriver;
//! use aie_hal::{ArchRegistry, DeviceUri, Driver};
//!
//! let driver = XdnaDriver::new(ArchRegistry::builtin()).with_runtime(Rocr::default());
//! let device = driver.open(&DeviceUri::parse("xdna:0?runtime=rocr")?)?.remove(0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the top:
//!
//! - `runtime`: the library found, loaded and started once in a process ([`library`], [`session`]), and its NPUs.
//! - [`interface`] detects which packets a library takes. `ert` speaks to releases 7.0 to 7.2, with the `ioctl_interposer` that keeps
//!   it off their defects, and [`kernel_dispatch`] to later ones.
//!
//! Devices, buffers and queues are those of `aie-driver-xdna`, which sees an [`Agent`](aie_driver_xdna::agent::Agent) here as there.
//!
//! # What this has run on
//! A simulated kernel device, through AMD's unmodified ROCR 7.2.4; later packets on a stand-in library. Never on an NPU.

mod ert;
pub mod interface;
mod ioctl_interposer;
pub mod kernel_dispatch;
pub mod library;
mod runtime;
pub mod session;
pub mod settings;

pub use runtime::RuntimeError;

use aie_driver_xdna::npu::OpenNpu;
use aie_driver_xdna::runtime::Runtime;
use aie_hal::{Arch, DriverError};
use library::{Named, Source};
use runtime::OpenRuntime;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// AMD's runtime, ROCR. Nothing is loaded before an NPU is opened; one library at a time serves a process.
#[derive(Debug, Clone, Default)]
pub struct Rocr {
    library: Option<PathBuf>,
}

impl Rocr {
    /// The runtime library to use where a URI names none (`libhsa=PATH`), whatever the environment says: its file, or a folder
    /// that has it. When it cannot be loaded, opening a device is an error that lists what was tried; there is no fallback.
    #[must_use]
    pub fn with_library(self, path: impl Into<PathBuf>) -> Self {
        Self { library: Some(path.into()) }
    }

    /// The library that the URI or the program names.
    fn named(&self, of_uri: Option<&Path>) -> Option<Named> {
        let of_uri = of_uri.map(|path| (Source::Uri, path));
        let named = of_uri.or_else(|| self.library.as_deref().map(|path| (Source::Option, path)));
        named.map(|(source, path)| Named { source, path: path.to_owned() })
    }
}

impl Runtime for Rocr {
    fn npu(
        &self,
        library: Option<&Path>,
        ordinal: usize,
        arch: &Arc<Arch>,
    ) -> Result<Option<Arc<OpenNpu>>, DriverError> {
        let opened = OpenRuntime::open(self.named(library).as_ref());
        let runtime =
            opened.map_err(|cause| DriverError::Runtime { reason: cause.to_string(), remedy: cause.remedy() })?;
        // ROCR opens one node, the lowest; agents of later runtimes come in the order of the nodes.
        let index = if runtime.agents().len() == 1 { 0 } else { ordinal };
        Ok(runtime.npu(index, arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_driver_xdna::selection::Params;
    use aie_hal::DeviceUri;

    #[test]
    fn the_uri_names_the_library_before_the_program() {
        let rocr = Rocr::default().with_library("/of/the/program");
        let named = |text: &str| {
            let params = Params::of(&DeviceUri::parse(text).unwrap()).unwrap();
            rocr.named(params.libhsa.as_ref().map(|(_, path)| path.as_path())).unwrap()
        };
        assert_eq!(named("xdna:0"), Named { source: Source::Option, path: "/of/the/program".into() });
        assert_eq!(named("xdna:0?libhsa=/a%26b"), Named { source: Source::Uri, path: "/a&b".into() });
    }
}
