//! Device URIs: the grammar, and what a driver does with paths and parameters it does not know.

use crate::expect::{self, expect_match};
use crate::rig::Context;
use aie_hal::{DeviceUri, DriverError};

/// `scheme:path` and `scheme://path` name the same device.
pub fn slashes_are_optional(context: &Context) {
    let uri = context.uri(&[]);
    let text = uri.to_string();
    let parameters = text.split_once('?').map_or(String::new(), |(_, parameters)| format!("?{parameters}"));
    let slashes = format!("{}://{}{parameters}", uri.scheme(), uri.path());
    let parsed = DeviceUri::parse(&slashes).expect("the form with slashes");
    let devices = context.driver().open(&parsed).unwrap_or_else(|e| panic!("expected `{slashes}` to open: {e}"));
    expect::equal("generation", &devices[0].info().arch, &context.shared().device.info().arch);
}

/// The bare scheme opens the default device.
pub fn bare_scheme_opens(context: &Context) {
    let uri = DeviceUri::parse(context.driver().scheme()).expect("a scheme is a URI");
    let devices = context.driver().open(&uri).unwrap_or_else(|e| panic!("expected `{uri}` to open, found: {e}"));
    expect::at_least("devices opened", devices.len(), 1);
}

/// Parameters given when opening are in the device's own URI.
pub fn parameters_stay_in_the_device_uri(context: &Context) {
    let (asked, info) = (context.uri(&[]), context.shared().device.info());
    for (name, value) in asked.params() {
        expect::equal(name, info.uri.param(name), Some(value.as_str()));
    }
    expect::holds("the URI has a path that names the device", &info.uri, !info.uri.path().is_empty());
}

/// An unknown parameter is an error that names it and the URI, never ignored.
pub fn unknown_parameters_are_refused(context: &Context) {
    for parameter in ["no-such-parameter=1", "no-such-parameter", "Coherent=true"] {
        let uri = context.uri(&[parameter]);
        let name = parameter.split('=').next().unwrap_or_default();
        let result = context.driver().open(&uri).map(drop);
        let error = expect_match!(uri, result, Err(e @ DriverError::InvalidParameter { .. }) => e);
        expect::mentions(&error, &[name, &uri.to_string()]);
    }
}

/// A parameter the driver knows with a value it does not know is an error that names both.
pub fn malformed_parameters_are_refused(context: &Context) {
    for parameter in &context.backend.malformed_parameters {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let base = context.uri_text(&[]);
        let base = base.split('?').next().unwrap_or_default();
        let uri = DeviceUri::parse(&format!("{base}?{parameter}")).expect("the mode's URI with the parameter");
        let result = context.driver().open(&uri).map(drop);
        let error = expect_match!(uri, result, Err(e @ DriverError::InvalidParameter { .. }) => e);
        expect::mentions(&error, &[name, value]);
    }
}

/// A path that names no device is an error that names it and what there is.
pub fn unknown_devices_are_refused(context: &Context) {
    let scheme = context.driver().scheme();
    for path in ["no-such-device", "999", "0,999"] {
        let uri = DeviceUri::parse(&format!("{scheme}:{path}")).expect("a URI");
        let result = context.driver().open(&uri).map(drop);
        let error = expect_match!(uri, result, Err(e @ DriverError::NoSuchDevice { .. }) => e);
        expect::mentions(&error, &[&uri.to_string(), "available", scheme]);
    }
}
