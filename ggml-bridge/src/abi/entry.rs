//! The functions by which a program gets the backend: the two that ggml's loader looks for, and one for a program that is
//! linked with this library and includes `ggml-hsa.h`.

use super::device::register;
use super::guard::{guard, guard_device, own_devices};
use super::registry::{Registry, registry};
use super::symbols::GgmlError;
use super::{Ggml, ggml};
use crate::config::log::{self, Level};
use crate::device::setup;
use aie_hal::Environment;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says that this backend can be used on this system. Whether there is a device shows when it is initialised: the loader
/// may close the library after asking for the score, so nothing is opened here.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> c_int {
    1
}

/// Makes the backend's registry with all devices requested; the same one each time. Null, with a message, when the ggml in
/// this process is not known to this backend. Without a device the registry is empty, which ggml accepts.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_init() -> *mut c_void {
    guard("ggml_backend_init", null_mut(), || match prepare() {
        Ok(ggml) => {
            let devices = || {
                own_devices();
                let devices = setup::devices(Environment::process());
                if !devices.0.is_empty() || devices.2.is_some() {
                    // SAFETY: the handler is a function of this library, which stays loaded (-z nodelete).
                    unsafe { libc::atexit(at_exit) };
                }
                devices
            };
            Registry::get_or_make(ggml, devices, register).raw()
        }
        Err(cause) => {
            // Some programs load all backends twice.
            static LOGGED: AtomicBool = AtomicBool::new(false);
            if !LOGGED.swap(true, Ordering::Relaxed) {
                log::error(&cause.to_string());
            }
            null_mut()
        }
    })
}

/// [`ggml_backend_init`] under the name that `ggml-hsa.h` declares: a linked program may have several backends, and each
/// has a function `ggml_backend_init`.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_hsa_reg() -> *mut c_void {
    ggml_backend_init()
}

fn prepare() -> Result<&'static Ggml, GgmlError> {
    let symbols = super::symbols::symbols().map_err(Clone::clone)?;
    if symbols.has_log() {
        log::set_sink(Box::new(|level: Level, line: &str| symbols.log(level as c_int, line)));
    }
    if let Some(version) = symbols.version.filter(|v| v.is_newer_than_known()) {
        super::self_check::check(symbols).map_err(|difference| GgmlError::Newer { version, difference })?;
    }
    ggml().map_err(Clone::clone)
}

extern "C" fn at_exit() {
    guard_device("exit", (), || {
        if let Some(registry) = registry() {
            registry.report();
            registry.release();
        }
    });
}
