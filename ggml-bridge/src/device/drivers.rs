//! The drivers this library carries.

use aie_driver_mock::MockDriver;
use aie_driver_rocr::Rocr;
use aie_driver_xdna::route::Route;
use aie_driver_xdna::{XdnaDriver, selection};
use aie_hal::driver::DriverRegistry;
use aie_hal::validation::wrap_driver;
use aie_hal::{ArchRegistry, DeviceUri, Driver, DriverError};
use aie_ops::ReferenceExecutor;
use std::sync::Arc;

/// The driver of simulated devices, with the reference kernels.
pub fn mock(arches: ArchRegistry) -> Arc<dyn Driver> {
    Arc::new(simulated(arches))
}

fn simulated(arches: ArchRegistry) -> MockDriver {
    MockDriver::new(Arc::new(ReferenceExecutor)).with_registry(arches)
}

/// All drivers of this library. `route` is how real NPUs are reached when a URI does not say. `validate` puts the validation layer before each.
pub fn registry(arches: ArchRegistry, route: Route, validate: bool) -> DriverRegistry {
    with_npus(npus(&arches, route), arches, validate)
}

/// The same for saying what the devices are: on an NPU nothing runs, and nothing is made there, before a kernel is loaded.
pub fn looking(arches: ArchRegistry, route: Route) -> DriverRegistry {
    with_npus(npus(&arches, route).looking(), arches, false)
}

/// The driver for real NPUs, with both ways to them. `route` is the one when a URI does not say.
pub fn npus(arches: &ArchRegistry, route: Route) -> XdnaDriver {
    XdnaDriver::new(arches.clone()).with_runtime(Rocr::default()).route_by_default(route)
}

fn with_npus(xdna: XdnaDriver, arches: ArchRegistry, validate: bool) -> DriverRegistry {
    let mut registry = DriverRegistry::new();
    for driver in [Arc::new(xdna) as Arc<dyn Driver>, mock(arches)] {
        registry.register(if validate { wrap_driver(driver) } else { driver });
    }
    registry
}

/// Whether `uri` is one of a driver of this library: its path and its parameters. Nothing is opened: whether this machine has the NPU shows
/// then.
///
/// # Errors
/// What is wrong with it, and what is accepted.
pub fn check(uri: &str, arches: &ArchRegistry) -> Result<(), DriverError> {
    let parsed = DeviceUri::parse(uri)?;
    match parsed.scheme() {
        aie_driver_mock::SCHEME => simulated(arches.clone()).check(&parsed),
        aie_driver_xdna::SCHEME => selection::check(&parsed),
        scheme => registry(arches.clone(), Route::default(), false).driver(scheme, uri).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_open_and_schemes_are_reported() {
        let drivers = registry(ArchRegistry::builtin(), Route::Direct, true);
        let message = drivers.open("xdma:0").unwrap_err().to_string();
        assert!(message.ends_with("available in this build: [xdna, mock]"), "{message}");
        assert_eq!(drivers.open("mock:aie2?devices=2").unwrap().len(), 2);
    }
}
