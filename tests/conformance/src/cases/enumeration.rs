//! Listing devices, opening what was listed, and what an open device says about itself.

use crate::backend::Tag;
use crate::compiled;
use crate::expect::{self, expect_match};
use crate::rig::Context;
use aie_hal::{DeviceListing, DeviceUri, DriverError};
use std::collections::HashSet;

fn listings(context: &Context) -> Vec<DeviceListing> {
    context.driver().enumerate().unwrap_or_else(|e| panic!("expected a listing, found: {e}"))
}

/// A driver that has been given a mode lists at least one device that can be opened.
pub fn lists_a_usable_device(context: &Context) {
    let usable = listings(context).iter().filter(|l| l.disabled.is_none()).count();
    expect::at_least("usable devices", usable, 1);
}

/// Listing changes nothing: a second listing is the same.
pub fn listing_is_repeatable(context: &Context) {
    expect::equal("second listing", listings(context), listings(context));
}

/// No two lines of a listing have the same URI.
pub fn listed_uris_are_unique(context: &Context) {
    let listed = listings(context);
    let unique: HashSet<&DeviceUri> = listed.iter().map(|l| &l.uri).collect();
    expect::equal("different URIs", unique.len(), listed.len());
}

/// Every line has the driver's scheme and a name, and its URI survives being pasted as text.
pub fn listed_lines_are_complete(context: &Context) {
    for listing in listings(context) {
        expect::equal("scheme", listing.uri.scheme(), context.driver().scheme());
        expect::holds("a line has a name", &listing, !listing.name.is_empty());
        let pasted = DeviceUri::parse(&listing.uri.to_string());
        expect::equal("pasted URI", pasted, Ok(listing.uri.clone()));
        let reason = listing.disabled.as_deref();
        expect::holds("a disabled line has a reason", &listing, reason.is_none_or(|r| r.len() > 10));
    }
}

/// Pasting a usable line opens one device of the listed generation; pasting a disabled one gives its reason.
pub fn listed_uris_open(context: &Context) {
    for listing in listings(context) {
        let result = context.driver().open(&listing.uri);
        match listing.disabled {
            None => {
                let devices = result.unwrap_or_else(|e| panic!("expected `{}` to open, found: {e}", listing.uri));
                expect::equal("devices opened", devices.len(), 1);
                expect::equal("generation", Some(devices[0].info().arch.clone()), listing.arch);
            }
            Some(reason) => {
                let error = expect_match!("opening a disabled line", result.map(drop), Err(e) => e);
                expect::mentions(&error, &[&reason]);
            }
        }
    }
}

/// A device says who it is, with the driver's scheme and its arch file's name.
pub fn info_is_complete(context: &Context) {
    let device = &context.shared().device;
    let info = device.info();
    expect::equal("driver", info.driver, context.driver().scheme());
    expect::equal("scheme of its URI", info.uri.scheme(), info.driver);
    expect::equal("generation", &info.arch, &device.arch().name);
    expect::holds("the device has a name", info, !info.name.is_empty());
}

/// The URI of an open device opens a device that says the same of itself.
pub fn info_uri_opens_the_same_device(context: &Context) {
    let device = &context.shared().device;
    let pasted = DeviceUri::parse(&device.info().uri.to_string()).expect("a device's own URI");
    let again = context.driver().open(&pasted).unwrap_or_else(|e| panic!("expected `{pasted}` to open, found: {e}"));
    expect::equal("devices opened", again.len(), 1);
    expect::equal("info", again[0].info(), device.info());
    expect::equal("limits", again[0].limits(), device.limits());
}

/// Opening twice gives two devices that do not count each other's work.
pub fn opening_twice_gives_separate_counters(context: &Context) {
    let (first, second) = (context.fresh(), context.fresh());
    let before = second.device.counters();
    let _kept = first.zeroed(8192);
    expect::at_least("bytes of the first", first.device.counters().allocated_bytes, 8192);
    expect::equal("counters of the second", second.device.counters(), before);
}

/// The mode's tags are what the device is.
pub fn tags_match_the_device(context: &Context) {
    let coherent = context.shared().device.info().coherent;
    expect::equal("tag Coherent", context.backend.has(Tag::Coherent), coherent);
    expect::equal("tag NonCoherent", context.backend.has(Tag::NonCoherent), !coherent);
    let imports = context.shared().device.info().import_obstacle.is_none();
    expect::equal("tag FileImport", context.backend.has(Tag::FileImport), imports);
    let has_tables = compiled::isa(context.shared().device.arch()).is_some();
    expect::equal("tag MachineCode", context.backend.has(Tag::MachineCode), has_tables);
    let parameters = [(Tag::SeveralDevices, "devices=2"), (Tag::MemoryCap, "memory=67108864")];
    for (tag, parameter) in parameters {
        let result = context.driver().open(&context.uri(&[parameter]));
        let known = !matches!(result, Err(DriverError::InvalidParameter { .. }));
        expect::equal(&format!("tag {tag:?}"), context.backend.has(tag), known);
    }
}

/// Limits are those of the arch file or narrower, and make sense.
pub fn limits_fit_the_generation(context: &Context) {
    let device = &context.shared().device;
    let (limits, arch) = (device.limits(), &device.arch().limits);
    let pairs = [
        ("max_alignment", limits.max_alignment, arch.max_alignment),
        ("granule", limits.granule, arch.granule),
        ("max_buffer_bytes", limits.max_buffer_bytes, arch.max_buffer_bytes),
        ("device_heap_bytes", limits.device_heap_bytes, arch.device_heap_bytes),
        ("pdis_per_context", limits.pdis_per_context, arch.pdis_per_context),
        ("contexts", limits.contexts, arch.contexts),
        ("commands_per_chain", limits.commands_per_chain, arch.commands_per_chain),
        ("chain_buffer_bytes", limits.chain_buffer_bytes, arch.chain_buffer_bytes),
        ("queues", limits.queues, arch.queues),
        ("kernel_arguments", limits.kernel_arguments, arch.kernel_arguments),
    ];
    for (name, limit, of_arch) in pairs {
        expect::at_least(name, limit, 1);
        expect::at_most(name, limit, of_arch);
    }
    expect::holds("the granule is a power of two", &limits.granule, limits.granule.is_power_of_two());
    expect::holds("the largest alignment is one", &limits.max_alignment, limits.max_alignment.is_power_of_two());
}
