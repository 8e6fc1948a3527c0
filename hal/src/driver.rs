//! Finding and opening devices.

use crate::device::Device;
use crate::error::DriverError;
use crate::uri::DeviceUri;
use std::fmt::Debug;
use std::sync::Arc;

/// One line of a device listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Pasting this into [`Driver::open`] opens the device.
    pub uri: DeviceUri,
    /// Product name for people.
    pub name: String,
    /// Generation, when known.
    pub arch: Option<String>,
    /// Why it cannot be opened and what would enable it; `None` when it can.
    pub disabled: Option<String>,
}

/// A family of devices behind one URI scheme. Thread-safe.
pub trait Driver: Send + Sync + Debug {
    /// The URI scheme, e.g. `mock`.
    fn scheme(&self) -> &'static str;
    /// Lists what could be opened now. A device that cannot be used is listed with its reason.
    ///
    /// # Errors
    /// [`DriverError::Runtime`] when the runtime below is missing or refuses.
    fn enumerate(&self) -> Result<Vec<Listing>, DriverError>;
    /// Opens the logical devices that `uri` names; at least one on success.
    ///
    /// # Errors
    /// See [`DriverError`]; nothing stays open on error.
    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError>;
}
