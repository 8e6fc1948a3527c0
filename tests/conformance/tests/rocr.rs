//! Every case on AMD's ROCR library, on the simulated kernel device.
//!
//! It needs that library and the preload library that simulates the kernel, so it is not part of a plain `cargo test`:
//! `cargo xtask conformance --driver rocr` builds it and runs it in the testbed.

use aie_conformance::{Backend, Exclusion, Tag, conformance_suite};
use aie_driver_xdna::XdnaDriver;
use aie_hal::ArchRegistry;
use std::sync::Arc;

/// Host import, fault plans in the URI and memory that is not coherent are not there: ROCR cannot import, the simulated kernel
/// device has fault plans of its own (`cargo xtask faults`), and ROCR maintains the caches of every argument.
const TAGS: &[Tag] = &[Tag::Coherent, Tag::SeveralDevices, Tag::MemoryCap, Tag::SoftwareKernels, Tag::HeapAllocation];

/// Parameters the driver knows, with values it has to refuse.
const MALFORMED: &[&str] =
    &["devices=", "devices=0", "devices=-1", "devices=many", "memory=lots", "memory=-1", "chain=0"];

const EXCLUSIONS: &[Exclusion] = &[Exclusion {
    case: "dispatch::failing_kernels_fail_the_submission",
    reason: "The submission fails and names the kernel, but the kernel driver tells a state and no text, so the kernel's own \
             message cannot be in the error.",
}];

fn rocr(name: &str, uri: &str) -> Backend {
    Backend::new(name, Arc::new(XdnaDriver::new(ArchRegistry::builtin())), uri)
        .tags(TAGS)
        .exclusions(EXCLUSIONS)
        .malformed_parameters(MALFORMED)
}

conformance_suite!(rocr, rocr("rocr", "xdna:0?runtime=rocr"));
