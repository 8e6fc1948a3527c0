//! What the suites on the simulated kernel device share: they need its preload library, so they are no part of a plain `cargo test`.

use aie_conformance::{Backend, Exclusion, Tag};
use aie_driver_rocr::Rocr;
use aie_driver_xdna::XdnaDriver;
use aie_driver_xdna::route::Route;
use aie_hal::ArchRegistry;
use std::sync::Arc;

/// Fault plans in the URI are not there: the simulated kernel device has plans of its own (`cargo xtask faults`).
const TAGS: &[Tag] = &[
    Tag::NonCoherent,
    Tag::SeveralDevices,
    Tag::MemoryCap,
    Tag::SoftwareKernels,
    Tag::HeapAllocation,
    Tag::MachineCode,
];

/// Parameters the driver knows, with values it has to reject.
const MALFORMED: &[&str] = &[
    "devices=",
    "devices=0",
    "devices=-1",
    "devices=many",
    "memory=lots",
    "memory=-1",
    "chain=0",
    "runtime=",
    "runtime=xrt",
    "libhsa=",
    "libhsa=%2",
];

const COHERENT: &str = "The driver maintains cache lines, but the memory of the simulated kernel device is this machine's own, so \
                        forgetting to does not show. That nothing is forgotten is tested with a device that has a copy of its own \
                        (driver-xdna/src/device/chain/tests).";

const EXCLUSIONS: &[Exclusion] = &[
    Exclusion {
        case: "dispatch::failing_kernels_fail_the_submission",
        reason: "The submission fails and names the kernel, but the kernel driver reports a state and no text, so the kernel's own \
                 message cannot be in the error.",
    },
    Exclusion { case: "coherence::missing_flush_gives_old_data", reason: COHERENT },
    Exclusion { case: "coherence::missing_invalidate_gives_old_data", reason: COHERENT },
    Exclusion { case: "coherence::flush_covers_its_range", reason: COHERENT },
    Exclusion { case: "coherence::invalidate_covers_its_range", reason: COHERENT },
];

/// The driver for real NPUs on `route`, with what `more` says of it. It opens listed URIs on this route too: both routes at once
/// would compete for the contexts of one NPU.
pub fn backend(name: &str, uri: &str, route: Route, more: &[Tag]) -> Backend {
    let driver = XdnaDriver::new(ArchRegistry::builtin()).with_runtime(Rocr::default()).route_by_default(route);
    Backend::new(name, Arc::new(driver), uri)
        .tags(TAGS)
        .tags(more)
        .exclusions(EXCLUSIONS)
        .malformed_parameters(MALFORMED)
}
