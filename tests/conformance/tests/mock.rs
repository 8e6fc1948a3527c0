//! Every case on the simulated NPU, in each of its modes. The mock has no exclusions, and each case applies to one mode at least.

use aie_conformance::kernels::TestExecutor;
use aie_conformance::{Backend, CASES, Tag};
use aie_driver_mock::MockDriver;
use std::sync::Arc;

const TAGS: &[Tag] = &[
    Tag::SeveralDevices,
    Tag::HostImport,
    Tag::FileImport,
    Tag::Faults,
    Tag::MemoryCap,
    Tag::SoftwareKernels,
    Tag::HeapAllocation,
];

/// Parameters the mock knows, with values it has to reject.
const MALFORMED: &[&str] = &[
    "coherent=perhaps",
    "coherent=",
    "devices=0",
    "devices=-1",
    "devices=many",
    "order=sideways",
    "memory=lots",
    "memory=-1",
    "heap=0x10",
    "fault=lost",
    "fault=lost@0",
    "fault=lost@x",
    "fault=nonsense@1",
    "fault=lost@1+",
];

fn mock(name: &str, uri: &str, coherence: Tag) -> Backend {
    Backend::new(name, Arc::new(MockDriver::new(Arc::new(TestExecutor))), uri)
        .tags(TAGS)
        .tags(&[coherence])
        .malformed_parameters(MALFORMED)
}

fn main() {
    let modes = vec![
        mock("mock_aie2_coherent", "mock:aie2", Tag::Coherent),
        mock("mock_aie2_noncoherent", "mock:aie2?coherent=false", Tag::NonCoherent),
        mock("mock_aie2p_coherent", "mock:aie2p", Tag::Coherent),
        mock("mock_aie2p_noncoherent", "mock:aie2p?coherent=false", Tag::NonCoherent),
        mock("mock_aie2p_reverse", "mock:aie2p?order=reverse", Tag::Coherent),
        mock("mock_aie2p_reverse_noncoherent", "mock:aie2p?order=reverse&coherent=false", Tag::NonCoherent),
    ];
    for case in CASES {
        let applies = modes.iter().any(|mode| case.needs.iter().all(|&tag| mode.has(tag)));
        assert!(applies, "{} needs {:?}, which no mode of the mock has", case.name, case.needs);
    }
    aie_conformance::run(modes).exit();
}
