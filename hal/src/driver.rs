//! Finding and opening devices.

use crate::device::Device;
use crate::error::DriverError;
use crate::uri::DeviceUri;
use std::fmt::Debug;
use std::sync::Arc;

/// One device of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceListing {
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
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
pub trait Driver: Send + Sync + Debug {
    /// The URI scheme, e.g. `mock`.
    fn scheme(&self) -> &'static str;
    /// Lists what could be opened now. A device that cannot be used is listed with its reason.
    ///
    /// # Errors
    /// [`DriverError::Runtime`] when the runtime below is missing or fails.
    fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError>;
    /// Opens the logical devices that `uri` names; at least one on success.
    ///
    /// # Errors
    /// See [`DriverError`]; nothing stays open on error.
    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError>;
}

/// The drivers of a program by scheme. Owned by the program; there is no global one.
#[derive(Debug, Default)]
pub struct DriverRegistry {
    drivers: Vec<Arc<dyn Driver>>,
}

impl DriverRegistry {
    /// A registry without drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver. One with the same scheme is replaced and returned. Wrap it with
    /// [`crate::validation::wrap_driver`] first, unless its callers are trusted.
    pub fn register(&mut self, driver: Arc<dyn Driver>) -> Option<Arc<dyn Driver>> {
        match self.drivers.iter_mut().find(|known| known.scheme() == driver.scheme()) {
            Some(known) => Some(std::mem::replace(known, driver)),
            None => {
                self.drivers.push(driver);
                None
            }
        }
    }

    /// The driver of `scheme`, which stands in `uri`.
    ///
    /// # Errors
    /// [`DriverError::UnknownScheme`] with the schemes there are.
    pub fn driver(&self, scheme: &str, uri: &str) -> Result<&Arc<dyn Driver>, DriverError> {
        self.drivers.iter().find(|driver| driver.scheme() == scheme).ok_or_else(|| DriverError::UnknownScheme {
            uri: uri.to_owned(),
            scheme: scheme.to_owned(),
            available: self.drivers.iter().map(|driver| driver.scheme()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Opens the devices that the URI `text` names.
    ///
    /// # Errors
    /// [`DriverError::Creating`] with the URI and the cause: an invalid URI, an unknown scheme, or the driver's error.
    pub fn open(&self, text: &str) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        let uri = DeviceUri::parse(text).map_err(|cause| creating(text.to_owned(), cause))?;
        let driver = self.driver(uri.scheme(), &uri.to_string());
        driver.and_then(|driver| driver.open(&uri)).map_err(|cause| creating(uri.to_string(), cause))
    }
}

fn creating(uri: String, cause: DriverError) -> DriverError {
    DriverError::Creating { uri, cause: Box::new(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{DeviceError, Remedy};
    use crate::mock::MockDriver;

    /// A driver that opens no device.
    fn driver(scheme: &'static str) -> MockDriver {
        let mut driver = MockDriver::new();
        driver.expect_scheme().return_const(scheme);
        driver.expect_open().returning(|uri| match uri.path() {
            "none" => Ok(vec![]),
            path => Err(DeviceError::Lost(format!("double {path}")).into()),
        });
        driver
    }

    fn registry() -> DriverRegistry {
        let mut registry = DriverRegistry::new();
        assert!(registry.register(Arc::new(driver("one"))).is_none());
        assert!(registry.register(Arc::new(driver("two"))).is_none());
        registry
    }

    #[test]
    fn a_driver_of_the_same_scheme_is_replaced() {
        let mut registry = registry();
        let replacement: Arc<dyn Driver> = Arc::new(driver("one"));
        assert!(!Arc::ptr_eq(&registry.register(Arc::clone(&replacement)).unwrap(), &replacement));
        assert!(Arc::ptr_eq(&registry.register(Arc::new(driver("one"))).unwrap(), &replacement));
        let message = registry.open("three").unwrap_err().to_string();
        assert!(message.ends_with("available in this build: [one, two]"), "{message}");
    }

    #[test]
    fn uris_go_to_their_driver_and_errors_name_them() {
        let registry = registry();
        assert!(registry.open("one:none").unwrap().is_empty());
        let message = |text: &str| registry.open(text).unwrap_err().to_string();
        assert_eq!(message("two:7"), "creating device `two:7`: device lost: double 7");
        assert_eq!(
            message("three:0"),
            "creating device `three:0`: no driver for scheme `three` in `three:0`; available in this build: [one, two]"
        );
        assert!(message("").starts_with("creating device ``: invalid device URI ``: it has no scheme"));
        let error = DriverRegistry::new().open("one").unwrap_err();
        assert!(error.to_string().ends_with("available in this build: []"), "{error}");
        assert!(matches!(error.cause(), DriverError::UnknownScheme { .. }));
        assert_eq!(error.remedy(), Some(Remedy::AnotherUri));
    }
}
