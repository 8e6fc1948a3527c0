//! One validation layer around any driver, so that drivers can trust their arguments.
//!
//! [`wrap_driver`] and [`wrap_device`] return objects that check what they are given and hand on to the driver only what is
//! right. Everything a wrapped device makes is wrapped too, and is taken out of its wrapper on the way down: drivers see
//! nothing but their own objects.
//!
//! Checked here, and nowhere else:
//!
//! - allocation: size, alignment, largest buffer; initial values of semaphores; generation and argument count of kernels;
//! - ranges of map, read, write, flush and invalidate;
//! - submissions: one binding per slot, every reference inside its binding and its buffer, dispatch bindings on the 4-byte
//!   granularity of the shim DMA, no object of another device, no signal that does not increase or appears twice;
//! - hazards: two commands without a barrier between them, one of which writes what the other touches.
//!
//! What depends on the command list alone is checked once and remembered with the list. A submission then costs one look at
//! each binding; only bindings that overlap each other or a direct range lead to a full check.

mod device;
#[cfg(test)]
mod doubles;
mod hazard;
mod list;
mod object;
mod queue;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::driver::{DeviceListing, Driver};
use crate::error::{DeviceError, DriverError};
use crate::uri::DeviceUri;
use std::sync::{Arc, OnceLock};

/// Granularity of addresses of the shim DMA, in bytes (aie-rt: addresses are counted in 32-bit words).
pub const DISPATCH_ALIGNMENT: usize = 4;

/// Wraps a driver: everything it opens is validated.
pub fn wrap_driver(driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
    Arc::new(ValidatedDriver { inner: driver })
}

/// Wraps a device: everything it makes is validated. Objects made by `device` before belong to another device from then on.
pub fn wrap_device(device: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(device::ValidatedDevice { owner: Arc::new(Owner { inner: device, lost: OnceLock::new() }) })
}

#[derive(Debug)]
struct ValidatedDriver {
    inner: Arc<dyn Driver>,
}

impl Driver for ValidatedDriver {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError> {
        self.inner.enumerate()
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        if uri.scheme() != self.scheme() {
            return Err(DriverError::UnknownScheme {
                uri: uri.to_string(),
                scheme: uri.scheme().to_owned(),
                available: self.scheme().to_owned(),
            });
        }
        Ok(self.inner.open(uri)?.into_iter().map(wrap_device).collect())
    }
}

/// The device behind a wrapper. Everything it made points here; that is how the layer knows whose an object is.
#[derive(Debug)]
struct Owner {
    inner: Arc<dyn Device>,
    lost: OnceLock<DeviceError>,
}

impl Owner {
    /// For messages.
    fn name(&self) -> String {
        self.inner.info().uri.to_string()
    }

    /// Rejects work for a device that is known to be lost.
    fn alive(&self) -> Result<(), DeviceError> {
        self.lost.get().cloned().map_or(Ok(()), Err)
    }

    /// Remembers the first loss, so that every later call reports the same cause.
    fn observe<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        result.map_err(|error| match error {
            DeviceError::Lost(_) => self.lost.get_or_init(|| error).clone(),
            other => other,
        })
    }
}
